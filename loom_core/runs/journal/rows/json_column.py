"""JSON and text in a column of a table."""

from __future__ import annotations

import json
from typing import Any

from loom_core.errors import InvalidInputError

__all__ = ["check_text", "from_column", "to_column"]

_readable = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_finite = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ascii = json.JSONEncoder(separators=(",", ":"))


def to_column(value: object, *, allow_nan: bool = True) -> str:
    """Serialize a value to JSON that SQLite accepts: lone surrogates, which UTF-8 cannot encode, are escaped.

    Args:
        value: the value.
        allow_nan: whether NaN and infinite numbers are allowed, as models write them and Python reads them;
            not in a column that SQL reads, as they are no JSON for databases.

    Raises:
        InvalidInputError: JSON cannot hold it, or it is nested too deeply.
    """
    try:
        text = (_readable if allow_nan else _finite).encode(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                text = _ascii.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"A value cannot be stored in the journal: {error}.",
            advice="Give JSON values: strings, numbers, lists, and objects with strings as keys.",
        ) from error
    return text


def from_column(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Parse what `to_column` wrote."""
    return json.loads(text)


def check_text(name: str, text: str) -> str:
    """Return a text, if a database can store it.

    Raises:
        InvalidInputError: it contains a lone surrogate, which UTF-8 cannot encode.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"The {name} is not valid text: it contains a lone surrogate.") from None
    return text
