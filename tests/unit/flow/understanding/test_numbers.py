from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.understanding.numbers import (
    counts_other_unit,
    has_own_unit,
    has_unit,
    number_in,
    number_of,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3), ("３", 3), (" -2 ", -2), ("1,200", 1200), ("1.5", 1.5), ("三", 3), ("兩", 2), ("十", 10),
        ("十二", 12), ("三十二", 32), ("一百零五", 105), ("三百五", 350), ("两千零六", 2006),
        ("一万二", 12_000), ("三万五千", 35_000), ("十万", 100_000), ("一亿三千万", 130_000_000),
        ("壹佰", 100), ("二〇二六", 2026), ("半", 0.5), ("三点五", 3.5), ("three", 3), ("Twenty-One", 21),
        ("a dozen", 12), ("half", 0.5), ("two hundred", 200), ("twenty thirty", None), ("两三", None),
        ("十十", None), ("三天", None), ("", None), ("no", None), ("1.2.3", None), ("1,20", None),
        ("千万", 10_000_000), ("万", None), ("万一", None), ("亿", None),
        ("9" * 30, None),
    ],
)  # fmt: skip
def test_a_number_is_read_as_people_write_it(text: str, number: float | None) -> None:
    found = number_of(text)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("三天", 3), ("3 days", 3), ("大概５天吧", 5), ("a day or two", 2), ("改成十二个", 12),
        ("3到5天", None), ("三天半", None), ("明天", None), ("a day", None),
        ("一共三天", 3), ("一共３天", 3), ("总共三天", 3), ("從周一到周三，一共三天", 3), ("一共一天", 1),
        ("我们一起去，两个人", 2), ("請等一下", None), ("一下子要五个", 5), ("一下午", 1),
        ("等一会儿，要4个", 4), ("一會兒", None), ("一会议室", 1), ("一般是两天", 2), ("统一订六份", 6),
        ("統一", None), ("一些", None), ("一样的来三份", 3), ("一定要10个", 10), ("一直请到周五", None),
        ("从周一一直到周四", None),
        ("一连请五天", 5), ("一次性请三天", 3), ("万一不够就八个", 8), ("千万别超过9个", 9),
        ("一千万元", 10_000_000), ("一点儿", None), ("一点五", 1.5), ("二十一起", 21), ("十一件", 11),
        ("第一次请，请三天", 3), ("第二个", 2), ("第十二", 12), ("第一和第二", None), ("唯一的一个", 1),
        ("星期三", None), ("同一天", None), ("一半", None), ("多半", None),
    ],
)  # fmt: skip
def test_the_only_number_of_a_text_is_found(text: str, number: float | None) -> None:
    assert number_in(text) == number


@pytest.mark.hostile("expressions and configurations")
@given(st.text(alphabet="零〇一二两三九十百千万亿点半 -,.123aonetwenty", max_size=12))
def test_any_text_is_a_number_or_none(text: str) -> None:
    found = number_of(text)
    assert found is None or isinstance(found, int | float)
    assert found is None or number_in(text) in {found, None}


@given(st.integers(0, 99_999))
def test_chinese_numbers_mean_what_they_say(number: int) -> None:
    digits = "零一二三四五六七八九"
    written, rest, zero = "", number, False
    for unit, name in ((10_000, "万"), (1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, rest = divmod(rest, unit)
        if digit:
            written += ("零" if zero and written else "") + digits[digit] + name
            zero = False
        else:
            zero = True
    assert number_of(written or "零") == number


DAYS = ["days", "天数"]


@pytest.mark.parametrize("text", ["三天", "3天假", "兩天", "two days", "2 days off", "十五个工作天"])
def test_days_are_counted_in_days(text: str) -> None:
    assert has_own_unit(text, DAYS)
    assert not counts_other_unit(text, DAYS)


@pytest.mark.parametrize("text", ["三晚", "两个晚上", "两夜", "3 nights"])
def test_nights_are_no_days_and_the_evening_of_a_weekday_is_no_night(text: str) -> None:
    assert has_own_unit(text, ["nights", "住几晚"])
    assert counts_other_unit(text, DAYS)
    assert not has_own_unit("周三晚上，半夜", ["住几晚"])


@pytest.mark.parametrize(
    "text", ["December 5", "5 Dec", "the 4th", "3号", "12月3日", "下午3点", "15:30", "4 pm", "3个人", "50元"]
)
def test_a_date_a_time_and_other_amounts_are_no_days(text: str) -> None:
    assert counts_other_unit(text, DAYS)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("3", DAYS),
        ("3个", DAYS),
        ("三天", ["n", "数量"]),
        ("5th", ["floor"]),
        ("3个人", ["guests"]),
        ("3点", ["hour", "几点"]),
    ],
)
def test_what_an_input_does_not_say_may_be_counted_in_anything(text: str, names: list[str]) -> None:
    assert not counts_other_unit(text, names)


def test_a_date_is_nothing_that_is_counted_whatever_the_input() -> None:
    assert counts_other_unit("December 5", ["n", "数量"])
    assert [has_unit(each) for each in (DAYS, ["数量"], ["birthday"])] == [True, False, False]
