"""JSON Schemas and values at random, for the tests of what vendors take of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["name", "kind", "子节点", "size", "a/b", "~x", "$ref", "items"])
TEXTS = st.text("ab甲", max_size=3)
DEFINED = ("Node", "Leaf")


@cache
def plain_schemas(*, exact: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of values without parts; `exact` ones say nothing that strict mode leaves out."""
    more: dict[str, Any] = {} if exact else {"minLength": st.integers(0, 2)}
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("string")}, optional={"title": TEXTS, **more}),
        st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": st.integers(-2, 2)}),
        st.sampled_from(
            [
                {"type": "boolean"},
                {"type": "null"},
                {"type": "number", "description": "数"},
                {"type": ["string", "null"]},
                {"type": ["integer", "string"]},
                {"enum": ["a", "ab"]},
                {"enum": ["a", None], "description": "one of few"},
                {"enum": [1, 2], "type": "integer"},
                {"const": "甲"},
                {"const": True},
            ]
        ),
    )


@cache
def schemas(*, exact: bool, closed: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Object schemas with definitions, which may contain themselves.

    Args:
        exact: say nothing that strict mode leaves out.
        closed: all objects forbid further properties.
    """
    references = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in DEFINED])

    def objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        def built(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
            schema: dict[str, Any] = {
                "type": "object",
                "properties": properties,
                "required": sorted(required & properties.keys()),
            }
            return {**schema, "additionalProperties": False} if closed else schema

        return st.builds(
            built, st.dictionaries(NAMES, parts, min_size=1, max_size=3), st.sets(NAMES, max_size=3)
        )

    def wider(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        kinds = [
            objects(parts),
            st.fixed_dictionaries(
                {"type": st.just("array"), "items": parts}, optional={"maxItems": st.integers(0, 3)}
            ),
            st.builds(lambda some: {"anyOf": some}, st.lists(parts, min_size=1, max_size=3)),
        ]
        if not exact:
            kinds += [
                st.builds(lambda some: {"oneOf": some}, st.lists(parts, min_size=1, max_size=2)),
                st.builds(lambda some: {"allOf": some}, st.lists(parts, min_size=1, max_size=2)),
                st.builds(
                    lambda some: {"type": "array", "prefixItems": some},
                    st.lists(parts, min_size=1, max_size=2),
                ),
                st.builds(lambda part: {"type": "object", "additionalProperties": part}, parts),
                st.builds(lambda part: {"not": part, "type": "string"}, parts),
            ]
        return st.one_of(kinds)

    part = st.recursive(st.one_of(plain_schemas(exact=exact), references), wider, max_leaves=5)
    defined = st.fixed_dictionaries({name: objects(part) for name in DEFINED})
    return st.builds(lambda root, defs: {**root, "$defs": defs}, objects(part), defined)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[object]:
    """Values that are much like those of a schema: some are, some just miss it."""
    return _values(schema, schema, 0)


def _values(part: object, schema: dict[str, Any], depth: int) -> st.SearchStrategy[object]:
    if not isinstance(part, dict) or depth > 3:
        return st.sampled_from([None, "a", 1, {}, []])
    if "$ref" in part:
        return _values(schema["$defs"][part["$ref"].rpartition("/")[2]], schema, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in part:
            return st.one_of([_values(each, schema, depth + 1) for each in part[keyword]])
    if "enum" in part or "const" in part:
        return st.sampled_from([*part.get("enum", []), part.get("const")])
    types = part["type"] if isinstance(part["type"], list) else [part["type"]]
    return st.one_of([_values_of_type(part, type_, schema, depth) for type_ in types])


def _values_of_type(
    part: dict[str, Any], type_: str, schema: dict[str, Any], depth: int
) -> st.SearchStrategy[object]:
    match type_:
        case "object":
            named = {
                name: _values(each, schema, depth + 1) for name, each in part.get("properties", {}).items()
            }
            needed = {name: each for name, each in named.items() if name in part.get("required", ())}
            others = {name: each for name, each in named.items() if name not in needed}
            return st.fixed_dictionaries(needed, optional=others)
        case "array":
            items = part.get("items", part.get("prefixItems"))
            return st.lists(_values(items, schema, depth + 1), max_size=2)
        case "string":
            return TEXTS
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case _:
            return st.integers(-3, 3)
