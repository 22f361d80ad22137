"""The plain part of JSON Schema, compiled: most arguments are right, and are told so in a microsecond or two.

What it accepts, the schema accepts. What it does not may still be right: that is for `SchemaCheck` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

__all__ = ["quick_check"]

_Check: TypeAlias = Callable[[object], bool]

_SAYS_NOTHING = frozenset(
    "$comment $schema default deprecated description examples readOnly title writeOnly".split()
)
_DRAFTS = ("draft-07/", "2019-09/", "2020-12/")
_DEEPEST = 16
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "enum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}


def quick_check(schema: Mapping[str, Any]) -> Callable[[object], bool] | None:
    """What says that a value surely fits a schema; None where the schema says more than is known here.

    Args:
        schema: one that `schema_problem` finds nothing wrong with.
    """
    written = schema.get("$schema", _DRAFTS[-1])
    if not isinstance(written, str) or not any(draft in written for draft in _DRAFTS):
        return None
    return _compiled(schema, 0)


def _compiled(schema: object, depth: int) -> _Check | None:
    if schema is True:
        return _anything
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    part = cast("Mapping[str, Any]", schema)
    says = part.keys() - _SAYS_NOTHING - {"type"}
    kind = part.get("type")
    if kind is None and not says:
        return _anything
    if not isinstance(kind, str) or not says <= _KEYWORDS.get(kind, frozenset()):
        return None
    match kind:
        case "object":
            return _object(part, depth)
        case "array":
            return _array(part, depth)
        case "string":
            return _string(part)
        case "boolean":
            return _boolean
        case "null":
            return _null
        case _:
            return _number(part, int if kind == "integer" else (int, float))


def _anything(_value: object) -> bool:
    return True


def _boolean(value: object) -> bool:
    return type(value) is bool


def _null(value: object) -> bool:
    return value is None


def _string(schema: Mapping[str, Any]) -> _Check | None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    if "enum" in schema:
        choices = frozenset(each for each in schema["enum"] if isinstance(each, str))
        return lambda value: type(value) is str and value in choices and least <= len(value) <= most
    if least <= 0 and "maxLength" not in schema:
        return lambda value: type(value) is str
    return lambda value: type(value) is str and least <= len(value) <= most


def _number(schema: Mapping[str, Any], kinds: type | tuple[type, ...]) -> _Check:
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    # What is no number compares as neither. 1.0 is an integer, too, but is not known as one here.
    return lambda value: (
        isinstance(value, kinds) and type(value) is not bool and least <= cast("float", value) <= most
    )


def _array(schema: Mapping[str, Any], depth: int) -> _Check | None:
    item = _compiled(schema.get("items", True), depth + 1)
    if item is None:
        return None
    least, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))

    def check(value: object) -> bool:
        if type(value) is not list:
            return False
        items = cast("list[object]", value)
        return least <= len(items) <= most and all(map(item, items))

    return check


def _object(schema: Mapping[str, Any], depth: int) -> _Check | None:
    properties: dict[str, _Check] = {}
    for name, part in schema.get("properties", {}).items():
        check = _compiled(part, depth + 1)
        if check is None:
            return None
        properties[name] = check
    others = _compiled(schema.get("additionalProperties", True) or None, depth + 1)
    if others is None and schema.get("additionalProperties", True) is not False:
        return None
    return _members(properties, others, tuple(schema.get("required", ())))


def _members(properties: Mapping[str, _Check], others: _Check | None, required: Sequence[str]) -> _Check:
    """What checks an object's members; `others` is None where there may be none."""

    def check(value: object) -> bool:
        if type(value) is not dict:
            return False
        members = cast("dict[str, object]", value)
        for name in required:
            if name not in members:
                return False
        for name, member in members.items():
            fits = properties.get(name, others)
            if fits is None or not fits(member):
                return False
        return True

    return check
