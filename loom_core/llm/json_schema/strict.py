"""Conversion of schemas to OpenAI's strict mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.references import ANNOTATION_KEYWORDS, resolve_reference
from loom_core.llm.json_schema.values import json_type

__all__ = ["to_strict_schema"]

_Json: TypeAlias = Mapping[str, Any]

_KEPT = (
    "title description enum const pattern multipleOf minimum maximum exclusiveMinimum exclusiveMaximum "
    "minItems maxItems".split()
)
_FORMATS = frozenset("date date-time duration email hostname ipv4 ipv6 time uuid".split())
_NULL = {"type": "null"}


def to_strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a schema to OpenAI's strict mode, or return None if the mode cannot express it.

    In strict mode objects have all of their properties and no others. An optional one may be null instead:
    `without_nulls` removes these from the response. Unknown keywords are left out, so the response has to be
    validated. Strict mode cannot express maps with arbitrary names, values of any type, tuples, and `allOf`.

    Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas

    Raises:
        InvalidInputError: the schema is nested too deeply.
    """
    try:
        return _StrictConverter(schema).convert()
    except _NotStrictError:
        return None
    except RecursionError:
        raise InvalidInputError("The schema is nested too deeply.", advice="Use a flatter one.") from None


class _NotStrictError(Exception):
    """Strict mode cannot express the schema."""


class _StrictConverter:
    """Converts one schema, with the definitions that its parts need."""

    def __init__(self, root: _Json) -> None:
        self._root = root
        self._names: dict[str, str] = {}  # of definitions, by reference
        self._definitions: dict[str, dict[str, Any]] = {}

    def convert(self) -> dict[str, Any]:
        root = self._root
        seen: set[str] = set()
        while isinstance(reference := root.get("$ref"), str):  # the root must not be a reference
            target = resolve_reference(self._root, reference)
            if (
                reference in seen
                or not isinstance(target, Mapping)
                or not root.keys() <= ANNOTATION_KEYWORDS | {"$ref"}
            ):
                raise _NotStrictError
            seen.add(reference)
            root = cast("_Json", target)
        if root.get("type") != "object":
            raise _NotStrictError
        result = self._part(root)
        return {**result, "$defs": self._definitions} if self._definitions else result

    def _part(self, schema: object) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            raise _NotStrictError
        part = cast("_Json", schema)
        described = {"description": part["description"]} if "description" in part else {}
        if "$ref" in part:
            self._only(part, "$ref")
            reference = {"$ref": f"#/$defs/{self._define(part['$ref'])}"}
            return {"anyOf": [reference], **described} if described else reference  # `$ref` has to be alone
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                self._only(part, keyword)
                return {"anyOf": [self._part(each) for each in part[keyword]], **described}
        if "allOf" in part:
            self._only(part, "allOf")
            if len(part["allOf"]) != 1:
                raise _NotStrictError
            return {**self._part(part["allOf"][0]), **described}
        return self._plain(part)

    def _only(self, part: _Json, keyword: str) -> None:
        if not part.keys() <= ANNOTATION_KEYWORDS | {keyword}:
            raise _NotStrictError

    def _plain(self, part: _Json) -> dict[str, Any]:
        types = _types(part)
        if not types:
            raise _NotStrictError
        result: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
        result |= {keyword: part[keyword] for keyword in _KEPT if keyword in part}
        if part.get("format") in _FORMATS:
            result["format"] = part["format"]
        if "object" in types:
            result |= self._object(part)
        if "array" in types:
            if "prefixItems" in part:
                raise _NotStrictError
            result["items"] = self._part(part.get("items"))
        return result

    def _object(self, part: _Json) -> dict[str, Any]:
        properties = cast("_Json", part.get("properties") or {})
        others = part.get("additionalProperties")
        required = cast("list[str]", part.get("required") or [])
        if (
            "patternProperties" in part
            or others not in ((None, False) if properties else (False,))
            or not properties.keys() >= set(required)
        ):
            raise _NotStrictError
        changed = {
            name: self._part(each) if name in required else _nullable(self._part(each))
            for name, each in properties.items()
        }
        return {"properties": changed, "required": [*changed], "additionalProperties": False}

    def _define(self, reference: object) -> str:
        if not isinstance(reference, str):
            raise _NotStrictError
        if reference not in self._names:
            base = reference.rpartition("/")[2].strip("#") or "whole"
            name, number = base, 1
            while name in self._definitions:
                number += 1
                name = f"{base}_{number}"
            self._names[reference] = name
            self._definitions[name] = {}  # reserves the name while its parts are converted
            self._definitions[name] = self._part(resolve_reference(self._root, reference))
        return self._names[reference]


def _types(part: _Json) -> list[str]:
    types = part.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list):
        return [*map(str, cast("list[object]", types))]
    values = part.get("enum", [part["const"]] if "const" in part else [])
    return list(dict.fromkeys(map(json_type, cast("list[object]", values))))


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    described = {"description": schema["description"]} if "description" in schema else {}
    if "anyOf" in schema:
        choices = cast("list[object]", schema["anyOf"])
        return schema if _NULL in choices else {**schema, "anyOf": [*choices, _NULL]}
    if "$ref" in schema or "enum" in schema or "const" in schema:
        rest = {keyword: value for keyword, value in schema.items() if keyword != "description"}
        return {"anyOf": [rest, _NULL], **described}
    types = _types(schema)
    return schema if "null" in types else {**schema, "type": [*types, "null"]}
