"""Argument validation: check a tool call's arguments, repair near misses, or refuse them."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.values import json_type, readable_path
from loom_core.tools.names import closest
from loom_core.tools.schemas.check import SchemaCheck

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = ["ToolArguments", "find_mismatches"]

_SHOWN = 60  # characters of an invalid value in an error
_LONGEST = 200  # characters of one error
_MOST_REASONS = 8
_MOST_NAMES = 40

_log = logging.getLogger(__name__)


class ToolArguments:
    """Validator of a tool's arguments.

    Args:
        tool: its name, for messages.
        schema: JSON Schema of its arguments, accepted by `schema_problem`.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._schema = schema
        self._check = SchemaCheck(schema)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Validate arguments without repair.

        Raises:
            InvalidInputError: as for `validate`.
        """
        if errors := self._check.errors(arguments):
            raise self._invalid_error(_reasons(errors))

    def validate(self, given: object) -> dict[str, Any]:
        """Validate arguments, repair them if needed, and return them.

        Null for all of them counts as none. Invalid arguments are repaired once: an object, list, number or
        boolean written as text is parsed, and a null that only means "not given" is left out.

        Raises:
            InvalidInputError: it names the error, the expected and the received value, for a model.
        """
        arguments = _as_object(given)
        if arguments is None:
            raise self._invalid_error([f"an object is expected, got {_display(given)}"])
        errors = self._check.errors(arguments)
        if not errors:
            return arguments
        repaired, places = _repair(arguments, errors)
        if places:
            _log.info("arguments of %s were repaired: %s", self._tool, ", ".join(places))
            errors = self._check.errors(repaired)
        if errors:
            raise self._invalid_error(_reasons(errors))
        return repaired

    def _invalid_error(self, reasons: Sequence[str]) -> InvalidInputError:
        names = [str(name) for name in self._schema.get("properties", ())]
        required = self._schema.get("required", ())
        listed = ", ".join(f"{name} (required)" if name in required else name for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return InvalidInputError(
            f"Invalid arguments for `{self._tool}`: {'; '.join(reasons)}.",
            advice=f"Valid arguments: {listed}{more}." if listed else "",
        )


def find_mismatches(value: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the validation errors of an object: path, expected and received value.

    Args:
        value: the object.
        schema: its schema, accepted by `schema_problem`.

    Raises:
        InvalidInputError: as for `SchemaCheck.errors`.
    """
    return _reasons(SchemaCheck(schema).errors(dict(value)), whole="the answer", part="asked for")


def _as_object(given: object) -> dict[str, Any] | None:
    """Return the arguments as a mapping; parse them if they are text."""
    if given is None or given == "":
        return {}
    value = _read(given) if isinstance(given, str) else given
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else None


def _repair(arguments: dict[str, Any], errors: Sequence[ValidationError]) -> tuple[dict[str, Any], list[str]]:
    """Return a copy with values of a wrong type repaired where possible, and the repaired paths."""
    copied = copy.deepcopy(arguments)
    places: list[str] = []
    for error in errors:
        wanted, path = _types_expected(error), list(error.absolute_path)
        if not wanted or not path or readable_path(path) in places:
            continue
        holder: Any = copied
        for step in path[:-1]:
            holder = holder[step]
        value = holder[path[-1]]
        if isinstance(value, str) and "string" not in wanted and _is_of(read := _read(value), wanted):
            holder[path[-1]] = read
        elif value is None and isinstance(holder, dict):  # a required argument then counts as missing
            del holder[path[-1]]
        else:
            continue
        places.append(readable_path(path))
    return copied, places


def _types_expected(error: ValidationError) -> frozenset[str]:
    """Return the expected types if a value has a wrong type, also for each of several alternatives."""
    if error.validator == "type":
        types = cast("str | list[str]", error.validator_value)
        return frozenset([types] if isinstance(types, str) else types)
    if error.validator in {"anyOf", "oneOf"}:
        # Errors deeper than the value are about alternatives of its type.
        forms = [_types_expected(inner) for inner in error.context or () if not inner.relative_path]
        if forms and len(forms) == len(error.context or ()) and all(forms):
            return frozenset[str]().union(*forms)
    return frozenset()


def _read(text: str) -> object:
    """Parse a text as JSON; return the text itself if it is none."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits} is not a JSON number")
    return number


def _is_of(value: object, types: frozenset[str]) -> bool:
    kind = json_type(value)
    if kind == "number" and "integer" in types:
        return isinstance(value, int) or cast("float", value).is_integer() or kind in types
    return kind in types and kind != "string"


def _reasons(
    errors: Sequence[ValidationError], *, whole: str = "the arguments", part: str = "an argument"
) -> list[str]:
    from jsonschema.exceptions import best_match

    best = [best_match([error]) or error for error in errors]
    told = list(dict.fromkeys(reason for error in best for reason in _describe(error, whole, part)))
    more = len(told) - _MOST_REASONS
    return told[:_MOST_REASONS] + ([f"and {more} more"] if more > 0 else [])


def _describe(error: ValidationError, whole: str, part: str) -> Iterable[str]:
    """Describe an error: path, expected and received value."""
    path = list(error.absolute_path)
    place = f"`{readable_path(path)}`" if path else whole
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return [f"`{readable_path([*path, name])}` is required" for name in missing]
        case "additionalProperties" if error.validator_value is False:
            known = [str(name) for name in error.schema.get("properties", ())]
            return [f"{place} is not {part}{closest(str(path[-1]), known)}"]
        case "type":
            types = error.validator_value
            wanted = types if isinstance(types, str) else " or ".join(types)
            return [f"{place} must be {_article(wanted)}, got {_display(error.instance)}"]
        case "enum":
            allowed = _truncate(", ".join(map(_json, error.validator_value)), _LONGEST)
            return [f"{place} must be one of {allowed}, got {_display(error.instance)}"]
        case "const":
            return [f"{place} must be {_display(error.validator_value)}, got {_display(error.instance)}"]
        case _:
            return [f"{place}: {_truncate_middle(error.message)}"]


def _article(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _display(value: object) -> str:
    text = _truncate(_json(value), _SHOWN)
    return text if value is None or isinstance(value, bool) else f"{text} ({_article(json_type(value))})"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # from a program, not from a model
        return repr(value)


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _truncate_middle(message: str) -> str:
    """Truncate the middle of a message: the value comes first, the error last."""
    if len(message) <= _LONGEST:
        return message
    return f"{message[: _LONGEST // 3]} … {message[-2 * _LONGEST // 3 :]}"
