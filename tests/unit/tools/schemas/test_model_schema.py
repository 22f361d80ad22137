from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom_core.server.calls.wellformed import well_formed
from loom_core.tools.schemas.model_schema import without_nulls, without_titles

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
