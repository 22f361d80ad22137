"""The schema of an answer, as the API takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from loom_core.llm.json_schema.dialects import adapted
from loom_core.llm.json_schema.strict import strict

__all__ = ["output_schema"]

_Json: TypeAlias = Mapping[str, Any]

_KEPT = frozenset({"type", "title", "description", "enum", "const", "required", "default"})
_FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())


def output_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """A schema with the keywords that the API knows, or None where they cannot say it.

    Limits of numbers, texts and lists are left out, so the answer has to be checked for them. Forms that
    contain themselves are cut off. Optional fields stay optional. The API cannot say maps with names of any
    kind, and values of any kind.

    Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations

    Raises:
        InvalidInputError: the schema is nested too deeply.
    """
    if strict(schema) is None:  # what one vendor's strict mode cannot say, the other's cannot either
        return None
    return _part(adapted(schema, "inline"))


def _part(schema: _Json) -> dict[str, Any]:
    part = {keyword: value for keyword, value in schema.items() if keyword in _KEPT}
    if schema.get("format") in _FORMATS:
        part["format"] = schema["format"]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            part["anyOf"] = _parts(schema[keyword])
    if "allOf" in schema:
        part["allOf"] = _parts(schema["allOf"])
    if "items" in schema:
        part["items"] = _part(schema["items"])
        if schema.get("minItems") in {0, 1}:
            part["minItems"] = schema["minItems"]
    if "object" in _types(schema):
        properties = cast("Mapping[str, _Json]", schema.get("properties") or {})
        part["properties"] = {name: _part(each) for name, each in properties.items()}
        part["additionalProperties"] = False
    return part


def _parts(schemas: Sequence[_Json]) -> list[dict[str, Any]]:
    return [_part(each) for each in schemas]


def _types(schema: _Json) -> Sequence[str]:
    types: str | Sequence[str] = schema.get("type", ())
    return (types,) if isinstance(types, str) else types
