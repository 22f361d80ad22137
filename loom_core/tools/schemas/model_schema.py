"""JSON Schemas as models should see them: without what a generator adds and nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["with_keywords", "without_keywords", "without_nulls", "without_titles"]

_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples", "example"})


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of a schema without the `title` keywords that pydantic makes out of names.

    They repeat the property's name and cost about a sixth of a tool's definition. A property, default or
    example that is called or contains `title` is left alone.
    """
    return without_keywords(schema, frozenset({"title"}))


def without_keywords(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    """A copy of a schema without some keywords whose values are texts or lists, at every depth.

    A property that is called like one, and data such as a default, are left alone.
    """
    clean: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in keywords and isinstance(value, str | list):
            continue
        if keyword in _DATA:
            clean[keyword] = value
        elif keyword in _NAMED and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            clean[keyword] = {name: _strip(subschema, keywords) for name, subschema in named.items()}
        else:
            clean[keyword] = _strip(value, keywords)
    return clean


def with_keywords(schema: dict[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an object's schema with keywords that no signature can say, such as `allOf`, `if` or `$defs`.

    They take the place of the schema's own. `properties` and `$defs` are merged, so that one argument can be
    described anew and the others stay.
    """
    merged = {**schema, **keywords}
    for named in ("properties", "$defs"):
        if named in schema and named in keywords:
            merged[named] = {**schema[named], **keywords[named]}
    return merged


def without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of an object's schema in which what may be left out is not offered as null as well.

    Of an optional argument pydantic makes a union with null whose default is null. Many hosts and models
    understand a plain type only, and there is nothing to say with a null that leaving it out does not say.
    """
    properties = schema.get("properties", {})
    return {**schema, "properties": {name: _plain(argument) for name, argument in properties.items()}}


def _plain(argument: dict[str, Any]) -> dict[str, Any]:
    if argument.get("default", ...) is not None:
        return argument
    rest = {keyword: value for keyword, value in argument.items() if keyword not in ("anyOf", "default")}
    forms = [form for form in argument.get("anyOf", [{}]) if form != {"type": "null"}]
    return {**forms[0], **rest} if len(forms) == 1 else {"anyOf": forms, **rest}


def _strip(value: object, keywords: frozenset[str]) -> object:
    if isinstance(value, dict):
        return without_keywords(cast("dict[str, Any]", value), keywords)
    if isinstance(value, list):
        return [_strip(item, keywords) for item in cast("list[object]", value)]
    return value
