from __future__ import annotations

import copy
from datetime import datetime
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.dialects import adapt_schema
from loom_core.llm.json_schema.values import find_problems
from tests.fixtures.vendors.json_schema_rules import check_gemini, check_inline
from tests.unit.llm.json_schema.schemas import schemas, values_of


class Node(BaseModel):
    """一个节点。"""

    name: str = Field(description="名称", min_length=1)
    kind: Literal["place", "person"] | None = None
    seen: datetime | None = None
    children: list[Node] = []
    size: int | str = 3


class Tree(BaseModel):
    root: Node = Field(description="where it begins")
    pair: tuple[int, str] | None = None


def _anything(description: str = "") -> dict[str, Any]:
    """Values of any type in Gemini's words, which has no word for that."""
    told = {"description": description} if description else {}
    single = [{"type": type_, "nullable": True} for type_ in ("string", "number", "boolean", "object")]
    several = {"type": "array", "nullable": True, "items": {"anyOf": single}}
    return {"anyOf": [{**told, **choice} for choice in (*single, several)]}


def _keywords(schema: object) -> set[str]:
    """Every keyword that is used anywhere in a schema that has no data in it but `enum`."""
    if isinstance(schema, list):
        return set[str]().union(*map(_keywords, schema))
    if not isinstance(schema, dict):
        return set()
    below = [
        _keywords([*part.values()] if keyword == "properties" else part)
        for keyword, part in schema.items()
        if keyword != "enum"
    ]
    return schema.keys() | set[str]().union(*below)


def _with_null(schema: object) -> Any:
    """A schema of Gemini in which `nullable` is said as JSON Schema says it."""
    if not isinstance(schema, dict):
        return [_with_null(each) for each in schema] if isinstance(schema, list) else schema
    result = {
        keyword: {name: _with_null(each) for name, each in part.items()}
        if keyword == "properties"
        else part
        if keyword == "enum"
        else _with_null(part)
        for keyword, part in schema.items()
    }
    return {"anyOf": [result, {"type": "null"}]} if result.pop("nullable", False) else result


def test_full_is_a_copy_that_shares_nothing():
    schema = Tree.model_json_schema()
    copied = adapt_schema(schema, "full")
    assert copied == schema
    copied["properties"]["root"]["description"] = "changed"
    assert schema["properties"]["root"]["description"] == "where it begins"


def test_inline_puts_what_is_referred_to_in_its_place():
    inlined = adapt_schema(Tree.model_json_schema(), "inline")
    root = inlined["properties"]["root"]
    assert not {"$ref", "$defs"} & _keywords(inlined)
    assert root["description"] == "where it begins"
    assert root["properties"]["name"]["description"] == "名称"
    assert find_problems({"root": {"name": "江西"}}, inlined) == []
    assert find_problems({"root": {}}, inlined) == ["root: 'name' is a required property"]


def test_a_form_that_contains_itself_is_cut_off_where_it_begins_again():
    inlined = adapt_schema(Tree.model_json_schema(), "inline")
    assert inlined["properties"]["root"]["properties"]["children"]["items"] == {
        "type": "object",
        "description": "Of the same form as Node above.",
    }
    whole = adapt_schema({"type": "object", "properties": {"again": {"$ref": "#"}}}, "inline")
    assert whole["properties"]["again"] == {
        "type": "object",
        "properties": {"again": {"type": "object", "description": "Of the same form as the whole."}},
    }


def test_a_reference_with_constraints_next_to_it_keeps_both():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/Text", "minLength": 2}},
        "definitions": {"Text": {"type": "string", "maxLength": 3}},
    }
    inlined = adapt_schema(schema, "inline")
    assert [bool(find_problems({"a": text}, inlined)) for text in ("x", "xy", "wxyz")] == [True, False, True]


@pytest.mark.parametrize(
    "reference", ["https://example.com/schema.json", "#/$defs/Missing", "#name", "#/$defs/0/x", 7]
)
def test_what_refers_to_something_that_is_not_there_says_nothing(reference: object):
    schema = {"type": "object", "properties": {"a": {"$ref": reference, "title": "A"}}, "$defs": {}}
    assert adapt_schema(schema, "inline")["properties"] == {"a": {"title": "A"}}


def test_references_go_into_lists_and_through_escaped_names():
    schema = {
        "type": "object",
        "properties": {
            "first": {"$ref": "#/properties/pair/prefixItems/0"},
            "pair": {"prefixItems": [{"type": "integer"}]},
            "odd": {"$ref": "#/$defs/a~1b%20~0"},
        },
        "$defs": {"a/b ~": {"type": "boolean"}},
    }
    inlined = adapt_schema(schema, "inline")["properties"]
    assert (inlined["first"], inlined["odd"]) == ({"type": "integer"}, {"type": "boolean"})


def test_properties_may_be_called_like_keywords():
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "properties": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "null"}},
        "default": {"$ref": "#/data"},
    }
    inlined = adapt_schema(schema, "inline")
    assert inlined["properties"] == {"$ref": {"type": "string"}, "properties": {"type": "null"}}
    assert inlined["default"] == {"$ref": "#/data"}


def test_definitions_that_multiply_are_cut_off():
    definitions: dict[str, Any] = {
        f"D{level}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/D{level + 1}"} for name in "abcdefgh"},
        }
        for level in range(12)
    }
    inlined = adapt_schema(
        {"type": "object", "properties": {"all": {"$ref": "#/$defs/D0"}}, "$defs": definitions},
        "inline",
        most=300,
    )
    assert len(str(inlined)) < 500_000


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize("dialect", ["full", "inline", "gemini"])
def test_a_schema_that_is_nested_too_deeply_is_refused(dialect: Any):
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        adapt_schema(schema, dialect)


def test_gemini_has_its_own_words():
    gemini = adapt_schema(Tree.model_json_schema(), "gemini")
    node = gemini["properties"]["root"]["properties"]
    assert node["kind"] == {
        "type": "string", "title": "Kind", "nullable": True, "enum": ["place", "person"],
    }  # fmt: skip
    assert node["seen"] == {"type": "string", "title": "Seen", "nullable": True, "format": "date-time"}
    assert node["size"] == {
        "anyOf": [{"type": "integer", "title": "Size"}, {"type": "string", "title": "Size"}]
    }
    assert gemini["properties"]["pair"] == {
        "type": "array", "title": "Pair", "nullable": True, "minItems": 2, "maxItems": 2,
        "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    }  # fmt: skip
    assert _keywords(gemini) <= {
        "anyOf", "description", "enum", "format", "items", "maxItems", "minItems", "nullable", "properties",
        "required", "title", "type",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"const": 3, "description": "级"}, {"type": "number", "description": "级 One of: 3."}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"enum": ["", "a"]}, {"type": "string", "description": 'One of: "", "a".'}),
        ({"enum": [None], "title": "N"}, {"type": "null", "title": "N"}),
        ({"enum": [True, [1], {"a": 2}]}, _anything('One of: true, [1], {"a": 2}.')),
        ({"enum": [[1]]}, {"type": "array", "description": "One of: [1].", "items": _anything()}),
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": "null"}, {"type": "null"}),
        ({"type": ["null"]}, {"nullable": True, "type": "null"}),
        ({"anyOf": [{"type": "string"}, {"const": None}]}, {"type": "string", "nullable": True}),
        ({"oneOf": [True, {"type": "null"}]}, _anything()),
        ({"type": "array", "prefixItems": [{"type": "null"}]}, {"type": "array", "items": _anything()}),
        ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"properties": {"a": True}, "required": ["a", "b"]},
         {"type": "object", "properties": {"a": _anything()}, "required": ["a"]}),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
                       {"properties": {"a": {"title": "A"}, "b": False}, "required": ["b"]}]},
            {"type": "object", "properties": {"a": {"type": "string", "title": "A"}, "b": _anything()},
             "required": ["a", "b"]},
        ),
        (
            {"type": "array", "allOf": [{"items": {"title": "I"}}, {"allOf": [{"items": {"type": "null"}}]}]},
            {"type": "array", "items": {"type": "null", "title": "I"}},
        ),
        ({"allOf": [{"allOf": [{"type": "array"}]}, {"allOf": [{"minItems": 1}]}]},
         {"type": "array", "minItems": 1, "items": _anything()}),
    ],
)  # fmt: skip
def test_gemini_is_told_the_same_in_other_words(schema: dict[str, Any], expected: dict[str, Any]):
    assert adapt_schema(schema, "gemini") == expected


@pytest.mark.slow
@settings(max_examples=30)
@given(data=st.data())
def test_what_a_schema_allows_every_dialect_of_it_allows(data: st.DataObject):
    schema = data.draw(schemas(exact=False, closed=False))
    value = data.draw(values_of(schema))
    before = copy.deepcopy(schema)
    inlined, gemini = adapt_schema(schema, "inline"), adapt_schema(schema, "gemini")
    assert schema == before
    check_inline(inlined)
    check_gemini(gemini)
    if not find_problems(value, schema):
        assert find_problems(value, inlined) == []
        assert find_problems(value, _with_null(gemini)) == []


@settings(max_examples=30)
@given(data=st.data())
def test_inline_allows_nothing_else_where_nothing_contains_itself(data: st.DataObject):
    schema = data.draw(schemas(exact=False, closed=False))
    value = data.draw(values_of(schema))
    inlined = adapt_schema(schema, "inline")
    if "Of the same form as" not in str(inlined):
        assert bool(find_problems(value, inlined)) == bool(find_problems(value, schema))
