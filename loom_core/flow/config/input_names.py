"""Which inputs a JSON Schema names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["input_names"]

_PARTS = ("allOf", "anyOf", "oneOf")
_MOST = 1000


def input_names(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Names of properties, also of the parts that the schema is made of; None if any name will do.

    Args:
        schema: of an object.
    """
    names = set[str]()
    waiting: list[object] = [schema]
    for _ in range(_MOST):
        if not waiting:
            return frozenset(names)
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        keywords = cast("Mapping[str, Any]", part)
        if keywords.get("patternProperties") or keywords.get("additionalProperties", False) is not False:
            return None
        names |= set(_mapping(keywords.get("properties")))
        for keyword in _PARTS:
            each = keywords.get(keyword)
            waiting += cast("list[object]", each) if isinstance(each, list) else []
        waiting += [keywords.get(keyword) for keyword in ("if", "then", "else")]
        if "$ref" in keywords:
            waiting.append(_referred(schema, keywords["$ref"]))
    return None


def _referred(schema: Mapping[str, Any], reference: object) -> object:
    """What `#/$defs/…` stands for."""
    value: object = schema
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return {"additionalProperties": True}  # nothing is known of it
    for step in reference[2:].split("/"):
        value = _mapping(value).get(step.replace("~1", "/").replace("~0", "~"))
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
