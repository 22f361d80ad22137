"""Traditional and simplified Chinese as one script."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.scripts import to_simplified


def test_traditional_characters_become_simplified_ones() -> None:
    assert to_simplified("國立臺灣大學的圖書館") == "国立台湾大学的图书馆"


def test_text_without_chinese_comes_back_as_it_is() -> None:
    text = "Plain text, naïve Ünïcödé и кириллица, ひらがな"
    assert to_simplified(text) == text


def test_simplified_text_stays_as_it_is() -> None:
    text = "中华人民共和国的首都是北京，人口两千多万。后来，皇后说：面条很好吃。"
    assert to_simplified(text) == text


@given(st.text())
def test_folding_keeps_the_length_and_folds_all_at_once(text: str) -> None:
    folded = to_simplified(text)
    assert len(folded) == len(text)
    assert to_simplified(folded) == folded


@given(st.text(alphabet=st.characters(min_codepoint=0x3400, max_codepoint=0x9FFF)))
def test_folding_and_normalising_may_come_in_any_order(text: str) -> None:
    normalised = unicodedata.normalize("NFKC", text)
    assert to_simplified(normalised) == unicodedata.normalize("NFKC", to_simplified(text))
