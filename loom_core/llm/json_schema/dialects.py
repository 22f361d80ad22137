"""Conversion of schemas to the vendors' dialects of JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.references import inline_references
from loom_core.llm.json_schema.values import json_type

if TYPE_CHECKING:
    from loom_core.llm.vendors import SchemaDialect

__all__ = ["adapt_schema", "to_gemini_schema"]


def adapt_schema(schema: Mapping[str, Any], dialect: SchemaDialect, *, most: int = 5000) -> dict[str, Any]:
    """Convert a schema to a vendor's dialect; always return a copy.

    Every value of the schema is valid for the result, too. The reverse holds for `inline`, unless something
    had to be cut off; for `gemini` the response has to be validated (`values.find_problems`).

    Args:
        schema: a JSON Schema; its references have to be local.
        dialect: `full` keeps everything. `inline` has no `$ref`: targets are inlined; a recursive schema is
            cut off where it repeats, and becomes its type and a description. `gemini` is `inline` with only
            the keywords of Gemini's `Schema` type.
        most: maximum number of parts; further references are cut off like recursive ones: a few lines can
            refer to each other millions of times.

    Raises:
        InvalidInputError: the schema is nested too deeply.
    """
    try:
        if dialect == "full":
            return json.loads(json.dumps(schema))
        whole = inline_references(schema, most=most)
        return to_gemini_schema(whole) if dialect == "gemini" else whole
    except RecursionError:
        raise InvalidInputError("The schema is nested too deeply.", advice="Use a flatter one.") from None


_Json: TypeAlias = Mapping[str, Any]

_KEPT = ("title", "description", "nullable", "minItems", "maxItems", "minimum", "maximum")
_FORMATS = {"string": {"date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}


def to_gemini_schema(schema: object) -> dict[str, Any]:
    """Convert a schema without references to the keywords of Gemini's `Schema` type.

    `allOf` becomes one schema, a choice `anyOf` or `nullable`, a constant an enum of one value; an enum of
    values other than texts moves into the description. A missing type, which Gemini refuses, becomes any
    type; nested lists of anything are left out there.

    Source: https://ai.google.dev/api/caching#Schema
    """
    flat = _mapping(schema)
    while branches := flat.get("allOf"):
        first, *others = cast("list[object]", branches)
        rest = {keyword: value for keyword, value in flat.items() if keyword != "allOf"}
        flat = _both({**rest, "allOf": others} if others else rest, first)
    choices, rest = _choices(flat)
    if choices is None:
        return _plain(flat)
    some = [_mapping(choice) for choice in choices if not _is_null(choice)]
    if len(some) < len(choices):
        rest["nullable"] = True
    if not some:
        return _plain({**rest, "type": "null"})
    if len(some) == 1:
        return to_gemini_schema(_both(some[0], rest))
    # No keyword may be next to `anyOf`, so each choice gets all of them.
    return {"anyOf": [to_gemini_schema(_both(choice, rest)) for choice in some]}


def _mapping(schema: object) -> _Json:
    """Return the keywords of a schema: the schemas `true` and `false` have none."""
    return cast("_Json", schema) if isinstance(schema, Mapping) else {}


def _choices(schema: _Json) -> tuple[list[object] | None, dict[str, Any]]:
    """Return the alternatives of a schema, or None, and the keywords common to all of them."""
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list) and choices:
            return cast("list[object]", choices), {k: v for k, v in schema.items() if k != keyword}
    if isinstance(types := schema.get("type"), list):
        rest = {keyword: value for keyword, value in schema.items() if keyword != "type"}
        return [{"type": type_} for type_ in cast("list[object]", types)], rest
    return None, {}


def _is_null(schema: object) -> bool:
    part = _mapping(schema)
    return part.get("type") == "null" or part.get("enum") == [None] or part.get("const", ...) is None


def _both(schema: _Json, other: object) -> dict[str, Any]:
    """Intersect two schemas; if a keyword cannot be combined, the first one's counts."""
    second = _mapping(other)
    result = {**second, **schema}
    for name in ("properties", "items"):
        ours, theirs = schema.get(name), second.get(name)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            merged = _both_by_name if name == "properties" else _both
            result[name] = merged(cast("_Json", ours), cast("_Json", theirs))
    if "required" in schema and "required" in second:
        result["required"] = list(dict.fromkeys([*schema["required"], *second["required"]]))
    if "allOf" in schema and "allOf" in second:
        result["allOf"] = [*schema["allOf"], *second["allOf"]]
    return result


def _both_by_name(schemas: _Json, others: _Json) -> dict[str, Any]:
    both = {name: _both(_mapping(schemas[name]), others[name]) for name in schemas.keys() & others.keys()}
    return {**others, **schemas, **both}


def _plain(schema: _Json) -> dict[str, Any]:
    """Convert a schema without alternatives."""
    result: dict[str, Any] = {"type": schema["type"]} if "type" in schema else {}
    result |= {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    if isinstance(values := [schema["const"]] if "const" in schema else schema.get("enum"), list):
        result |= _values(cast("list[object]", values), result)
    if schema.get("format") in _FORMATS.get(str(result.get("type")), ()):
        result["format"] = schema["format"]
    if isinstance(properties := schema.get("properties"), Mapping):
        named = cast("_Json", properties)
        result["properties"] = {name: to_gemini_schema(part) for name, part in named.items()}
        result.setdefault("type", "object")
        if required := [name for name in schema.get("required", ()) if name in named]:
            result["required"] = required
    if result.get("type") == "array" or "items" in schema:
        result["items"] = to_gemini_schema(_items(schema))
        result.setdefault("type", "array")
    return result if "type" in result else _anything(result)


def _anything(about: _Json) -> dict[str, Any]:
    """Return a schema for values of any type; `about` has title and description."""
    told = {keyword: about[keyword] for keyword in ("title", "description") if keyword in about}
    single = [{"type": type_, "nullable": True} for type_ in ("string", "number", "boolean", "object")]
    several = {"type": "array", "nullable": True, "items": {"anyOf": single}}
    return {"anyOf": [{**told, **choice} for choice in (*single, several)]}


def _items(schema: _Json) -> object:
    """Return one schema for all items of a list."""
    places: Sequence[object] = schema.get("prefixItems") or ()
    if not places:
        return schema.get("items")
    closed = schema.get("items") is False or schema.get("maxItems", len(places) + 1) <= len(places)
    return {"anyOf": [*places]} if closed else {}


def _values(values: list[object], so_far: _Json) -> dict[str, Any]:
    """Convert an enum: only non-empty texts stay, other values go into the description."""
    some = [value for value in values if value is not None]
    if not some:
        return {"type": "null"}
    nullable: dict[str, Any] = {"nullable": True} if len(some) < len(values) else {}
    if all(isinstance(value, str) and value for value in some):
        return {**nullable, "type": "string", "enum": some}
    listed = ", ".join(json.dumps(value, ensure_ascii=False) for value in some)
    told = f"{so_far.get('description', '')} One of: {listed}.".strip()
    types = {json_type(value) for value in some}
    type_ = so_far.get("type") or (types.pop() if len(types) == 1 else "")
    return {**nullable, **({"type": type_} if type_ else {}), "description": told}
