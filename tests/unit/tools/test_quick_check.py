from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loom_core.tools.schemas.check import quick_check

_NAMES = st.sampled_from(["a", "路径", "c"])
_NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0, float("nan"), 1e400]))
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, st.sampled_from(["", "a", "文件", "aaaa"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
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
            properties=st.dictionaries(_NAMES, inner, max_size=3),
            required=st.lists(_NAMES, max_size=2, unique=True),
            additionalProperties=st.one_of(st.booleans(), inner),
        ),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(schema=_SCHEMAS.filter(lambda schema: isinstance(schema, dict)), value=_VALUES)
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
