"""Validation of servers' schemas: they are well-formed, and limited in size.

JSON Schema has a meta-schema, but validation against it takes milliseconds a tool, which is seconds for a
thousand of them, and does not limit the size. Here each keyword's value is checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias, cast

__all__ = ["DEEPEST", "parts_of", "schema_problem"]

DEEPEST = 64
"""Maximum nesting depth of a schema."""

_MOST_PARTS = 20_000
_MOST_CHARACTERS = 500_000

_Schema: TypeAlias = Mapping[str, Any]
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_ONE = frozenset(
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then "
    "unevaluatedItems unevaluatedProperties".split()
)
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why a tool's schema is unusable, as the end of "its schema …"; empty if it is usable."""
    if schema.get("type", "object") != "object":
        return f"is of type {_shorten(schema['type'])}, not object"
    left, characters = _MOST_PARTS, _MOST_CHARACTERS
    waiting: list[tuple[object, int]] = [(schema, 0)]
    while waiting:
        part, depth = waiting.pop()
        left -= 1
        if depth > DEEPEST:
            return f"is nested more than {DEEPEST} deep"
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            return f"has {_shorten(part)} where a schema belongs"
        keywords = cast("_Schema", part)
        if problem := _keyword_problem(keywords):
            return problem
        size, pieces = _extent(keywords, limit=characters)
        characters -= size
        left -= pieces
        if left < 0 or characters < 0:
            return f"has more than {_MOST_PARTS:,} parts or {_MOST_CHARACTERS:,} characters"
        waiting += ((inner, depth + 1) for inner in parts_of(keywords))
    return ""


def parts_of(schema: Mapping[str, Any]) -> Iterator[object]:
    """Iterate over the direct subschemas of a schema; also over invalid ones."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            yield from cast("_Schema", value).values()
        elif (keyword in _LISTED or keyword == "items") and isinstance(value, list):
            yield from cast("list[object]", value)
        elif keyword in _ONE:
            yield value


def _keyword_problem(schema: _Schema) -> str:
    for keyword, value in schema.items():
        fits = _FORMS.get(keyword)
        if fits is not None and not fits(value):
            return f"is wrong: {keyword} is {_shorten(value)}"
    return ""


def _extent(schema: _Schema, *, limit: int) -> tuple[int, int]:
    """Return the approximate length of a schema's own keyword values, and their number of parts."""
    characters = pieces = 0
    waiting: list[object] = [
        value
        for keyword, value in schema.items()
        if keyword not in _ONE and keyword not in _LISTED and keyword not in _NAMED
    ]
    waiting += chain.from_iterable(schema[name] for name in _NAMED if name in schema)
    while waiting and characters <= limit:
        value = waiting.pop()
        pieces += 1
        characters += len(value) if isinstance(value, str) else 8
        if isinstance(value, dict):
            named = cast("dict[str, object]", value)
            waiting += chain(named, named.values())
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
    return characters, pieces


def _is_type(value: object) -> bool:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(isinstance(name, str) and name in _TYPES for name in names)


def _is_a(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _is_count(value: object) -> bool:
    return _is_number(value) and cast("float", value) >= 0 and cast("float", value) % 1 == 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value))


def _are_names_by_name(value: object) -> bool:
    return isinstance(value, dict) and all(map(_are_names, cast("_Schema", value).values()))


_FORMS: Mapping[str, Callable[[object], bool]] = {
    "type": _is_type,
    "enum": _is_a(list),
    "required": _are_names,
    "dependentRequired": _are_names_by_name,
    "dependencies": _is_a(dict),
    "uniqueItems": _is_a(bool),
    "multipleOf": lambda value: _is_number(value) and cast("float", value) > 0,
    **dict.fromkeys(_NAMED, _is_a(dict)),
    **dict.fromkeys(_LISTED - {"prefixItems"}, lambda value: isinstance(value, list) and value != []),
    "prefixItems": _is_a(list),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("$ref", "$dynamicRef", "$id", "$anchor", "$schema", "pattern", "format"), _is_a(str)),
}


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
