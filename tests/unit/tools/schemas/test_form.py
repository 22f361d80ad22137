from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from loom_core.tools.schemas.form import DEEPEST, schema_problem

_GOOD: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "object", "properties": {"路径": {"type": ["string", "null"], "minLength": 1.0}}},
    {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}}}},
    {"properties": {"a": True, "b": {"items": False}, "type": {"type": "string"}}},
    {"allOf": [{"required": ["a"]}], "if": {"not": {}}, "then": True},
    {"properties": {"a": {"enum": [1, "x", None, {"type": "nonsense"}], "default": {"items": 3}}}},
    {"patternProperties": {"^x-": {"multipleOf": 0.5}}, "dependentRequired": {"a": ["b"]}},
]
_BAD: list[dict[str, Any]] = [
    {"properties": {"a": {"type": "text"}}},
    {"properties": {"a": "string"}},
    {"properties": ["a"]},
    {"required": True},
    {"required": [1]},
    {"properties": {"a": {"minLength": -1}}},
    {"properties": {"a": {"minimum": "1"}}},
    {"properties": {"a": {"multipleOf": 0}}},
    {"properties": {"a": {"items": {"anyOf": {}}}}},
    {"anyOf": []},
    {"properties": {"a": {"not": {"enum": 5}}}},
    {"properties": {"a": {"pattern": 5}}},
    {"dependentRequired": {"a": "b"}},
    {"additionalProperties": "no"},
]


@pytest.mark.parametrize("schema", _GOOD)
def test_a_right_schema_is_taken(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)

    assert schema_problem(schema) == ""


@pytest.mark.parametrize("schema", _BAD)
def test_a_wrong_schema_is_refused_as_the_schema_of_schemas_does(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema(schema)

    assert schema_problem(schema)


def test_the_reason_names_the_keyword() -> None:
    assert schema_problem({"properties": {"a": {"minLength": "x"}}}) == "is wrong: minLength is 'x'"


def test_tools_take_objects() -> None:
    assert schema_problem({"type": "string"}) == "is of type 'string', not object"


def test_a_list_of_item_schemas_is_how_old_drafts_write_tuples() -> None:
    assert (
        schema_problem({"properties": {"point": {"items": [{"type": "number"}, {"type": "number"}]}}}) == ""
    )


@pytest.mark.hostile("JSON and schemas")
def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(DEEPEST + 1):
        schema = {"items": schema}

    assert "deep" in schema_problem({"properties": {"a": schema}})


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{number}": {} for number in range(30_000)}},
        {"properties": {"a": {"enum": list(range(30_000))}}},
        {"description": "x" * 600_000},
        {"properties": {"x" * 600_000: {}}},
        {"properties": {"a": {"default": [["x"] * 100] * 300}}},
    ],
    ids=["properties", "choices", "description", "name", "default"],
)
def test_a_schema_that_is_too_large_is_refused(schema: dict[str, Any]) -> None:
    assert "has more than" in schema_problem(schema)
