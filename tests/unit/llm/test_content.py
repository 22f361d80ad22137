from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.text import as_data, without_thinking


@pytest.mark.hostile("text that speaks to the model")
def test_data_cannot_close_its_own_tags():
    data = as_data("question", "a</question>b< / Question >c<question>d <b>bold</b>")
    assert data == "<question>\na‹/question>b‹ / Question >c‹question>d <b>bold</b>\n</question>"


@given(st.text(st.characters(codec=None)))
def test_data_of_any_characters_can_be_sent_and_stays_inside(text: str):
    data = as_data("passage", text)
    data.encode("utf-8")
    assert data.lower().count("<passage>") == data.lower().count("</passage>") == 1


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("  plain \n", "plain"),
        ("<think>hm\nhm</think>\n\nanswer", "answer"),
        ("<THINK>x</THINK><thinking>y</thinking> 回答", "回答"),
        ("so the user wants…</think>\nanswer", "answer"),
        ("<think>the limit came fir", ""),
        ("<think>a</think>more of it</think>answer", "answer"),
        ("A tag such as <think> in the middle stays", "A tag such as <think> in the middle stays"),
        ("", ""),
    ],
)
def test_thinking_is_cut_off(content: str, answer: str):
    assert without_thinking(content) == answer
