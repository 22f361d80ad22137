"""Inputs that are one of some values with titles: people say the titles, the API is given the values."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.errors import ConfigError
from tests.unit.flow.conftest import loaded_flows, talking

BOOK: dict[str, Any] = {
    "flow_id": "book",
    "name": "预约挂号 / Book an appointment",
    "trigger_patterns": ["挂号|预约", "\\bbook\\b"],
    "endpoint": "POST /book",
    "confirm": "always",
    "response": "{$inputs.department} 约好了 / Booked: {$inputs.department}",
    "input_schema": {
        "type": "object",
        "properties": {
            "department": {
                "title": "科室 / department",
                "oneOf": [
                    {"const": "D01", "title": "牙科 / Dental"},
                    {"const": "D02", "title": "眼科 / Eye clinic", "synonyms": ["眼睛", "oculist"]},
                    {"const": 3, "title": "内科 / Internal medicine"},
                ],
            }
        },
        "required": ["department"],
    },
}


@pytest.mark.parametrize(
    ("said", "value", "title"),
    [
        ("牙科", "D01", "牙科"),
        ("dental", "D01", "牙科"),
        ("眼科吧", "D02", "眼科"),
        ("我要看眼科", "D02", "眼科"),
        ("D02", "D02", "眼科"),
        ("看眼睛", "D02", "眼科"),
        ("内科", 3, "内科"),
    ],
)
async def test_a_title_is_said_and_the_value_is_sent(said: str, value: Any, title: str) -> None:
    async with talking(BOOK) as talk:
        assert (await talk("我要挂号")).text == "预约挂号还需要：科室（牙科/眼科/内科）。"
        asked = await talk(said)
        assert f"科室：{title}" in asked.text
        done = await talk("是的")
        assert (done.status, done.text) == ("completed", f"{title} 约好了")
        assert talk.api.requests == [("POST /book", {"department": value})]


async def test_in_english_too_and_what_is_none_of_them_is_answered_with_them() -> None:
    async with talking(BOOK) as talk:
        assert (await talk("book it")).text == (
            "Book an appointment needs: department (Dental/Eye clinic/Internal medicine)."
        )
        refused = await talk("the surgery department of the other house")
        assert "Dental/Eye clinic/Internal medicine" in refused.text
        assert "department: Eye clinic" in (await talk("the eye clinic, please")).text
        assert (await talk("yes")).text == "Booked: Eye clinic"


async def test_a_message_that_begins_the_flow_says_it() -> None:
    async with talking(BOOK) as talk:
        assert "科室：牙科" in (await talk("我要挂号，牙科")).text


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ([{"const": "a", "title": "牙科"}, {"const": "b", "title": "牙科"}], "has the same name as"),
        ([{"const": 1, "title": "牙科"}], "does not fit"),
    ],
)
def test_choices_that_cannot_be_made_are_found(choices: list[Any], problem: str) -> None:
    schema = {"type": "object", "properties": {"d": {"type": "string", "oneOf": choices}}}
    with pytest.raises(ConfigError, match=problem):
        loaded_flows({**BOOK, "input_schema": schema, "response": ""})
