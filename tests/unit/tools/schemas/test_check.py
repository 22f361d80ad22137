from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loom_core.errors import InvalidInputError
from loom_core.tools.schemas.check import SchemaCheck, quick_check


def _messages(schema: dict[str, Any], value: object) -> list[str]:
    return [error.message for error in SchemaCheck(schema).errors(value)]


_FORMS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": {"type": "string", "pattern": "^[ab]+$"}}, "additionalProperties": False},
    {"patternProperties": {"^[ab]$": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"not": {"required": ["b"]}}},
    {"properties": {"a": {"$ref": "#"}}, "unevaluatedProperties": False},
    {
        "properties": {
            "b": {"anyOf": [{"type": "null"}, {"items": {"$ref": "#/properties/b"}, "type": "array"}]}
        }
    },
    {"minProperties": 1, "propertyNames": {"enum": ["a"]}},
]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", "c", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.hostile("JSON and schemas")
@given(schema=st.sampled_from(_FORMS), value=st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3))
def test_what_is_refused_is_what_jsonschema_refuses(schema: dict[str, Any], value: object) -> None:
    assert bool(_messages(schema, value)) == (not Draft202012Validator(schema).is_valid(value))


def test_an_old_tuple_is_checked_item_by_item() -> None:
    schema = {"properties": {"point": {"items": [{"type": "number"}, {"type": "string"}]}}}

    assert _messages(schema, {"point": [1, "北"]}) == []
    assert _messages(schema, {"point": ["北", 1]}) == [
        "'北' is not of type 'number'",
        "1 is not of type 'string'",
    ]


def test_the_draft_that_a_schema_names_counts() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"$ref": "#/definitions/A", "type": "integer"}},
        "definitions": {"A": {"type": "string"}},
    }

    assert _messages(schema, {"a": "next to a reference nothing counts in draft 7"}) == []


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize(
    "reference", ["https://example.com/schema.json", "file:///etc/passwd", "#/$defs/None"]
)
def test_nothing_is_fetched_and_what_is_not_there_allows_everything(reference: str) -> None:
    assert _messages({"properties": {"a": {"$ref": reference}}}, {"a": 1}) == []


def test_a_pattern_that_would_take_for_ever_takes_no_time() -> None:
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(b+)+$": {"type": "null"}}}
    start = time.process_time()

    assert len(_messages(schema, {"a": "a" * 20_000 + "b"})) == 1
    assert _messages(schema | {"additionalProperties": False}, {"b" * 20_000 + "c": 1})
    assert _messages(schema | {"unevaluatedProperties": False}, {"b" * 20_000 + "c": 1}) == []
    assert time.process_time() - start < 5


def test_a_pattern_that_no_linear_engine_knows_is_left_to_the_server() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"pattern": "(?=x)y"}}, "additionalProperties": False}
    named: dict[str, Any] = {"patternProperties": {"(?=x)y": {"type": "null"}}, "additionalProperties": False}

    assert _messages(schema, {"a": "z"}) == []
    assert _messages(named, {"b": 1}) == []


@pytest.mark.hostile("JSON and schemas")
def test_references_that_multiply_are_followed_only_so_far() -> None:
    forms: dict[str, Any] = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    forms["a40"] = {"type": "string"}

    with pytest.raises(InvalidInputError, match="refers to itself too often"):
        _messages({"$defs": forms, "properties": {"x": {"$ref": "#/$defs/a0"}}}, {"x": 1})


@pytest.mark.hostile("JSON and schemas")
def test_a_reference_without_end_is_told() -> None:
    with pytest.raises(InvalidInputError, match="refers to itself too often"):
        _messages({"$ref": "#"}, {})


def test_of_very_many_errors_the_first_are_told() -> None:
    assert len(_messages({"properties": {"a": {"items": {"type": "null"}}}}, {"a": [1] * 5000})) == 200


_COMPARED = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 0.0, 1.0, 1.5, "1", "true", "北"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.slow
@given(values=st.lists(_COMPARED, max_size=4), value=_COMPARED)
def test_values_are_the_same_when_jsonschema_says_so(values: list[Any], value: Any) -> None:
    for schema in ({"const": value}, {"enum": values}, {"uniqueItems": True}):
        for instance in (value, values):
            assert bool(_messages(schema, instance)) == (not Draft202012Validator(schema).is_valid(instance))


def test_a_list_of_many_different_objects_is_compared_at_once() -> None:
    schema = {"properties": {"a": {"uniqueItems": True}}}
    start = time.process_time()

    assert _messages(schema, {"a": [{"i": i} for i in range(5000)]}) == []
    assert len(_messages(schema, {"a": [{"i": i % 4999} for i in range(5000)]})) == 1
    assert time.process_time() - start < 5


_NAMES = [f"v{i}" for i in range(5000)]


@pytest.mark.parametrize(
    ("part", "large"),  # which is made in the test: all workers would hold all of them
    [
        ({"items": {"enum": _NAMES}}, lambda: ["x"] * 3000),
        ({"items": {"enum": [{"a": name} for name in _NAMES]}}, lambda: [{"a": "v4999"}] * 100_000),
        ({"items": {"properties": dict.fromkeys(_NAMES, True)}}, lambda: [{}] * 100_000),
        ({"items": {"anyOf": [{"type": "null"}] * 500}}, lambda: ["a" * 100_000] * 100),
        ({"contains": {"contains": {"const": 1}}}, lambda: [[0] * 1000] * 1000),
        ({"uniqueItems": True}, lambda: [[i] for i in range(1_000_000)]),
        ({"items": {"pattern": "(abc|x{1000}){9}z"}}, lambda: ["x" * 100_000] * 9),
        (
            {"items": {"patternProperties": {f"{n}x": True for n in _NAMES}}},
            lambda: [dict.fromkeys(_NAMES)] * 100,
        ),
        (
            {"items": {"additionalProperties": False, "patternProperties": {f"{n}": True for n in _NAMES}}},
            lambda: [{f"w{n}": 1 for n in range(1000)}] * 100,
        ),
    ],
)
def test_a_large_value_against_a_large_schema_is_given_up_soon(
    part: dict[str, Any], large: Callable[[], object]
) -> None:
    value = large()
    start = time.process_time()

    with pytest.raises(InvalidInputError, match="takes too long"):
        _messages({"properties": {"a": part}}, {"a": value})
    assert time.process_time() - start < 10


_QUICK_CHECK_NAMES = st.sampled_from(["a", "路径", "c"])
_NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0, float("nan"), 1e400]))
_QUICK_CHECK_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, st.sampled_from(["", "a", "文件", "aaaa"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_QUICK_CHECK_NAMES, inner, max_size=3)
    ),
    max_leaves=6,
)


def _kind(name: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(name)}, optional=keywords)


_SMALL = st.integers(0, 3)
_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.just({}),
        st.just(True),
        st.just({"description": "什么都行"}),
        _kind("string", minLength=_SMALL, maxLength=_SMALL, enum=st.just(["a", "文件", 1])),
        _kind("integer", minimum=_SMALL, maximum=_SMALL),
        _kind("number", minimum=_SMALL, maximum=_SMALL),
        _kind("boolean"),
        _kind("null"),
        st.just({"anyOf": [{"type": "null"}, {"type": "string"}]}),
        st.just({"type": ["string", "null"]}),
        st.just(False),
    ),
    lambda inner: st.one_of(
        _kind("array", items=inner, minItems=_SMALL, maxItems=_SMALL),
        _kind(
            "object",
            properties=st.dictionaries(_QUICK_CHECK_NAMES, inner, max_size=3),
            required=st.lists(_QUICK_CHECK_NAMES, max_size=2, unique=True),
            additionalProperties=st.one_of(st.booleans(), inner),
        ),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(schema=_SCHEMAS.filter(lambda schema: isinstance(schema, dict)), value=_QUICK_CHECK_VALUES)
def test_what_is_accepted_quickly_the_schema_accepts(schema: dict[str, Any], value: Any) -> None:
    check = quick_check(schema)

    if check is not None and check(value):
        assert Draft202012Validator(schema).is_valid(value)


_PLAIN = {
    "type": "object",
    "properties": {
        "路径": {"type": "string", "minLength": 1, "description": "文件的路径"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "mode": {"type": "string", "enum": ["读", "写"]},
        "options": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["路径"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"路径": "笔记.md", "lines": [1, 2], "mode": "读", "options": {"deep": True}}, True),
        ({"路径": ""}, False),
        ({}, False),
        ({"路径": "a", "其他": 1}, False),
        ({"路径": "a", "lines": [True]}, False),
        ({"路径": "a", "mode": "删"}, False),
        ([], False),
    ],
)
def test_plain_arguments_are_told_apart_without_the_whole_of_json_schema(arguments: Any, fits: bool) -> None:
    check = quick_check(_PLAIN)

    assert check is not None
    assert check(arguments) is fits


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"type": "string", "pattern": "a"},
        {"type": "object", "properties": {"a": {"oneOf": [True]}}},
        {"properties": {"a": {"type": "string"}}},
        {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
        {"type": "object", "$schema": 7},
        {"type": "array", "items": {"format": "date"}},
        {"type": "object", "additionalProperties": {"const": 1}},
    ],
)
def test_a_schema_that_says_more_is_left_to_the_slower_check(schema: dict[str, Any]) -> None:
    assert quick_check(schema) is None
