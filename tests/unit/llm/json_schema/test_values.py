from __future__ import annotations

from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.values import check_schema, find_problems, readable_path, without_nulls

_PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "died": {"type": ["string", "null"]},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/Friend"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {
        "Friend": {
            "anyOf": [
                {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
                {"type": "object", "properties": {"since": {"type": "integer"}, "by": {"type": "string"}}},
            ]
        }
    },
}


def test_problems_name_the_place_and_what_is_wrong_there():
    value = {"age": "三十", "friends": [{"since": 744}, 5], "头衔": 1}
    assert find_problems(value, _PERSON) == [
        "the whole: 'name' is a required property",
        "the whole: Additional properties are not allowed ('头衔' was unexpected)",
        "age: '三十' is not of type 'integer'",
        "friends[1]: 5 is not valid under any of the given schemas",
    ]


def test_a_value_without_fault_has_no_problems():
    assert find_problems({"name": "李白", "died": None, "friends": [{"since": 744}]}, _PERSON) == []


def test_only_so_many_problems_are_told_and_none_is_long():
    schema = {"type": "array", "items": {"type": "string"}}
    assert len(find_problems([1] * 50, schema, most=3)) == 3
    (told,) = find_problems(["x" * 10_000], {"type": "array", "items": {"type": "integer"}})
    assert len(told) < 250
    assert told.endswith("is not of type 'integer'")


def test_paths_are_those_that_a_programmer_would_write():
    assert readable_path(["entities", 2, "名称", "odd name", "x"]) == "entities[2].名称['odd name'].x"
    assert readable_path([]) == "the whole"


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"type": "nothing"}, "The schema is wrong: type: 'nothing' is not valid"),
        ({"properties": {"a": {"$ref": "#/$defs/Gone"}}}, r"refers to '[^']*Gone', which is not in it"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "refers to 'http://127.0.0.1:9/schema.json'"),
        ({"$ref": "#"}, "nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], match: str):
    with pytest.raises(InvalidInputError, match=match):
        find_problems({"a": 1}, schema)


def test_an_old_draft_is_read_as_such():
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    assert find_problems(["a", 1], schema) == []
    assert find_problems([1], schema) == ["[0]: 1 is not of type 'string'"]


def test_nulls_of_optional_properties_are_left_out_and_others_stay():
    value = {"name": None, "age": None, "died": None, "friends": None, "other": None}
    assert without_nulls(value, _PERSON) == {"name": None, "died": None, "other": None}


def test_nulls_are_left_out_by_the_choice_that_then_fits():
    value = {
        "name": "杜甫",
        "friends": [{"of": "李白", "since": None}, {"since": None, "by": None}, {"of": 1}],
    }
    assert without_nulls(value, _PERSON) == {
        "name": "杜甫",
        "friends": [{"of": "李白", "since": None}, {}, {"of": 1}],
    }


def test_nulls_are_left_out_of_what_has_to_hold_together():
    schema = {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "null"}}}]}
    assert without_nulls({"a": None, "b": None}, schema) == {"b": None}
    assert without_nulls([None, {"a": None}], {"items": schema, "type": "array"}) == [None, {}]


def test_what_is_no_object_stays_as_it_is():
    assert [without_nulls(value, _PERSON) for value in (None, 3, "x", True)] == [None, 3, "x", True]


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"anyOf": [{"$ref": "#/$defs/Gone"}]}, "which is not in it"),
        ({"$ref": "#"}, "nested too deeply"),
        ({"type": 3}, "The schema is wrong"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_for_nulls_too(schema: dict[str, Any], match: str):
    with pytest.raises(InvalidInputError, match=match):
        without_nulls({"a": None}, schema)


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#/$defs/没有"},
        {"$ref": "http://127.0.0.1:1/x"},
        {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#/properties/甲"}]}]},
        {"items": {"patternProperties": {"(": {}}}},
    ],
)
def test_a_part_that_no_value_could_be_checked_with_is_found_without_one(part: dict[str, Any]):
    with pytest.raises(InvalidInputError):
        check_schema({"type": "object", "properties": {"甲": part}})


@pytest.mark.parametrize(
    "schema",
    [
        _PERSON,
        {"$ref": "#/$defs/树", "$defs": {"树": {"properties": {"枝": {"items": {"$ref": "#/$defs/树"}}}}}},
        {"properties": {"甲": {"$id": "http://x/a", "$ref": "#/$defs/b", "$defs": {"b": True}}}},
        {"properties": {"甲": {"enum": [{"$ref": "#/no/schema"}]}, "$ref": {"const": "#/nowhere"}}},
    ],
)
def test_a_schema_that_values_can_be_checked_with_is_taken(schema: dict[str, Any]):
    check_schema(schema)
