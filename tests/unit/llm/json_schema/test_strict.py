from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.strict import to_strict_schema
from loom_core.llm.json_schema.values import find_problems, without_nulls
from tests.fixtures.vendors.json_schema_rules import check_openai_strict
from tests.unit.llm.json_schema.schemas import schemas, values_of


class Node(BaseModel):
    name: str = Field(description="名称", pattern="^.+$", max_length=40)
    parent: Node | None = None
    children: list[Node] = Field(default=[], description="inside")
    weight: float = Field(default=1.0, ge=0)


_NODE = {
    "type": "object",
    "title": "Node",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "名称", "pattern": "^.+$"},
        "parent": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "children": {
            "type": ["array", "null"], "title": "Children", "description": "inside",
            "items": {"$ref": "#/$defs/Node"},
        },
        "weight": {"type": ["number", "null"], "title": "Weight", "minimum": 0},
    },
    "required": ["name", "parent", "children", "weight"],
    "additionalProperties": False,
}  # fmt: skip


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def test_a_model_that_contains_itself_becomes_strict():
    assert to_strict_schema(Node.model_json_schema()) == {**_NODE, "$defs": {"Node": _NODE}}


def test_keywords_next_to_a_reference_go_around_it():
    schema = {**_object(a={"$ref": "#/$defs/T", "description": "起点"}), "$defs": {"T": {"type": "string"}}}
    result = to_strict_schema(schema)
    assert result is not None
    assert result["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/T"}], "description": "起点"}
    assert result["$defs"] == {"T": {"type": "string"}}


def test_definitions_of_the_same_name_are_kept_apart():
    schema = {
        **_object(a={"$ref": "#/$defs/T"}, b={"$ref": "#/definitions/T"}, c={"$ref": "#"}),
        "$defs": {"T": {"type": "string"}},
        "definitions": {"T": {"type": "integer"}},
    }
    result = to_strict_schema(schema)
    assert result is not None
    assert [result["properties"][name]["$ref"] for name in "abc"] == [
        "#/$defs/T", "#/$defs/T_2", "#/$defs/whole",
    ]  # fmt: skip
    assert result["$defs"]["T_2"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"const": 1}, {"type": "number", "const": 1}),
        ({"enum": [True, None]}, {"type": ["boolean", "null"], "enum": [True, None]}),
        ({"type": "string", "format": "date", "minLength": 3}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "regex"}, {"type": "string"}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}]}),
        ({"type": "object", "additionalProperties": False},
         {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
    ],
)  # fmt: skip
def test_parts_are_said_as_strict_mode_says_them(part: dict[str, Any], expected: dict[str, Any]):
    result = to_strict_schema(_object(part=part))
    assert result is not None
    assert result["properties"]["part"] == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"enum": ["a"], "description": "d"},
         {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}], "description": "d"}),
        ({"anyOf": [{"const": 1}, {"type": "null"}]},
         {"anyOf": [{"type": "number", "const": 1}, {"type": "null"}]}),
        ({"type": ["integer", "null"]}, {"type": ["integer", "null"]}),
    ],
)  # fmt: skip
def test_what_is_optional_may_be_null(part: dict[str, Any], expected: dict[str, Any]):
    result = to_strict_schema({"type": "object", "properties": {"part": part}})
    assert result is not None
    assert result["properties"]["part"] == expected
    assert result["required"] == ["part"]


@pytest.mark.parametrize(
    "part",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {}, "patternProperties": {"x": {}}, "additionalProperties": False},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"allOf": [{"type": "string"}, {"title": "T"}]},
        {"anyOf": [{"type": "string"}], "minLength": 3},
        {"enum": [[1]]},
        {"$ref": "#/$defs/Missing"},
        {"$ref": 7},
        {"$ref": "#", "minProperties": 1},
    ],
)
def test_what_strict_mode_cannot_say_is_not_strict(part: Any):
    assert to_strict_schema(_object(part=part)) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [_object(a={"type": "string"})]},
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "required": ["x"], "$defs": {"A": _object(a={"type": "string"})}},
    ],
)
def test_the_whole_has_to_be_an_object(schema: dict[str, Any]):
    assert to_strict_schema(schema) is None


@pytest.mark.hostile("JSON and schemas")
def test_a_schema_that_is_nested_too_deeply_is_refused():
    part: dict[str, Any] = {"type": "string"}
    for _ in range(20_000):
        part = {"type": "array", "items": part}
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        to_strict_schema(_object(part=part))


@pytest.mark.slow
@settings(max_examples=30)
@given(data=st.data())
def test_what_strict_mode_allows_is_without_nulls_what_was_meant(data: st.DataObject):
    schema = data.draw(schemas(exact=True, closed=True))
    result = to_strict_schema(schema)
    assert result is not None
    value = data.draw(values_of(result))
    if not find_problems(value, result):
        assert find_problems(without_nulls(value, schema), schema) == []


@settings(max_examples=30)
@given(data=st.data())
def test_strict_schemas_keep_to_the_rules_of_the_mode(data: st.DataObject):
    schema = data.draw(schemas(exact=False, closed=False))
    result = to_strict_schema(schema)

    def check(part: dict[str, Any]) -> None:
        if "$ref" in part:
            assert part.keys() == {"$ref"}
            assert part["$ref"].removeprefix("#/$defs/") in result["$defs"]
            return
        if "properties" in part:
            assert part["required"] == [*part["properties"]]
            assert part["additionalProperties"] is False
        assert not part.keys() & {"allOf", "default", "minLength", "not", "oneOf", "prefixItems"}
        assert "anyOf" in part or "type" in part
        for each in (*part.get("anyOf", ()), *part.get("properties", {}).values()):
            check(each)
        if "items" in part:
            check(part["items"])

    if result is not None:
        check_openai_strict(result, where="response_format")
        check(result)
        for definition in result.get("$defs", {}).values():
            check(definition)
