"""Where CJK script stands in a text."""

from __future__ import annotations

from loom_core.cjk import cjk_parts, is_cjk


def test_han_kana_and_hangul_are_cjk_and_nothing_else_is():
    assert all(map(is_cjk, "中かカ한ㄅ々"))
    assert not any(map(is_cjk, "aé1，ก "))


def test_a_text_is_cut_into_runs_and_the_gaps_around_them() -> None:
    assert cjk_parts("GraphRAG是，カナ 2") == (["GraphRAG", "，", " 2"], ["是", "カナ"])
    assert cjk_parts("plain") == (["plain"], [])
    assert cjk_parts("图谱") == (["", ""], ["图谱"])
