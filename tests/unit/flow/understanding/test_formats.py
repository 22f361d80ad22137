"""Values by the format of a schema: bounds, ambiguity, places in a message, and words for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextvars import Context
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import normalise_formats
from loom_core.flow.expressions.expression import MISSING
from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.understanding.formats import (
    find_by_format,
    format_in_words,
    is_in_format,
    read_by_format,
)
from loom_core.flow.understanding.moments import current_situation, situation, zone_of
from loom_core.flow.understanding.slots import extract_slots, find_rejected_value, parse_value

NOW = datetime.fromisoformat("2026-11-27T10:00:00+08:00")  # a Friday
TEXT = {"type": "string"}
DATE = {**TEXT, "format": "date", "title": "日期 / date"}
MOMENT = {**TEXT, "format": "date-time"}
TIME = {**TEXT, "format": "time", "title": "时间 / time"}
OPEN = {**TIME, "formatMinimum": "09:30", "formatMaximum": "19:00"}


@pytest.fixture(autouse=True)
def _now() -> Iterator[None]:
    with situation(NOW, "zh"):
        yield


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("三点", TIME, MISSING),
        ("三点", OPEN, "15:00"),
        ("at 10", OPEN, "10:00"),
        ("at 8", OPEN, MISSING),  # closed at both
        ("下午三点", {**TIME, "formatMaximum": "12:00"}, MISSING),
        ("昨天", {**DATE, "formatMinimum": "today"}, MISSING),
        ("十二月的第一个星期一", DATE, "2026-12-07"),
        ("the last Friday of next month", DATE, "2026-12-25"),
        ("2027年2月最后一天", DATE, "2027-02-28"),
        ("0000年1月第一个星期一", DATE, MISSING),
        ("13月第一个星期一", DATE, MISSING),
        ("今天", {**DATE, "formatMinimum": "today"}, "2026-11-27"),
        ("12月3号", {**DATE, "formatMaximum": "2026-12-01"}, MISSING),
        ("今天下午三点", {**MOMENT, "formatMaximum": "today"}, "2026-11-27T15:00:00+08:00"),
        ("今天下午三点", {**MOMENT, "formatMaximum": "2026-11-27T15:00"}, "2026-11-27T15:00:00+08:00"),
        ("明天下午三点", {**MOMENT, "formatMaximum": "today"}, MISSING),
        ("周日你们开门吗？", DATE, MISSING),
        ("周日可以吗？", DATE, "2026-11-29"),
        ("1200块", {"type": "number", "format": "money", "currency": "CNY"}, 1200),
        ("50美元", {"type": "number", "format": "money", "currency": "CNY"}, MISSING),
        ("三块五", {"type": "number", "format": "money"}, 3.5),
        ("三块五", {"type": "integer", "format": "money"}, MISSING),
        ("负一百", {"type": "number", "format": "money"}, MISSING),
        ("-$5", {"type": "number", "format": "money"}, MISSING),
        ("1200", {**TEXT, "format": "money", "currency": "EUR"}, "1200 EUR"),
        ("两个半小时", {**TEXT, "format": "duration"}, "PT2H30M"),
        ("(212) 555-0123", {**TEXT, "format": "phone", "region": "US"}, "+12125550123"),
        ("１３８００１３８０００", {**TEXT, "format": "phone"}, "+8613800138000"),
        ("一年三个月", {**TEXT, "format": "duration"}, "P15M"),
        ("1 week and 2 days", {**TEXT, "format": "duration"}, "P9D"),
    ],
)
def test_a_value_is_certain_and_within_its_bounds(text: str, schema: dict[str, Any], value: object):
    assert parse_value(text, "x", schema) == value


def test_in_english_a_foreign_number_needs_its_country():
    with situation(NOW, "en"):
        assert parse_value("13800138000", "x", {**TEXT, "format": "phone"}) is MISSING
        assert parse_value("+86 138 0013 8000", "x", {**TEXT, "format": "phone"}) == "+8613800138000"


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        ("2026-02-30", DATE, False),
        ("2026-2-3", DATE, False),
        ("2026-12-01T15:00:00+08:00", {**TEXT, "format": "date-time"}, True),
        ("tomorrow", {**TEXT, "format": "date-time"}, False),
        ("25:00", TIME, False),
        ("PT", {**TEXT, "format": "duration"}, False),
        ("P1DT2H", {**TEXT, "format": "duration"}, True),
        ("li@wei", {**TEXT, "format": "email"}, False),
        ("anything", {**TEXT, "format": "uri"}, True),
    ],
)
def test_the_standard_form_is_checked(value: str, schema: dict[str, Any], *, fits: bool):
    assert is_in_format(value, schema) is fits


def test_places_are_those_of_the_message():
    message = "  １２月１號 下午３點，謝謝"
    (day,) = find_by_format(message, DATE)
    (hour,) = find_by_format(message, TIME)
    assert (message[day.start : day.end], day.value) == ("１２月１號", "2026-12-01")
    assert (message[hour.start : hour.end], hour.value) == ("３點", "15:00")


def test_hours_from_now_are_hours_where_the_clocks_change():
    now = datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo("Europe/London"))
    with situation(now, "en"):
        (found,) = find_by_format("in two hours", {**TEXT, "format": "date-time"})
    assert found.value == "2026-03-29T03:30:00+01:00"


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has the time zone of its settings")
def test_the_time_zone_of_this_machine_has_the_offset_of_the_date(monkeypatch: pytest.MonkeyPatch):
    def read(text: str) -> object:
        return parse_value(text, "x", MOMENT)

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        days = ("1 July 2099 at 3 pm", "1 January 2099 at 3 pm")
        found = [Context().run(read, day) for day in days]  # without the situation of this file
    time.tzset()
    assert found == ["2099-07-01T15:00:00+02:00", "2099-01-01T15:00:00+01:00"]


def test_one_message_fills_several_inputs():
    schemas = {"day": DATE, "time": TIME, "phone": {**TEXT, "format": "phone", "title": "电话"}}
    found = extract_slots("下周二下午两点半，电话 13800138000", schemas)
    assert {each.name: each.value for each in found} == {
        "day": "2026-12-01",
        "time": "14:30",
        "phone": "+8613800138000",
    }


def test_an_ambiguous_value_is_asked_about_with_its_choices():
    refused = find_rejected_value("三点吧", "time", TIME)
    assert refused is not None
    assert refused.choices == ("03:00", "15:00")
    assert Phrases("zh").rejection_text(refused) == "时间 / time：您指的是哪一个：03:00、15:00？"
    assert "which of these do you mean: 03:00, 15:00?" in Phrases("en").rejection_text(refused)
    assert find_rejected_value("不知道", "time", TIME) is None


@pytest.mark.parametrize(
    ("value", "format_", "zh", "en"),
    [
        ("2026-12-01", "date", "2026年12月1日（周二）", "Tuesday, 1 December 2026"),
        (
            "2026-12-01T15:00:00+08:00",
            "date-time",
            "2026年12月1日（周二） 15:00",
            "Tuesday, 1 December 2026 15:00",
        ),
        ("PT1H30M", "duration", "1小时30分钟", "1 hour 30 minutes"),
        ("P2W", "duration", "2周", "2 weeks"),
        ("15:00", "time", "15:00", "15:00"),
        ("soon", "date", "soon", "soon"),
    ],
)
def test_people_read_words(value: str, format_: str, zh: str, en: str):
    schema = {**TEXT, "format": format_}
    assert (format_in_words(value, schema, "zh"), format_in_words(value, schema, "en")) == (zh, en)


def test_what_a_model_or_a_client_gives_gets_its_standard_form():
    schema = {"type": "object", "properties": {"day": DATE, "note": TEXT}}
    given = {"day": "明天", "note": "明天"}
    assert normalise_formats(schema, given) == {"day": "2026-11-28", "note": "明天"}
    assert normalise_formats(schema, {"day": "2026-12-01"}) == {"day": "2026-12-01"}
    for text in ("下周", "2026-02-30"):
        with pytest.raises(InvalidInputError, match="'day' cannot be") as error:
            normalise_formats(schema, {"day": text})
        assert "a date, such as" in (error.value.advice or "")
    late = {"type": "object", "properties": {"day": {**DATE, "formatMinimum": "today"}}}
    with pytest.raises(InvalidInputError):
        normalise_formats(late, {"day": "2026-11-01"})


def test_a_correction_within_a_message_counts():
    assert read_by_format("Thursday - sorry, I meant Wednesday", DATE) == "2026-12-02"
    assert read_by_format("周三，不对，周四", DATE) == "2026-12-03"


def test_a_zone_has_a_name():
    zone = zone_of("Asia/Shanghai")
    assert zone is not None
    assert [zone_of(name) for name in ("Mars/Base", "Asia", "../etc/passwd", "", None)] == [None] * 5
    assert current_situation().now == NOW


@pytest.mark.parametrize(
    "unit", ["一", "1", "路", "省市区", "one ", "   ", "上", "week", "three and ", "a@", "dot a "]
)
def test_hostile_repetition_has_no_value(unit: str):
    message = (unit * 2000)[:2000]
    for name in ("date", "time", "date-time", "duration", "money", "phone", "email", "address"):
        assert parse_value(message, "x", {**TEXT, "format": name}) is MISSING
