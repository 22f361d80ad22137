from __future__ import annotations

import math

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.validation import check_limit, check_question, question_text, require_positive


def test_numbers_above_zero_and_those_that_are_not_set_pass():
    require_positive(top_k=1, seconds=0.01, kept=None)


@pytest.mark.parametrize("number", [0, -1, -0.5, math.nan])
def test_any_other_number_is_refused_by_its_name(number):
    with pytest.raises(ConfigError) as caught:
        require_positive(top_k=5, seconds=number)
    assert caught.value.message == f"seconds is {number}."
    assert caught.value.advice == "Use a number above 0."


def test_the_refusal_says_what_the_setting_is_of():
    with pytest.raises(ConfigError, match=r"^timeout of the reranker llm is 0\."):
        require_positive(of="the reranker llm", timeout=0)


@pytest.mark.parametrize("query", ["", " \n\t", "\u3000"])
def test_a_question_of_white_space_is_refused_with_advice(query):
    for check in (check_question, question_text):
        with pytest.raises(InvalidInputError, match=r"empty\. Ask in a few words"):
            check(query)


def test_a_question_is_read_without_the_white_space_around_it_and_up_to_a_length():
    check_question(" 港长是谁？ ")
    assert question_text("\u3000港长 是谁？\n") == "港长 是谁？"
    assert question_text("谁" * 10_000) == "谁" * 8000


@pytest.mark.parametrize("limit", [0, -1, 101, True, 2.0, "5", None])
def test_a_limit_that_is_no_whole_number_in_its_range_is_refused(limit):
    with pytest.raises(InvalidInputError) as caught:
        check_limit(limit, most=100)
    assert caught.value.message == f"limit is {limit!r}."
    assert caught.value.advice == "Use 1 to 100."


def test_a_limit_in_its_range_passes_and_is_called_as_the_caller_does():
    check_limit(1, most=100)
    check_limit(100, most=100)
    with pytest.raises(InvalidInputError, match=r"^top_k is 0\."):
        check_limit(0, most=100, name="top_k")
