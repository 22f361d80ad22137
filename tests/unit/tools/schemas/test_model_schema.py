from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validate
from pydantic import BaseModel, Field

from loom_core.json_repair import well_formed
from loom_core.tools.schemas.model_schema import (
    inline_definitions,
    outline,
    terse,
    without_nulls,
    without_titles,
)

pytestmark = pytest.mark.slow


class Inner(BaseModel):
    title: str = "a title"


class Outer(BaseModel):
    """What it is."""

    title: str
    choice: dict[str, Any] = Field(default={"title": "kept"}, examples=[{"title": "kept"}])
    either: Inner | list[Inner] | None = None


def test_titles_made_of_names_are_gone_at_every_depth():
    schema = without_titles(Outer.model_json_schema())

    assert schema == {
        "description": "What it is.",
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "choice": {
                "type": "object",
                "additionalProperties": True,
                "default": {"title": "kept"},
                "examples": [{"title": "kept"}],
            },
            "either": {
                "anyOf": [
                    {"$ref": "#/$defs/Inner"},
                    {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
                    {"type": "null"},
                ],
                "default": None,
            },
        },
        "required": ["title"],
        "$defs": {
            "Inner": {"type": "object", "properties": {"title": {"default": "a title", "type": "string"}}}
        },
    }


def test_the_schema_given_is_not_changed():
    schema = Outer.model_json_schema()
    without_titles(schema)

    assert schema["title"] == "Outer"


def test_what_may_be_left_out_is_not_offered_as_null_too():
    class Arguments(BaseModel):
        source: str | None = Field(default=None, description="来源")
        either: int | list[int] | None = None
        inner: Inner | None = None
        limit: int = 5
        must: str | None

    schema = without_nulls(without_titles(Arguments.model_json_schema()))

    assert schema["properties"] == {
        "source": {"type": "string", "description": "来源"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        "inner": {"$ref": "#/$defs/Inner"},
        "limit": {"type": "integer", "default": 5},
        "must": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }


@pytest.mark.hostile("JSON and schemas")
def test_a_lone_surrogate_is_replaced_wherever_it_is():
    assert well_formed({"k\ud800": ["a\udfff", {"b": "你好"}, 1, None]}) == {
        "k?": ["a?", {"b": "你好"}, 1, None]
    }


json_values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(json_values)
def test_valid_text_is_never_changed(value):
    assert well_formed(value) == value


class Part(BaseModel):
    """A part."""

    name: str = Field(description="How it is called.")
    parts: list[Part] = []


class Large(BaseModel):
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int


class Answer(BaseModel):
    """An answer."""

    count: int = Field(default=0, description="How many.")
    state: Literal["done", "failed"]
    left_out: float | None = None
    always: float | None
    mode: Literal["a", "b"] | None
    either: Part | list[int]
    part: Part | None
    parts: list[Part]
    large: Large | None = None
    open: dict[str, Any] = {}
    by_name: dict[str, Part] = {}


PART: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"type": "object"}}},
}


def test_an_outline_has_the_types_of_fields_and_of_those_in_small_objects():
    assert outline(without_titles(Answer.model_json_schema(mode="serialization"))) == {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "state": {"enum": ["done", "failed"], "type": "string"},
            "left_out": {"type": "number"},
            "always": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "mode": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]},
            "either": {"anyOf": [PART, {"type": "array", "items": {"type": "integer"}}]},
            "part": {"anyOf": [PART, {"type": "null"}]},
            "parts": {"type": "array", "items": PART},
            "large": {"type": "object"},
            "open": {"type": "object"},
            "by_name": {"type": "object", "additionalProperties": PART},
        },
        "required": ["state", "always", "mode", "either", "part", "parts"],
    }


def test_an_outline_of_a_schema_without_fields_is_one_without_fields():
    assert outline({"type": "object", "title": "Empty"}) == {"type": "object", "properties": {}}


@given(st.builds(Answer))
@settings(max_examples=20)
def test_what_is_answered_fits_the_outline(answer: Answer):
    schema = outline(Answer.model_json_schema(mode="serialization"))
    sent = answer.model_dump(mode="json", exclude_defaults=True)
    required = [name for name in schema["required"] if name not in sent]
    assert not required
    validate(sent, schema)


class Limits(BaseModel):
    """Limits."""

    turns: int | None = None


class Once(BaseModel):
    limits: Limits | None = Field(default=None, description="At most.")
    parts: list[Part]
    one: Part


def test_a_definition_that_is_used_once_is_where_it_is_used():
    schema = inline_definitions(without_nulls(without_titles(Once.model_json_schema())))
    assert schema["properties"]["limits"] == {
        "description": "At most.",
        "type": "object",
        "properties": {"turns": {"type": "integer"}},
    }
    assert schema["properties"]["one"] == {"$ref": "#/$defs/Part"}
    assert schema["$defs"].keys() == {"Part"}


def test_a_definition_that_is_used_within_itself_stays():
    schema = Part.model_json_schema()
    assert inline_definitions(schema) == schema


def test_a_terse_schema_says_no_empty_default_and_no_openness():
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "default": ""},
            "flag": {"type": "boolean", "default": False},
            "count": {"type": "number", "default": 0, "maximum": 45.0, "minimum": 0.5},
            "data": {"type": "object", "additionalProperties": True, "examples": [{"default": ""}]},
            "default": {"type": "object", "default": {"default": ""}},
        },
        "additionalProperties": False,
    }
    assert terse(schema) == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "flag": {"type": "boolean", "default": False},
            "count": {"type": "number", "default": 0, "maximum": 45, "minimum": 0.5},
            "data": {"type": "object", "examples": [{"default": ""}]},
            "default": {"type": "object", "default": {"default": ""}},
        },
        "additionalProperties": False,
    }
