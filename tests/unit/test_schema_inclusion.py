from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from tools.schema_inclusion import Refusal, refusals

STRING, NUMBER, INTEGER, NULL = ({"type": kind} for kind in ("string", "number", "integer", "null"))
TREE = {
    "$ref": "#/$defs/Tree",
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        }
    },
}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (STRING, {}),
        (INTEGER, NUMBER),
        ({"type": "string", "minLength": 2}, {"type": "string", "minLength": 1}),
        ({"type": "integer", "maximum": 5}, {"type": "integer", "maximum": 10}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b", "a"]}),
        ({"type": "string", "const": "甲"}, {"type": "string", "enum": ["甲", "乙"]}),
        (STRING, {"anyOf": [NULL, STRING]}),
        ({"type": ["null", "string"]}, {"anyOf": [STRING, NULL]}),
        (STRING, {"type": "string", "description": "said better", "default": "x", "examples": ["y"]}),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}),
        (closed(a=STRING), closed(a=STRING, b=STRING)),
        ({**closed(a=STRING), "required": ["a"]}, closed(a=STRING)),
        (closed(a=STRING), {"type": "object", "additionalProperties": STRING}),
        (
            {"type": "object", "properties": {"a": STRING, "b": STRING}},
            {"type": "object", "properties": {"a": STRING}},
        ),
        (TREE, TREE),
    ],
)
def test_a_schema_that_allows_less_is_within_one_that_allows_more(narrow, wide):
    assert refusals(narrow, wide) == []


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        (NUMBER, INTEGER, Refusal("", "type", "number", "integer")),
        ({}, STRING, Refusal("", "type", "anything", "string")),
        ({"anyOf": [STRING, NULL]}, STRING, Refusal("", "type", "null", "string")),
        (STRING, {"enum": ["甲"]}, Refusal("", "enum", None, ["甲"])),
        ({"enum": ["甲", "乙"]}, {"enum": ["甲"]}, Refusal("", "enum", ["甲", "乙"], ["甲"])),
        (STRING, {"type": "string", "minLength": 1}, Refusal("", "minLength", None, 1)),
        (
            {"type": "integer", "maximum": 10},
            {"type": "integer", "maximum": 5},
            Refusal("", "maximum", 10, 5),
        ),
        (STRING, {"type": "string", "pattern": "^a"}, Refusal("", "pattern", None, "^a")),
        (
            {"type": "array", "items": closed(a=STRING)},
            {"type": "array", "items": closed(a=INTEGER)},
            Refusal("[].a", "type", "string", "integer"),
        ),
        (closed(a=STRING), {**closed(a=STRING), "required": ["a"]}, Refusal("a", "required", False, True)),
        (closed(a=STRING, b=INTEGER), closed(a=STRING), Refusal("b", "property", "integer", None)),
        (
            {"type": "object"},
            {"type": "object", "properties": {"a": STRING}},
            Refusal("a", "property", None, "string"),
        ),
        ({"type": "object"}, closed(), Refusal("*", "property", "anything", None)),
        (
            {"type": "object", "additionalProperties": STRING},
            {"type": "object", "additionalProperties": INTEGER},
            Refusal("*", "type", "string", "integer"),
        ),
        (
            {"anyOf": [STRING, closed(a=STRING)]},
            {"anyOf": [STRING, closed(a=INTEGER)]},
            Refusal("", "type", "object", "string or object"),
        ),
    ],
)
def test_what_one_allows_and_the_other_does_not_is_named_with_its_place(narrow, wide, expected):
    assert refusals(narrow, wide) == [expected]


def test_a_schema_that_holds_itself_is_compared_all_the_same():
    other = {
        "$ref": "#/$defs/Tree",
        "$defs": {"Tree": {"type": "object", "properties": {"parts": {"type": "array", "items": STRING}}}},
    }
    assert [refusal.place for refusal in refusals(TREE, other)] == ["parts[]"]


def test_models_of_pydantic_are_compared_through_their_definitions():
    class Hit(BaseModel):
        title: str
        score: float | None = None

    class Old(BaseModel):
        hits: list[Hit]
        limit: int = Field(default=5, ge=1, le=50)

    class Other(BaseModel):
        title: str
        score: float

    class New(BaseModel):
        hits: list[Other]
        limit: int = Field(default=5, ge=1, le=20)

    old, new = Old.model_json_schema(), New.model_json_schema()
    assert refusals(old, new) == [
        Refusal("hits[].score", "type", "null", "number"),
        Refusal("hits[].score", "required", False, True),
        Refusal("limit", "maximum", 50, 20),
    ]
