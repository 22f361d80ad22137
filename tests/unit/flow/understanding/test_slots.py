from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.expressions.expression import MISSING
from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.understanding.slots import (
    RejectedValue,
    accepts_any_text,
    find_rejected_value,
    fits,
    parse_typed,
    parse_value,
    texts_within,
)

DAYS: dict[str, Any] = {"type": "integer", "title": "天數", "minimum": 1, "maximum": 30}


@pytest.mark.parametrize("text", ["3", "三天", "我想要請三天吧", "天数：3", "天數是三天"])
def test_a_value_is_read_whatever_stands_around_it(text: str) -> None:
    assert parse_value(text, "days", DAYS) == 3


@pytest.mark.parametrize("text", ["幾天？", "要幾天嗎", "很多"])
def test_a_question_holds_no_value(text: str) -> None:
    assert parse_value(text, "days", DAYS) is MISSING


@pytest.mark.parametrize(
    ("bounds", "text", "said"),
    [
        ({"minimum": 1, "maximum": 30}, "50天", "天数不能是50：只能是1到30。"),
        ({"minimum": 1}, "0", "天数不能是0：至少是1。"),
        ({"exclusiveMinimum": 1}, "1", "天数不能是1：至少是2。"),
        ({"maximum": 30}, "五十天吧", "天数不能是50：最多是30。"),
        ({"exclusiveMaximum": 30}, "30", "天数不能是30：最多是29。"),
        ({"multipleOf": 2}, "3", "这句话没有看懂。"),
    ],
)
def test_a_number_that_will_not_do_is_answered_with_the_limit(
    bounds: dict[str, Any], text: str, said: str
) -> None:
    refused = find_rejected_value(text, "days", {"type": "integer", "title": "天数", **bounds})
    assert refused is not None
    assert Phrases("zh").rejection_text(refused) == said


def test_what_fits_or_is_no_number_is_not_refused() -> None:
    assert find_rejected_value("三天", "days", DAYS) is None
    assert find_rejected_value("很多天", "days", DAYS) is None
    assert find_rejected_value("50天可以吗？", "days", DAYS) is None
    assert find_rejected_value("50", "reason", {"type": "string", "maxLength": 1}) is None


def test_some_fields_take_any_words() -> None:
    assert accepts_any_text("q", {"title": "您的問題"})
    assert accepts_any_text("message", {"type": "string"})
    assert not accepts_any_text("reason", {"title": "事由"})
    assert not accepts_any_text("message", {"type": "integer"})


@pytest.mark.parametrize("text", ["昨天请了三天假", "I took three days last week", "12月5日", "on the 4th"])
def test_what_has_been_and_what_is_a_date_is_no_number(text: str) -> None:
    assert parse_value(text, "days", DAYS) is MISSING


@pytest.mark.parametrize("text", ["三天可以吗？", "三天行嗎"])
def test_a_value_that_asks_whether_it_may_be_is_one(text: str) -> None:
    assert parse_value(text, "days", DAYS) == 3


PHONE = {"type": "string", "title": "手机号", "pattern": "^1[0-9]{10}$"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("call me at 13800138000", "13800138000"),
        ("13800138000吧", "13800138000"),
        ("13800138000，就是13800138000", "13800138000"),
        ("13800138000或者13900139000", MISSING),
        ("139", MISSING),
        ("13800138000是谁的号码？", MISSING),
    ],
)
def test_a_pattern_is_looked_for_in_the_text(text: str, value: object) -> None:
    assert parse_value(text, "phone", PHONE) == value


@pytest.mark.parametrize(
    ("schema", "value", "zh", "en"),
    [
        (DAYS, None, "天數：只能是1到30的整数。", "天數: a whole number, 1 to 30."),
        (DAYS, 3.5, "天數不能是3.5：只能是1到30的整数。", "天數 cannot be 3.5: a whole number, 1 to 30."),
        ({"type": "integer"}, None, "x：整数。", "x: a whole number."),
        ({"type": "number"}, None, "x：数字。", "x: a number."),
        ({"enum": ["a", "b"]}, None, "x：a、b。", "x: a, b."),
        (
            {"format": "date"},
            None,
            "x：日期，如12月1日或 2026-12-01。",
            "x: a date, such as 1 December or 2026-12-01.",
        ),
        ({"minLength": 2}, None, "x：至少2个字。", "x: at least 2 characters."),
        ({**PHONE, "description": "11 位"}, None, "手机号：11 位。", "手机号: 11 位."),
        (PHONE, None, "", ""),
    ],
)
def test_what_is_wanted_is_told_from_the_schema(
    schema: dict[str, Any], value: float | None, zh: str, en: str
) -> None:
    refused = RejectedValue("x", value, schema)
    assert Phrases("zh").describe_valid_values(refused) == zh
    assert Phrases("en").describe_valid_values(refused) == en
    assert Phrases("zh").rejection_text(refused).endswith(zh or "没有看懂。")


def test_a_value_fits_its_schema_or_not() -> None:
    assert (fits(3, "days", DAYS), fits(31, "days", DAYS)) == (True, False)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("３", {"type": "integer"}, 3),
        ("三天", {"type": "integer"}, 3),
        ("3.0", {"type": "integer"}, 3),
        ("半", {"type": "integer"}, MISSING),
        ("半", {"type": "number"}, 0.5),
        ("一点五", {"type": "number"}, 1.5),
        ("很多", {"type": "integer"}, MISSING),
        ("是的。", {"type": "boolean"}, True),
        ("No", {"type": "boolean"}, False),
        ("也许", {"type": "boolean"}, MISSING),
        (" 感冒 ", {"type": "string"}, "感冒"),
        ("感冒", {}, "感冒"),
        ("感冒", True, "感冒"),
        ("   ", {"type": "string"}, MISSING),
        ("2026年11月3日", {"type": "string", "format": "date"}, "2026-11-03"),
        ("２０２６/1/3", {"type": "string", "format": "date"}, "2026-01-03"),
        ("2026年13月3日", {"type": "string", "format": "date"}, MISSING),
        ("ＡＮＮＵＡＬ", {"enum": ["sick", "Annual"]}, "Annual"),
        ("事假", {"enum": ["病假", "事假"]}, "事假"),
        ("三", {"enum": [1, 3]}, 3),
        ("好", {"enum": [False, True]}, True),
        ("婚假", {"enum": ["病假", None]}, MISSING),
        ("三", {"type": ["null", "integer"]}, 3),
        ("不知道", {"type": ["integer", "string"]}, "不知道"),
        ("三", {"type": "array"}, MISSING),
        ("三", {"type": []}, "三"),
    ],
)
def test_what_is_said_becomes_a_value_of_the_type_that_is_wanted(
    text: str, schema: object, value: object
) -> None:
    found = parse_typed(text, schema)  # type: ignore[arg-type]
    assert found == value
    assert type(found) is type(value)


@given(st.text(max_size=30), st.sampled_from(["integer", "number", "boolean", "string"]))
def test_any_text_is_of_the_type_or_nothing(text: str, kind: str) -> None:
    found = parse_typed(text, {"type": kind})
    allowed = {"integer": int, "number": int | float, "boolean": bool, "string": str}[kind]
    assert found is MISSING or isinstance(found, allowed)


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("call me at 13800138000", "^1[0-9]{10}$", "13800138000"),
        ("BO20418吧", "^[Bb][Oo][0-9]{4,8}$", "BO20418"),
        ("我的是 ＢＯ20418 谢谢", "^[Bb][Oo][0-9]{4,8}$", "ＢＯ20418"),
        ("從下週一開始", "^下?周[一二三四五六日]$", "下週一"),
    ],
)
def test_a_value_is_found_within_other_words(text: str, pattern: str, found: str) -> None:
    assert next(texts_within(text, pattern)) == found


@pytest.mark.parametrize("text", ["138001380001", "x13800138000", "139", ""])
def test_a_part_of_a_longer_word_is_no_value(text: str) -> None:
    assert list(texts_within(text, "^1[0-9]{10}$")) == []


@pytest.mark.parametrize("pattern", ["(", "^$", "^.*$"])
def test_a_pattern_that_cannot_be_searched_for_finds_nothing(pattern: str) -> None:
    assert list(texts_within("abc", pattern)) == []


@given(st.text(max_size=200))
def test_any_text_can_be_searched(text: str) -> None:
    assert all(part for part in texts_within(text, "^[0-9]+[:：点]?$"))
