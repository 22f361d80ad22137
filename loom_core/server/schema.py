"""JSON Schemas as models should see them: without what a generator adds and nobody reads."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["without_titles"]

_NAMED = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples", "example"})


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of a schema without the `title` keywords that pydantic makes out of names.

    They repeat the property's name and cost about a sixth of a tool's definition. A property, default or
    example that is called or contains `title` is left alone.
    """
    clean: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "title" and isinstance(value, str):
            continue
        if keyword in _DATA:
            clean[keyword] = value
        elif keyword in _NAMED and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            clean[keyword] = {name: _strip(subschema) for name, subschema in named.items()}
        else:
            clean[keyword] = _strip(value)
    return clean


def _strip(value: object) -> object:
    if isinstance(value, dict):
        return without_titles(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_strip(item) for item in cast("list[object]", value)]
    return value
