"""A schema in the part of JSON Schema that a vendor takes."""

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
    """A schema in the part of JSON Schema that a vendor takes; a copy in any case.

    Every value of the schema is one of the result, too. The other way round it holds for `inline`, unless
    something had to be cut off; for `gemini` the answer has to be checked (`values.problems`).

    Args:
        schema: a JSON Schema; what it refers to has to be in it.
        dialect: `full` takes everything. `inline` takes no `$ref`: what is referred to is put in its place; a
            form that contains itself is cut off where it begins again, by its type and a description.
            `gemini` takes that, and only the keywords of Gemini's own `Schema` type.
        most: after so many parts, references are cut off like those that contain themselves: a few lines can
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
    """A schema without references in the keywords of Gemini's own `Schema` type.

    What has to hold together (`allOf`) becomes one schema, a choice `anyOf` or `nullable`, a constant a list
    of one value; a list of values that are no texts is told in the description. Where there is no type, which
    Gemini does not take, any is offered; lists inside lists of anything are left out there.

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
    # Nothing may stand beside `anyOf`, so each choice is told all of it.
    return {"anyOf": [to_gemini_schema(_both(choice, rest)) for choice in some]}


def _mapping(schema: object) -> _Json:
    """The keywords of a schema: `true` and `false`, which are schemas too, have none."""
    return cast("_Json", schema) if isinstance(schema, Mapping) else {}


def _choices(schema: _Json) -> tuple[list[object] | None, dict[str, Any]]:
    """The forms that a schema leaves the choice of, or None, and what holds for all of them."""
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
    """One schema for values of both; where a keyword can be said only once, the first one's counts."""
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
    """A schema without choices."""
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
    """Values of any type, `about` having their title and description."""
    told = {keyword: about[keyword] for keyword in ("title", "description") if keyword in about}
    single = [{"type": type_, "nullable": True} for type_ in ("string", "number", "boolean", "object")]
    several = {"type": "array", "nullable": True, "items": {"anyOf": single}}
    return {"anyOf": [{**told, **choice} for choice in (*single, several)]}


def _items(schema: _Json) -> object:
    """One form for every place of a list."""
    places: Sequence[object] = schema.get("prefixItems") or ()
    if not places:
        return schema.get("items")
    closed = schema.get("items") is False or schema.get("maxItems", len(places) + 1) <= len(places)
    return {"anyOf": [*places]} if closed else {}


def _values(values: list[object], so_far: _Json) -> dict[str, Any]:
    """A closed list of values: only texts that are not empty can be one, others are told in words."""
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
