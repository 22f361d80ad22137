"""Schemas of Pydantic models: without derived titles."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loom_core.llm.structured import model_schema


class _Place(BaseModel):
    model_config = ConfigDict(title="A place")

    title: str


class _Trip(BaseModel):
    """A trip."""

    first_day: str
    nights: int = Field(title="Nights away")
    to: _Place


def test_derived_titles_are_left_out_and_given_ones_stay() -> None:
    assert model_schema(_Trip) == {
        "type": "object",
        "description": "A trip.",
        "properties": {
            "first_day": {"type": "string"},
            "nights": {"type": "integer", "title": "Nights away"},
            "to": {"$ref": "#/$defs/_Place"},
        },
        "required": ["first_day", "nights", "to"],
        "$defs": {
            "_Place": {
                "type": "object",
                "title": "A place",
                "properties": {"title": {"type": "string"}},
                "required": ["title"],
            }
        },
    }
