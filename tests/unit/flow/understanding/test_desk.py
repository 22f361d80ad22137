"""Replies at a desk: several values at once, names, corrections, hours, as people write them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import pytest

from loom_core.flow.http.response import EndpointResult
from loom_core.flow.understanding.choices import ValueChoice, find_choices
from loom_core.flow.understanding.moments import situation
from loom_core.flow.understanding.person_names import person_in
from loom_core.flow.understanding.reply_parser import find_corrections, parse_reply
from loom_core.flow.understanding.slots import extract_slots, parse_value
from loom_core.runs.run import Pending
from tests.unit.flow.conftest import talking

WEDNESDAY = datetime.fromisoformat("2026-11-25T09:00:00+08:00")
INPUTS: dict[str, Any] = {
    "department": {
        "title": "科室 / department",
        "oneOf": [{"const": "EYE", "title": "眼科 / Eye"}, {"const": "ENT", "title": "耳鼻喉科 / ENT"}],
    },
    "date": {"type": "string", "title": "日期 / date", "format": "date", "formatMinimum": "today"},
    "time": {
        "type": "string",
        "title": "时间 / time",
        "format": "time",
        "formatMinimum": "08:30",
        "formatMaximum": "18:00",
    },
    "patient": {"type": "string", "title": "病人 / patient", "format": "person"},
    "phone": {"type": "string", "title": "电话 / phone", "format": "phone", "region": "CN"},
}
KNOWN = {
    "department": "ENT",
    "date": "2026-11-26",
    "time": "09:00",
    "patient": "李娜",
    "phone": "+8613800138000",
}
CODE: dict[str, Any] = {"type": "string", "title": "预约号 / booking code", "pattern": "^K[0-9]{4}$"}


def _reply(
    message: str,
    *asked: str,
    schemas: dict[str, Any] = INPUTS,
    kind: Literal["question", "approval"] = "question",
    reason: str = "",
) -> tuple[str, dict[str, Any]]:
    known = {name: value for name, value in KNOWN.items() if name not in asked} if kind == "approval" else {}
    schema = {"type": "object", "properties": {name: schemas[name] for name in asked}}
    pending = Pending(
        id="q", kind=kind, tool="book", schema=schema if asked else {}, arguments=known, reason=reason
    )
    with situation(WEDNESDAY, "zh"):
        said = parse_reply(message, pending, inputs={"type": "object", "properties": schemas})
    return said.kind, dict(said.values)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("friday at 4pm", {"date": "2026-11-27", "time": "16:00"}),
        ("saturday at 9 then", {"date": "2026-11-28", "time": "09:00"}),
        ("周五下午四点", {"date": "2026-11-27", "time": "16:00"}),
        ("friday", {"date": "2026-11-27"}),
    ],
)
def test_one_answer_may_have_a_date_and_a_time(message: str, values: dict[str, Any]) -> None:
    assert _reply(message, "date", "time") == ("answer", values)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("我叫李娜，电话是139 1234 5678", {"patient": "李娜", "phone": "+8613912345678"}),
        ("Sarah Connor, +1 415 555 2671", {"patient": "Sarah Connor", "phone": "+14155552671"}),
        ("陈静 13500001234", {"patient": "陈静", "phone": "+8613500001234"}),
        ("it's for my son Tom Miller", {"patient": "Tom Miller"}),
        ("叫我老王就行", {"patient": "老王"}),
        ("Li Wei", {"patient": "Li Wei"}),
    ],
)
def test_an_answer_to_who_it_is_for_may_have_more(message: str, values: dict[str, Any]) -> None:
    assert _reply(message, "patient") == ("answer", values)


@pytest.mark.parametrize("message", ["Mike Ross", "张伟"])
def test_a_name_is_kept_where_something_else_is_asked(message: str) -> None:
    assert _reply(message, "time") == ("correct", {"patient": message})


def test_a_phone_number_is_kept_where_a_name_is_asked() -> None:
    assert _reply("13800138000", "patient") == ("correct", {"phone": "+8613800138000"})


@pytest.mark.parametrize("message", ["Next Friday", "好的谢谢", "What Now?", "ok he's fine now"])
def test_what_is_no_name_is_not_kept_as_one(message: str) -> None:
    assert "patient" not in _reply(message, "time")[1]


@pytest.mark.parametrize(("message", "time"), [("9", "09:00"), ("3", "15:00"), ("那就10吧", "10:00")])
def test_a_bare_number_is_an_hour_where_a_time_is_asked(message: str, time: str) -> None:
    assert _reply(message, "time") == ("answer", {"time": time})


def test_words_without_a_form_are_the_only_input_that_takes_words() -> None:
    schemas = {**INPUTS, "medicine": {"type": "string", "title": "药名 / medicine", "minLength": 2}}
    asked = ("medicine", "patient", "phone")
    assert _reply("metformin", *asked, schemas=schemas) == ("answer", {"medicine": "metformin"})
    assert _reply("Grace Hopper", *asked, schemas=schemas) == ("answer", {"patient": "Grace Hopper"})
    assert _reply("不知道", *asked, schemas=schemas)[0] == "unclear"
    assert _reply("what for?", *asked, schemas=schemas)[0] == "unclear"


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("不对，改成周五下午两点", {"date": "2026-11-27", "time": "14:00"}),
        ("make it Friday at 2pm", {"date": "2026-11-27", "time": "14:00"}),
        ("等下，能改成周五吗", {"date": "2026-11-27"}),
        ("11 then", {"time": "11:00"}),
    ],
)
def test_a_correction_may_have_several_values(message: str, values: dict[str, Any]) -> None:
    assert _reply(message, kind="approval") == ("correct", values)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("not ENT, I meant eye", {"department": "EYE"}),
        ("not ENT, eye", {"department": "EYE"}),
        ("Saturday, not Thursday", {"date": "2026-11-28"}),
        ("sorry, 10 not 9", {"time": "10:00"}),
        ("是李丽不是李娜", {"patient": "李丽"}),
        ("not today, thanks", {}),
        ("it is not good", {}),
    ],
)
def test_a_correction_may_name_the_old_value(message: str, values: dict[str, Any]) -> None:
    with situation(WEDNESDAY, "en"):
        assert find_corrections(message, INPUTS, known=KNOWN, asked={}) == values


@pytest.mark.parametrize(
    ("message", "date"),
    [
        ("dentist on monday no wait tuesday at 10", "2026-12-01"),
        ("I can't make it on Friday, could we do Monday instead?", "2026-11-30"),
        ("我周五来不了了 能换到下周一吗", "2026-11-30"),
        ("Friday doesn't work, Saturday please", "2026-11-28"),
    ],
)
def test_a_value_that_is_taken_back_or_does_not_suit_is_not_meant(message: str, date: str) -> None:
    with situation(WEDNESDAY, "en"):
        found = extract_slots(message, {"date": INPUTS["date"]})
    assert [each.value for each in found] == [date]


@pytest.mark.parametrize("message", ["帮我妈挂个内科", "挂眼科", "看牙需要提前多久挂号啊"])
def test_a_department_is_no_name(message: str) -> None:
    assert person_in(message) is None


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("挂眼科 明天三点 陈静 13500001234", "陈静"),
        ("ENT tomorrow 11am, Peter Pan, 13500001234", "Peter Pan"),
        ("挂眼科 周一 9点 王芳 13612345678", "王芳"),
        ("ENT tomorrow", None),
        ("schedule me for ENT tomorrow", None),
    ],
)
def test_a_name_between_other_values_needs_no_introduction(message: str, name: str | None) -> None:
    with situation(WEDNESDAY, "en"):
        found = {each.name: each.value for each in extract_slots(message, INPUTS)}
    assert found.get("patient") == name


def test_a_name_between_commas_is_left_alone_where_another_text_may_be_meant() -> None:
    schemas = {"patient": INPUTS["patient"], "city": {"type": "string", "title": "city"}}
    assert extract_slots("New York, tomorrow", schemas) == []


def test_a_code_may_be_in_small_letters() -> None:
    assert parse_value("the code is k1024", "booking", CODE) == "K1024"
    assert [each.value for each in extract_slots("预约号k1024", {"booking": CODE})] == ["K1024"]


@pytest.mark.parametrize("message", ["yes cancel it", "对，取消吧"])
def test_yes_cancel_it_agrees_to_a_cancellation(message: str) -> None:
    assert _reply(message, kind="approval", reason="Cancel K1024? / 取消 K1024？")[0] == "approve"
    assert _reply(message, kind="approval", reason="Book it? / 预约？")[0] != "approve"


@pytest.mark.parametrize("message", ["no, keep it", "不用了，还是留着吧", "先不取消"])
def test_what_is_to_be_kept_is_not_cancelled(message: str) -> None:
    assert _reply(message, kind="approval", reason="Cancel K1024? / 取消 K1024？")[0] == "deny"


@pytest.mark.parametrize("message", ["算了不约了", "算了，不预约了"])
def test_two_words_of_an_end_are_an_end(message: str) -> None:
    assert _reply(message, "date")[0] == "cancel"


_MOVE: dict[str, Any] = {
    "flow_id": "move",
    "name": "改约 / Move",
    "trigger_patterns": ["改约"],
    "endpoint": "POST /move",
    "input_schema": {
        "type": "object",
        "properties": {
            "booking": CODE,
            "date": INPUTS["date"],
            "why": {"type": "string", "title": "原因 / reason"},
        },
        "required": ["booking", "date"],
    },
}
_BOOK: dict[str, Any] = {"flow_id": "book", "trigger_patterns": ["^预约"], "endpoint": "POST /book"}


async def test_an_answer_that_names_its_input_begins_no_other_flow() -> None:
    async with talking(_MOVE, _BOOK) as talk:
        await talk("我想改约")
        answered = await talk("预约号K1024")
        assert (answered.flow_id, answered.pending[0].arguments) == ("move", {"booking": "K1024"})


_SURE: dict[str, Any] = {
    **_MOVE,
    "endpoint": None,
    "steps": [
        {"stepId": "sure", "confirm": "{$inputs.booking} 改到{$inputs.date}？"},
        {"stepId": "move", "operation": "POST /move"},
    ],
}


async def test_after_a_refusal_another_value_is_enough() -> None:
    async with talking(_SURE) as talk:
        await talk("改约 K1024 2036-12-05")
        talk.api.answer = lambda url: EndpointResult(409, {}, {"msg": "full"}, 1, 0.0, url, "")
        assert (await talk("好的")).status == "failed"
        talk.api.answer = lambda _: {}
        assert (await talk("那就2036-12-07")).status == "completed"
        assert talk.api.requests[-1] == ("POST /move", {"booking": "K1024", "date": "2036-12-07"})


async def test_ambiguous_days_are_listed_in_words() -> None:
    async with talking(_SURE) as talk:
        with situation(WEDNESDAY, "en"):
            await talk("改约 K1024")
            asked = await talk("I mean next Sunday")
        assert "Sunday, 29 November 2026" in asked.text


async def test_a_confirmation_lists_only_what_its_question_does_not_say() -> None:
    async with talking(_SURE) as talk:
        asked = await talk("改约 K1024 2036-12-05 原因：出差")
        assert asked.text == "K1024 改到2036年12月5日（周五）？\n原因：出差"


_OFFER: dict[str, Any] = {
    "flow_id": "book",
    "trigger_patterns": ["预约"],
    "input_schema": {
        "type": "object",
        "properties": {"date": INPUTS["date"], "time": INPUTS["time"]},
        "required": ["date"],
    },
    "steps": [
        {
            "stepId": "slots",
            "operation": "GET https://x.example/slots",
            "outputs": {"free": "$response.body#/free"},
        },
        {
            "stepId": "when",
            "ask": {
                "question": "{$inputs.date}几点？",
                "options": {"from": "$steps.slots.outputs.free"},
                "into": "time",
            },
        },
        {"stepId": "sure", "confirm": "{$inputs.date}{$inputs.time}？"},
    ],
}


async def test_an_offered_time_stays_or_changes_with_the_day_that_is_corrected() -> None:
    async with talking(_OFFER) as talk:
        talk.api.answer = lambda _: {"free": ["10:00", "14:00"]}
        with situation(WEDNESDAY, "zh"):
            assert (await talk("预约明天")).text == "2026年11月26日（周四）几点？\n1. 10:00\n2. 14:00"
            assert (await talk("十点")).text == "2026年11月26日（周四）10:00？"
            assert (await talk("改成周五")).text == "2026年11月27日（周五）10:00？"
            assert (await talk("不对，改成周六下午两点")).text == "2026年11月28日（周六）14:00？"
            talk.api.answer = lambda _: {"free": ["09:00", "10:00"]}
            assert "几点？\n1. 09:00\n2. 10:00" in (await talk("改成周一")).text


@pytest.mark.parametrize(
    ("message", "found"), [("3", ["11:00", "15:00"]), ("第三个", ["11:00"]), ("2", ["10:00"])]
)
def test_a_bare_number_is_a_place_in_the_list_or_an_hour(message: str, found: list[str]) -> None:
    choices = [ValueChoice(each) for each in ("09:00", "10:00", "11:00", "15:00")]
    assert [each.value for each in find_choices(message, choices)] == found
