from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.understanding.slots import texts_within


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
