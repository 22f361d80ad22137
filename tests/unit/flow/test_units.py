from __future__ import annotations

import pytest

from loom_core.flow.understanding.numbers import counts_else, has_own_unit, has_unit

DAYS = ["days", "天数"]


@pytest.mark.parametrize("text", ["三天", "3天假", "兩天", "two days", "2 days off", "十五个工作天"])
def test_days_are_counted_in_days(text: str) -> None:
    assert has_own_unit(text, DAYS)
    assert not counts_else(text, DAYS)


@pytest.mark.parametrize(
    "text", ["December 5", "5 Dec", "the 4th", "3号", "12月3日", "下午3点", "15:30", "4 pm", "3个人", "50元"]
)
def test_a_date_a_time_and_other_amounts_are_no_days(text: str) -> None:
    assert counts_else(text, DAYS)


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
    assert not counts_else(text, names)


def test_a_date_is_nothing_that_is_counted_whatever_the_input() -> None:
    assert counts_else("December 5", ["n", "数量"])
    assert [has_unit(each) for each in (DAYS, ["数量"], ["birthday"])] == [True, False, False]
