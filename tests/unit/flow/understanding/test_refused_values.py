"""A value that is understood and not allowed: the user reads why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.flow.conftest import talking

_TIME = {"type": "string", "format": "time", "formatMinimum": "09:00", "formatMaximum": "18:00"}
_DAY = {"type": "string", "format": "date", "formatMinimum": "today", "title": "日期 / day"}
_TEXT = {"type": "string", "title": "病情 / trouble"}


def _flow(**inputs: Any) -> dict[str, Any]:
    return {
        "flow_id": "book",
        "name": "预约 / Appointment",
        "trigger_patterns": ["预约", "\\bbook\\b"],
        "input_schema": {"type": "object", "properties": inputs, "required": list(inputs)},
        "confirm": "always",
        "endpoint": "POST /book",
    }


_TIMES = _flow(time={**_TIME, "title": "时间 / time"})


@pytest.mark.parametrize(
    ("begin", "said", "why"),
    [
        ("我要预约", "晚上八点", "时间不能是20:00：只能是09:00到18:00。"),
        ("我要预约", "七点", "时间不能是七点：只能是09:00到18:00。"),
        ("book it please", "8 pm", "time cannot be 20:00: 09:00 to 18:00."),
        ("book it please", "how about 7 am", "time cannot be 07:00: 09:00 to 18:00."),
    ],
)
async def test_a_time_outside_of_the_bounds_is_refused_with_them(begin: str, said: str, why: str) -> None:
    async with talking(_TIMES) as talk:
        await talk(begin)
        assert (await talk(said)).text.startswith(why)


@pytest.mark.parametrize(
    ("begin", "said", "why"),
    [
        ("我要预约", "2020年3月3号", "日期不能是2020年3月3日（周二）：今天或以后。"),
        ("book it please", "3 March 2020", "day cannot be Tuesday, 3 March 2020: today or later."),
    ],
)
async def test_so_is_a_date_in_the_past(begin: str, said: str, why: str) -> None:
    async with talking(_flow(day=_DAY)) as talk:
        await talk(begin)
        assert (await talk(said)).text.startswith(why)


async def test_a_number_that_is_refused_is_no_date_instead() -> None:
    nights = {"type": "integer", "title": "nights", "minimum": 1}
    async with talking(_flow(day=_DAY, nights=nights)) as talk:
        begun = await talk("book it for Christmas please")
        refused = await talk("1.5")
        assert refused.text.startswith("nights cannot be 1.5: a whole number")
        assert refused.pending[0].arguments == begun.pending[0].arguments


async def test_so_is_a_correction_also_while_a_text_is_asked_for() -> None:
    async with talking(_flow(time={**_TIME, "title": "时间 / time"}, trouble=_TEXT)) as talk:
        await talk("book it at 10 am please")
        refused = await talk("make it 8 pm")
        assert refused.text.startswith("time cannot be 20:00: 09:00 to 18:00.")
        assert refused.pending[0].schema["required"] == ["trouble"]
        assert (await talk("a sore throat")).pending[0].arguments == {
            "time": "10:00",
            "trouble": "a sore throat",
        }
        assert (await talk("make it 8 pm")).text.startswith("time cannot be 20:00")


@pytest.mark.parametrize(
    ("begin", "said", "how"),
    [
        ("我要预约", "牙疼", "请说明是哪一项，如“病情：……”。"),
        ("book it please", "my tooth hurts", "Please say what it is, as in “trouble: …”."),
    ],
)
async def test_words_that_may_be_any_of_several_texts_are_asked_for_with_their_name(
    begin: str, said: str, how: str
) -> None:
    async with talking(_flow(trouble=_TEXT, doctor={"type": "string", "title": "医生 / doctor"})) as talk:
        await talk(begin)
        assert how in (await talk(said)).text
        asked = await talk(f"病情：{said}" if "病情" in how else f"trouble: {said}")
        assert asked.pending[0].arguments == {"trouble": said}


async def test_what_a_number_is_called_at_is_no_name() -> None:
    name = {"type": "string", "format": "person", "title": "name"}
    phone = {"type": "string", "format": "phone", "title": "phone"}
    async with talking(_flow(name=name, phone=phone, day=_DAY)) as talk:
        asked = await talk("book it please, call me at +8613800138000")
        assert asked.pending[0].arguments == {"phone": "+8613800138000"}


@pytest.mark.parametrize(
    ("begin", "said", "name", "trouble", "time"),
    [
        ("我要预约", "李伟，下午三点，牙疼", "李伟", "牙疼", "15:00"),
        ("我要预约", "李伟，牙疼", "李伟", "牙疼", None),
        ("我要预约", "下午三点，牙疼得厉害", None, "牙疼得厉害", "15:00"),
        ("我要预约", "下午三点，李伟", "李伟", None, "15:00"),
        ("我要预约", "李伟，晚上八点", "李伟", None, None),
        ("book it please", "Li Wei, 3pm, my tooth hurts", "Li Wei", "my tooth hurts", "15:00"),
        ("book it please", "at 3 pm, I have a headache", None, "I have a headache", "15:00"),
        ("book it please", "My name is Li Wei", "Li Wei", None, None),
    ],
)
async def test_a_name_a_time_and_a_text_go_to_their_inputs(
    begin: str, said: str, name: str | None, trouble: str | None, time: str | None
) -> None:
    person = {"type": "string", "format": "person", "title": "姓名 / name"}
    phone = {"type": "string", "format": "phone", "title": "电话 / phone"}
    flow = _flow(name=person, time={**_TIME, "title": "时间 / time"}, trouble=_TEXT, phone=phone)
    async with talking(flow) as talk:
        await talk(begin)
        asked = await talk(said)
        given = {"name": name, "trouble": trouble, "time": time}
        assert asked.pending[0].arguments == {key: value for key, value in given.items() if value}
