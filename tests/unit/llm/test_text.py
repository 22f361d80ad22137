from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.llm.text import as_data, json_values, without_thinking


@pytest.mark.hostile("JSON and schemas")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ('好的，结果如下：\n```json\n{"名称": "长江"}\n```\n希望有帮助。', [{"名称": "长江"}]),
        ('<think>{"a": 0}?</think>{"a": 1}', [{"a": 1}]),
        ('First {"a": 1}, then [2, {"b": 3}].', [{"a": 1}, [2, {"b": 3}]]),
        ('{"a": "{ \\" ]"}', [{"a": '{ " ]'}]),
        ('{"a": [1, 2,], "b": ",]",\n}', [{"a": [1, 2], "b": ",]"}]),
        ('{"a": "two\nlines"}', [{"a": "two\nlines"}]),
        ('Use {braces} as in {"a": 1}', [{"a": 1}]),
        ('a 5" pipe: {"a": 1}', [{"a": 1}]),
        ("no JSON at all", []),
        ("", []),
        ("<think>never ending {}", []),
        ('{"a": NaN}', []),
        ('{"a": 1e999}', []),
        ('{"a": 1.5e3}', [{"a": 1500.0}]),
        ('{"a": 1]', []),
        ('{"items": [{"name": "a"}, {"na', []),
        ('{"a": 1} {"b": "cut \\', [{"a": 1}]),
        ("[" * 3000 + "]" * 3000, []),
    ],
)
def test_objects_and_lists_are_found_whatever_stands_around_them(answer: str, expected: list[object]):
    assert json_values(answer) == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=4), parts, max_size=3),
    max_leaves=8,
)
_WHOLE = st.lists(_JSON, max_size=3) | st.dictionaries(st.text(max_size=4), _JSON, max_size=3)


@settings(max_examples=60)
@given(value=_WHOLE, ascii_only=st.booleans(), cut=st.integers(1, 40))
def test_what_is_whole_is_read_as_it_is_and_what_is_cut_off_is_not_there(
    value: Any, ascii_only: bool, cut: int
):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json_values(f"答：{text}。") == [value]
    assert json_values(text[: max(0, len(text) - cut)]) == []


@settings(max_examples=60)
@given(st.text('{}[]",:\\a1 \n', max_size=60))
def test_any_answer_can_be_read(answer: str):
    for value in json_values(answer):
        assert isinstance(value, dict | list)


@pytest.mark.hostile("JSON and schemas")
def test_a_huge_hostile_answer_is_read_in_time_that_grows_with_its_length():
    for answer in ('{"' + '\\"' * 50_000, "{" * 50_000, '{"a":' * 20_000, "{,]" * 10_000):
        assert json_values(answer) == []


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
