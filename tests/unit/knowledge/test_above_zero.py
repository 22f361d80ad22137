from __future__ import annotations

import math

import pytest

from loom_core.errors import ConfigError
from loom_core.knowledge.validation import check_above_zero


def test_numbers_above_zero_and_those_that_are_not_set_pass():
    check_above_zero(top_k=1, seconds=0.01, kept=None)


@pytest.mark.parametrize("number", [0, -1, -0.5, math.nan])
def test_any_other_number_is_refused_by_its_name(number):
    with pytest.raises(ConfigError) as caught:
        check_above_zero(top_k=5, seconds=number)
    assert caught.value.message == f"seconds is {number}."
    assert caught.value.advice == "Use a number above 0."


def test_the_refusal_says_what_the_setting_is_of():
    with pytest.raises(ConfigError, match=r"^timeout of the reranker llm is 0\."):
        check_above_zero(of="the reranker llm", timeout=0)
