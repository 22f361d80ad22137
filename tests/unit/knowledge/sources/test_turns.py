from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.sources.small_talk import needs_retrieval


@pytest.mark.parametrize(
    "message",
    ["", "  ", "!!!", "👍", "Hi", "hello there!", "Thank you so much.", "OK, go on", "Yes.", "never mind",
     "你好", "好的，谢谢！", "继续", "嗯", "不是", "明白了，辛苦了", "早上好！"],
)  # fmt: skip
def test_manners_need_no_search(message):
    assert not needs_retrieval(message)


@pytest.mark.parametrize(
    "message",
    ["Who approved the budget?", "ok, and who approved it?", "budget", "why", "Hello, where is Visby?",
     "谁批准了预算？", "好的，那预算是多少？", "继续说说港口", "不是预算，是工期", "1901", "good harbours"],
)  # fmt: skip
def test_what_may_be_a_question_is_searched_for(message):
    assert needs_retrieval(message)


@given(st.lists(st.sampled_from(["不是", "不", "是的", "是", "ok", "okay", "good", " ", "x"]), max_size=60))
def test_no_message_takes_long(parts):
    assert needs_retrieval("".join(parts)) in {True, False}
