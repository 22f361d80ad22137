"""JSONPath queries by RFC 9535."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, cast

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.tools.patterns import linear_search

if TYPE_CHECKING:
    import jsonpath

    from loom_core.tools.interface import JsonValue

__all__ = ["check_query", "query"]

_MAX_LENGTH = 1000
_MAX_DESCENTS = 2  # each one examines all descendants of the last matches
_MAX_FOUND = 10_000


def query(path: str, value: JsonValue, *, limit: int = _MAX_FOUND) -> list[JsonValue]:
    """Return the matches of a query in a value, in order.

    Raises:
        UnreadableTextError: the query is invalid.
        InvalidInputError: the value is nested too deeply.
    """
    from jsonpath import JSONPathError

    read = check_query(path)
    if not isinstance(value, Mapping | Sequence) or isinstance(value, str):
        # The library would parse a text as JSON; and a scalar has no parts.
        return [value] if not read.segments else []
    try:
        return cast("list[JsonValue]", [match.obj for match in islice(read.finditer(value), limit)])
    except (JSONPathError, RecursionError):
        raise InvalidInputError(
            f"The query {path[:200]!r} cannot be evaluated: the value is nested too deeply.",
            advice="Write a query that names the levels, instead of `..`.",
        ) from None


@lru_cache(maxsize=500)
def check_query(path: str) -> jsonpath.JSONPath:
    """Parse a query.

    Raises:
        UnreadableTextError: it is invalid; a `ConfigError` with the column.
    """
    from jsonpath import JSONPath, JSONPathError

    if len(path) > _MAX_LENGTH or path.count("..") > _MAX_DESCENTS:
        raise UnreadableTextError.at(
            path, 0, f"more than {_MAX_LENGTH:,} characters or {_MAX_DESCENTS} times `..` are too many"
        )
    try:
        read = _environment().compile(path)
    except JSONPathError as error:
        at = error.token.index if error.token is not None else 0
        reason = str(error.args[0]).partition(", line ")[0] if error.args else "it is not a query"
        raise UnreadableTextError.at(path, max(0, min(at, len(path))), reason) from None
    except (RecursionError, ValueError, IndexError, KeyError, OverflowError):
        raise UnreadableTextError.at(path, 0, "it is not a JSONPath query (RFC 9535)") from None
    if not isinstance(read, JSONPath):
        raise UnreadableTextError.at(path, 0, "it is not a JSONPath query (RFC 9535)")
    return read


@lru_cache(maxsize=1)
def _environment() -> jsonpath.JSONPathEnvironment:
    """Return the library's environment: strict, with regular expressions in linear time."""
    from jsonpath import JSONPathEnvironment
    from jsonpath.function_extensions import ExpressionType, FilterFunction

    class Fits(FilterFunction):
        """RFC 9535's `match` (whole) and `search`."""

        @property
        def arg_types(self) -> list[ExpressionType]:
            return [ExpressionType.VALUE, ExpressionType.VALUE]

        @property
        def return_type(self) -> ExpressionType:
            return ExpressionType.LOGICAL

        def __init__(self, form: str) -> None:
            self._form = form

        def __call__(self, value: object, pattern: object) -> bool:
            if not isinstance(value, str) or not isinstance(pattern, str):
                return False
            search = linear_search(self._form.format(pattern)) if linear_search(pattern) else None
            return search is not None and search(value)

    environment = JSONPathEnvironment(strict=True)
    environment.function_extensions["match"] = Fits(r"\A(?:{})\z")
    environment.function_extensions["search"] = Fits("{}")
    return environment
