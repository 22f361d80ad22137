"""Everything that a message says is used, not only what a trigger pattern has named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from loom_core.flow.understanding.moments import situation
from loom_core.flow.understanding.person_names import person_in
from loom_core.flow.understanding.slots import extract_slots
from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import decides, talking

PHONE: dict[str, Any] = {"type": "string", "title": "手机号 / phone", "pattern": "^1[0-9]{10}$"}
TIME: dict[str, Any] = {
    "type": "string",
    "title": "时间 / time",
    "pattern": "^(?:(?:上午|下午)?[0-9一二两三四五六七八九十]{1,3}点半?|[0-9]{1,2}:[0-9]{2})$",
}
PROPERTIES: dict[str, Any] = {
    "service": {
        "title": "科室 / department",
        "oneOf": [{"const": "D1", "title": "牙科 / dentist"}, {"const": "D2", "title": "眼科 / eye doctor"}],
    },
    "name": {"type": "string", "title": "姓名 / name", "minLength": 2},
    "age": {"type": "integer", "title": "年龄 / age", "minimum": 0, "maximum": 120},
    "phone": PHONE,
    "time": TIME,
}
BOOK: dict[str, Any] = {
    "flow_id": "book",
    "name": "预约挂号 / Book an appointment",
    "trigger_patterns": ["预约|挂号|约(?:个|一个)?(?:牙科|眼科)|看(?:牙科|眼科)", "\\bbook\\b"],
    "endpoint": "POST /book",
    "confirm": "always",
    "response": "约好了 / Booked",
    "input_schema": {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES]},
}
LI_WEI = {"service": "D1", "name": "Li Wei", "age": 34, "phone": "13800138000", "time": "9:30"}
WANG = {"service": "D1", "name": "王小明", "age": 34, "phone": "13800138000", "time": "九点"}


@pytest.mark.parametrize(
    ("message", "inputs"),
    [
        ("I'd like to book a dentist for Li Wei, age 34, phone 13800138000 at 9:30", LI_WEI),
        ("Please book the dentist, my name is Li Wei, I am 34 years old, call 13800138000, at 9:30", LI_WEI),
        ("book dentist; name: Li Wei; age: 34; phone: 13800138000; time: 9:30", LI_WEI),
        ("给王小明预约牙科，34岁，手机13800138000，九点", WANG),
        ("我叫王小明，今年34岁，想预约牙科，九点，电话是13800138000", WANG),
        ("挂号：姓名王小明，年龄34，手机号13800138000，时间九点，科室是牙科", WANG),
    ],
)
async def test_nothing_is_asked_for_that_was_told(message: str, inputs: dict[str, Any]) -> None:
    async with talking(BOOK) as talk:
        asked = await talk(message)
        assert [each.kind for each in asked.pending] == ["approval"], (
            asked.text
        )  # confirmed before any effect
        assert asked.pending[0].arguments == inputs
        assert talk.api.requests == []
        assert (await talk("yes" if message.isascii() else "是的")).status == "completed"
        assert talk.api.requests == [("POST /book", inputs)]


@pytest.mark.parametrize(
    ("message", "inputs"),
    [
        ("book at 9:30", {"time": "9:30"}),  # 9 and 30 are no age
        ("book the dentist or the eye doctor", {}),  # which of them is asked
        ("book for Saturday", {}),  # no one is called so
        ("book it for me, 34", {}),  # 34 may be anything
        ("book, phone 13800138000 or 13900139000", {}),
        ("book, not at 9:30", {}),
        ("给我预约", {}),
        ("帮我老婆预约牙科", {"service": "D1"}),
        ("帮忙安排预约", {}),
        ("给周三的约个牙科", {"service": "D1"}),
    ],
)
async def test_what_is_in_doubt_is_asked(message: str, inputs: dict[str, Any]) -> None:
    async with talking(BOOK) as talk:
        asked = await talk(message)
        assert (asked.flow_id, asked.pending[0].kind) == ("book", "question"), asked.text
        assert asked.pending[0].arguments == inputs


@pytest.mark.parametrize(
    ("said", "inputs"),
    [
        ("Li Wei", {"name": "Li Wei"}),
        ("王小明", {"name": "王小明"}),
        ("My name is Li Wei", {"name": "Li Wei"}),
        ("我叫王小明", {"name": "王小明"}),
        ("13800138000", {"phone": "13800138000"}),
        ("9:30", {"time": "9:30"}),
        ("九点", {"time": "九点"}),
        ("34岁", {"age": 34}),
        ("Li Wei, 34 years old, 13800138000", {"name": "Li Wei", "age": 34, "phone": "13800138000"}),
        (
            "王小明，34岁，电话13800138000，九点",
            {"name": "王小明", "age": 34, "phone": "13800138000", "time": "九点"},
        ),
    ],
)
async def test_an_answer_goes_to_the_input_that_it_fits(said: str, inputs: dict[str, Any]) -> None:
    async with talking(BOOK) as talk:
        await talk("book the dentist" if said.isascii() else "预约牙科")
        answered = await talk(said)
        assert answered.pending[0].arguments == {"service": "D1", **inputs}, answered.text


@pytest.mark.parametrize(
    "said", ["9:30", "九点", "13800138000", "34岁", "What for?", "今天", "昨天", "二十晚"]
)
async def test_what_is_no_name_does_not_become_one(said: str) -> None:
    flow = {**BOOK, "input_schema": {**BOOK["input_schema"], "required": ["name"]}}
    async with talking(flow) as talk:
        await talk("book the dentist")
        asked = await talk(said)
        assert asked.status == "input_required"
        assert "name" not in asked.pending[0].arguments


@pytest.mark.parametrize("said", ["My name is Li Wei", "it's for Li Wei", "name is Li Wei.", "Li Wei"])
async def test_a_name_is_taken_out_of_its_sentence(said: str) -> None:
    flow = {**BOOK, "input_schema": {**BOOK["input_schema"], "required": ["name"]}}
    async with talking(flow) as talk:
        await talk("book the dentist")
        assert (await talk(said)).pending[0].arguments["name"] == "Li Wei"


STEPS: dict[str, Any] = {
    **BOOK,
    "confirm": "never",
    "input_schema": {"type": "object", "properties": PROPERTIES, "required": ["service"]},
    "steps": [
        {"stepId": "when", "ask": {"question": "At what time?", "into": "time"}},
        {"stepId": "how", "ask": {"question": "Your phone number?", "into": "phone"}},
        {"stepId": "agreed", "confirm": "Book {$inputs.service} at {$inputs.time}, {$inputs.phone}?"},
        {"stepId": "book", "operation": "POST /book"},
    ],
}
del STEPS["endpoint"]


async def test_a_step_does_not_ask_for_what_the_message_has_said() -> None:
    async with talking(STEPS) as talk:
        asked = await talk("book the dentist, phone 13800138000 at 9:30")
        assert asked.text.startswith("Book dentist at 9:30, 13800138000?")
        assert talk.api.requests == []
        assert (await talk("yes")).status == "completed"


async def test_a_phone_number_that_is_given_when_the_time_is_asked_is_kept() -> None:
    async with talking(STEPS) as talk:
        assert (await talk("book the dentist")).text == "At what time?"
        assert (await talk("my number is 13800138000")).text == "At what time?"
        assert (await talk("9:30")).text.startswith("Book dentist at 9:30, 13800138000?")


async def test_a_model_finds_what_no_pattern_does() -> None:
    said = decides("flow", "book", parameters={"name": "Li Wei", "time": "9:30", "age": 34})
    llm = MockProvider([said])
    async with talking(BOOK, llm=llm) as talk:
        asked = await talk("book the dentist at half past nine 9:30, the boy Li Wei who turned 34 needs it")
        assert asked.route.how == "rules"
        assert asked.pending[0].arguments == {"service": "D1", "name": "Li Wei", "time": "9:30", "age": 34}
        assert asked.text == "Book an appointment needs: phone."
    assert len(llm.calls) == 1


async def test_a_model_is_not_asked_where_there_is_nothing_left_to_find() -> None:
    llm = MockProvider([])
    async with talking(BOOK, llm=llm) as talk:
        assert (await talk("please book the dentist")).status == "input_required"
        assert json.dumps([each.kind for each in (await talk("9:30")).pending]) == '["question"]'
    assert not llm.calls


@pytest.mark.parametrize(
    "text", ["for Monday", "my name is ill", "I am here", "this is a test", "我是来预约的"]
)
def test_what_is_no_one(text: str) -> None:
    assert person_in(text) is None


@pytest.mark.parametrize(
    "age",
    [
        {"type": ["integer", "null"]},
        {"$ref": "#/$defs/age"},
        {"anyOf": [{"$ref": "#/$defs/age"}, {"type": "null"}], "title": "age"},
        {"$ref": "#/$defs/other"},
    ],
)
async def test_an_input_is_read_by_the_schema_that_its_own_refers_to(age: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "$defs": {"age": {"type": "integer", "minimum": 1}, "other": {"$ref": "#/$defs/age"}},
        "properties": {"age": age},
        "required": ["age"],
    }
    flow = {"flow_id": "book", "trigger_patterns": ["book"], "input_schema": schema, "confirm": "always"}
    async with talking({**flow, "endpoint": "POST /book"}) as talk:
        await talk("book the dentist")
        assert (await talk("thirty-four")).pending[0].arguments == {"age": 34}
        assert (await talk("make it 35")).pending[0].arguments == {"age": 35}


SIZE = {"type": "string", "enum": ["S", "M", "I"]}
ROOM = {"oneOf": [{"const": "T", "title": "Twin"}, {"const": "1", "title": "Single"}]}


@pytest.mark.parametrize(
    ("text", "schema", "values"),
    [
        ("I'm looking for a shirt", SIZE, []),
        ("it's for me", SIZE, []),
        ("size m please", SIZE, ["M"]),
        ("要M码", SIZE, ["M"]),
        ("I don't want it for 1 night", ROOM, []),
        ("a twin please", ROOM, ["T"]),
    ],
)
def test_a_code_of_one_letter_is_in_no_other_word(
    text: str, schema: dict[str, Any], values: list[str]
) -> None:
    assert [each.value for each in extract_slots(text, {"x": schema})] == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("下周五住三晚", {"day": "2026-12-04", "nights": 3}),
        ("tomorrow for two nights", {"day": "2026-11-28", "nights": 2}),
        ("住不是三晚", {}),
    ],
)
def test_a_number_with_its_unit_leaves_the_rest_of_its_clause_to_others(
    text: str, values: dict[str, Any]
) -> None:
    schemas = {
        "day": {"type": "string", "format": "date"},
        "nights": {"type": "integer", "title": "住几晚 / nights"},
    }
    with situation(datetime(2026, 11, 27, 10, tzinfo=UTC), "zh"):
        found = extract_slots(text, schemas)
    assert {each.name: each.value for each in found} == values


def test_the_same_part_is_not_two_inputs() -> None:
    schemas = {"phone": PHONE, "other_phone": {**PHONE, "title": "other"}}
    assert extract_slots("reach me at 13800138000", schemas) == []
    (found,) = extract_slots("phone: 13800138000", schemas)
    assert (found.name, found.value) == ("phone", "13800138000")
