"""Values that fit a JSON Schema: what a model that has nothing to say answers."""

from __future__ import annotations

from typing import Any, cast

from loom_core.testing.vendors.json_fields import Json

__all__ = ["example_value"]


def example_value(schema: Json, text: str, *, root: Json | None = None, depth: int = 0) -> object:
    """The plainest value that fits; texts are `text` where any will do.

    Optional properties are left out, and so is what lies deeper than ten levels.
    """
    root = schema if root is None else root

    def inside(inner: Json | bool) -> object:
        return text if isinstance(inner, bool) else example_value(inner, text, root=root, depth=depth + 1)

    if isinstance(reference := schema.get("$ref"), str):
        found: Any = root
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        return inside(cast("Json", found))
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return inside(schema[word][0])
    match _type_of(schema):
        case "object":
            properties = cast("dict[str, Json]", schema.get("properties") or {})
            wanted = cast("list[str]", schema.get("required") or []) if depth < 10 else []
            return {name: inside(properties.get(name, {})) for name in wanted}
        case "array":
            return [inside(schema.get("items") or {})] * schema.get("minItems", 1 if depth < 10 else 0)
        case _:
            return _plain_value(schema, text)


def _type_of(schema: Json) -> str:
    kind: Any = schema.get("type", "object" if "properties" in schema else "string")
    return cast("list[str]", kind)[0] if isinstance(kind, list) else kind


def _plain_value(schema: Json, text: str) -> object:
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    match _type_of(schema):
        case "integer" | "number":
            return schema["maximum"] if "maximum" in schema else max(schema.get("minimum", 1), 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return text[: schema.get("maxLength", len(text))]
