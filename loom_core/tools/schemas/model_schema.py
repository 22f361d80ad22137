"""JSON Schemas for models: without the noise of generators."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "inline_definitions",
    "outline",
    "terse",
    "with_keywords",
    "without_keywords",
    "without_nulls",
    "without_titles",
]

_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples", "example"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$defs"})
_DEFINITIONS = "#/$defs/"
_FEW_FIELDS = 6
_NULL: dict[str, Any] = {"type": "null"}


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Copy a schema without the `title` keywords that Pydantic derives from names.

    They repeat the property's name and cost about a sixth of a tool's definition. Properties named `title`,
    and defaults or examples with one, stay.
    """
    return without_keywords(schema, frozenset({"title"}))


def without_keywords(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    """Copy a schema without some keywords with texts or lists as values, at every depth.

    Properties of these names, and data such as defaults, stay.
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
    """Copy an object's schema, and add keywords that signatures lack, such as `allOf`, `if` or `$defs`.

    They replace the schema's own. `properties` and `$defs` are merged, so that one argument can be redefined
    and the others stay.
    """
    merged = {**schema, **keywords}
    for named in ("properties", "$defs"):
        if named in schema and named in keywords:
            merged[named] = {**schema[named], **keywords[named]}
    return merged


def without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Copy an object's schema, with optional properties not nullable.

    Pydantic turns an optional argument into a union with null and the default null. Many hosts and models
    understand a plain type only, and a null means the same as leaving the argument out. The schema's defined
    objects are changed, too.
    """
    clean = dict(schema)
    if "properties" in schema:
        clean["properties"] = {name: _plain(argument) for name, argument in schema["properties"].items()}
    if "$defs" in schema:
        clean["$defs"] = {name: without_nulls(each) for name, each in schema["$defs"].items()}
    return clean


def terse(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a schema without redundant keywords: empty defaults, and `additionalProperties: true`.

    Whole numbers become integers: 45 for 45.0.
    """
    short: dict[str, Any] = {}
    for keyword, value in schema.items():
        is_empty = (keyword == "default" and value in ("", None)) or (
            keyword == "additionalProperties" and value is True
        )
        if is_empty:
            continue
        if keyword in _NAMED and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            short[keyword] = {name: _terse(subschema) for name, subschema in named.items()}
        elif keyword in _DATA and isinstance(value, dict | list):
            short[keyword] = value
        else:
            short[keyword] = _terse(value)
    return short


def _terse(value: object) -> object:
    if isinstance(value, dict):
        return terse(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_terse(each) for each in cast("list[object]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def inline_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Copy a schema, and inline each definition that is used once.

    Some models do not follow references, and all pay for them. Definitions used more often stay.
    """
    while (name := _find_single_use(schema)) is not None:
        definitions: dict[str, Any] = dict(schema["$defs"])
        definition = definitions.pop(name)
        rest = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
        if definitions:
            rest["$defs"] = definitions
        schema = cast("dict[str, Any]", _replace_reference(rest, f"{_DEFINITIONS}{name}", definition))
    return schema


def _find_single_use(schema: Mapping[str, Any]) -> str | None:
    """Return the reference to a definition that is used once, and not recursively."""
    used = Counter(_references(schema))
    for name, definition in schema.get("$defs", {}).items():
        reference = f"{_DEFINITIONS}{name}"
        if used[reference] == 1 and reference not in _references(definition):
            return name
    return None


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        given = cast("dict[str, object]", value)
        own = [given["$ref"]] if isinstance(given.get("$ref"), str) else []
        return [*cast("list[str]", own), *(each for inner in given.values() for each in _references(inner))]
    if isinstance(value, list):
        return [each for inner in cast("list[object]", value) for each in _references(inner)]
    return []


def _replace_reference(value: object, reference: str, definition: Mapping[str, Any]) -> object:
    """Replace a reference by its definition, in a copy; keywords next to the reference override it."""
    if isinstance(value, list):
        return [_replace_reference(inner, reference, definition) for inner in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, object]", value)
    if given.get("$ref") == reference:
        return {**definition, **{keyword: inner for keyword, inner in given.items() if keyword != "$ref"}}
    return {keyword: _replace_reference(inner, reference, definition) for keyword, inner in given.items()}


def outline(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a short output schema: the types of its fields, and of those of small nested objects.

    Hosts that show output schemas to models pay for each word at every request, and a model reads the output
    itself. Descriptions and defaults are left out, and definitions are inlined. An object that is a field's
    value, or an item of one, keeps its fields if they are few; an object within it is only an object. A field
    with the default null is not nullable: outputs leave out defaults. Every value valid for the whole schema
    is valid for the outline.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    fields: dict[str, Any] = schema.get("properties", {})
    kept = {keyword: value for keyword, value in schema.items() if keyword not in _ANNOTATIONS}
    told = {name: _short(field, definitions, inside=False) for name, field in fields.items()}
    return kept | {"properties": told}


def _short(form: Mapping[str, Any], definitions: Mapping[str, Any], *, inside: bool) -> dict[str, Any]:
    """Return the outline of a field's schema; `inside` an object that is itself a field's value."""
    if "$ref" in form:
        return _short(definitions[form["$ref"].rpartition("/")[2]], definitions, inside=inside)
    short = {keyword: value for keyword, value in form.items() if keyword not in _ANNOTATIONS}
    if "anyOf" in short:
        is_left_out = form.get("default", ...) is None
        parts: list[Any] = [part for part in short.pop("anyOf") if part != _NULL or not is_left_out]
        told_parts = [_short(part, definitions, inside=inside) for part in parts]
        short |= told_parts[0] if len(told_parts) == 1 else {"anyOf": told_parts}
    if "properties" in short:
        fields: dict[str, Any] = short.pop("properties")
        short.pop("required", None)
        if len(fields) <= _FEW_FIELDS and not inside:
            told = {name: _short(field, definitions, inside=True) for name, field in fields.items()}
            short["properties"] = told
    if "items" in short:
        short["items"] = _short(short["items"], definitions, inside=inside)
    more = short.get("additionalProperties")
    if more is True:
        del short["additionalProperties"]
    elif isinstance(more, dict):
        short["additionalProperties"] = _short(cast("dict[str, Any]", more), definitions, inside=inside)
    return short


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
