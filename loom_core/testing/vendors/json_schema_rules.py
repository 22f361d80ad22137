"""What vendors take of JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from loom_core.testing.vendors.json_fields import Json
from loom_core.testing.vendors.refusal import Refused

__all__ = ["check_anthropic_output", "check_gemini", "check_inline", "check_openai_strict", "subschemas"]

_GEMINI_WORDS = frozenset(
    """
    type format title description nullable enum items minItems maxItems properties required propertyOrdering
    anyOf minProperties maxProperties minLength maxLength pattern example default minimum maximum
    """.split()
)
_GEMINI_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_ANTHROPIC_BOUNDS = frozenset(
    """
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems uniqueItems
    """.split()
)
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SINGLES = ("items", "additionalProperties", "not")


def subschemas(schema: Json | bool) -> Iterator[Json]:
    """A schema and all that stand in it, also `true` and `false`; names of properties are no keywords."""
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    yield schema
    for name in _LISTS:
        for inner in cast("list[Json]", schema.get(name) or []):
            yield from subschemas(inner)
    for name in _MAPS:
        for inner in cast("dict[str, Json]", schema.get(name) or {}).values():
            yield from subschemas(inner)
    for name in _SINGLES:
        if isinstance(inner := schema.get(name), Mapping):
            yield from subschemas(cast("Json", inner))


def check_inline(schema: Json) -> None:
    """Refuse references: the vendor does not follow them."""
    for inner in subschemas(schema):
        for word in ("$ref", "$defs", "definitions"):
            if word in inner:
                raise Refused(f"The schema must be written out: {word} is not supported.", param=word)


def check_gemini(schema: Json) -> None:
    """Refuse what is not in Gemini's part of JSON Schema (the message `Schema` of its interface)."""
    for inner in subschemas(schema):
        for word in inner:
            if word not in _GEMINI_WORDS:
                raise Refused(f'Invalid JSON payload received. Unknown name "{word}": Cannot find field.')
        kind = inner.get("type")
        if kind is None and "anyOf" not in inner:
            raise Refused("schema didn't specify the schema type field.")
        if kind is not None and (not isinstance(kind, str) or kind.lower() not in _GEMINI_TYPES):
            raise Refused(f"Invalid value at 'type': {kind!r}.")
        if any(not isinstance(value, str) for value in cast("list[object]", inner.get("enum") or [])):
            raise Refused("Invalid value at 'enum[0]' (TYPE_STRING).")
        if kind == "array" and "items" not in inner:
            raise Refused("items: missing field.")
        for name in cast("list[str]", inner.get("required") or []):
            if name not in (inner.get("properties") or {}):
                raise Refused(f"required[0]: property is not defined: {name}")


def check_anthropic_output(schema: Json) -> None:
    """Refuse what Anthropic does not take of the schema of an answer."""
    for inner in subschemas(schema):
        if inner.get("type") == "object" and inner.get("additionalProperties") is not False:
            raise Refused(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly "
                "set to false"
            )
        for word in inner:
            if word in _ANTHROPIC_BOUNDS:
                raise Refused(
                    f"output_config.format.schema: For {inner.get('type')!r} type, property {word!r} is not "
                    "supported"
                )
        if inner.get("minItems", 0) not in {0, 1}:
            raise Refused(
                "output_config.format.schema: 'minItems' values other than 0 or 1 are not supported"
            )


def check_openai_strict(schema: Json, *, where: str) -> None:
    """Refuse what OpenAI does not take of a schema that is marked `strict`.

    Args:
        schema: the schema.
        where: whose it is: `function 'NAME'`, or `response_format 'NAME'`.
    """
    for inner in subschemas(schema):
        if inner.get("type") != "object":
            continue
        if inner.get("additionalProperties") is not False:
            raise _not_strict(where, "'additionalProperties' is required to be supplied and to be false.")
        if set(inner.get("required") or ()) != set(inner.get("properties") or ()):
            raise _not_strict(
                where,
                "'required' is required to be supplied and to be an array including every key in properties.",
            )


def _not_strict(where: str, why: str) -> Refused:
    of_tool = where.startswith("function")
    return Refused(
        f"Invalid schema for {where}: {why}",
        code="invalid_function_parameters" if of_tool else "",
        param="tools[0].function.parameters" if of_tool else "response_format",
    )
