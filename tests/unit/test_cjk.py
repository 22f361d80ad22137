"""Where CJK script stands in a text."""

from __future__ import annotations

from loom_core.cjk import cjk_parts, is_chinese, is_cjk


def test_han_kana_and_hangul_are_cjk_and_nothing_else_is():
    assert all(map(is_cjk, "中かカ한ㄅ々"))
    assert not any(map(is_cjk, "aé1，ก "))


def test_a_text_is_cut_into_runs_and_the_gaps_around_them() -> None:
    assert cjk_parts("GraphRAG是，カナ 2") == (["GraphRAG", "，", " 2"], ["是", "カナ"])
    assert cjk_parts("plain") == (["plain"], [])
    assert cjk_parts("图谱") == (["", ""], ["图谱"])


def test_paths_and_addresses_say_nothing_of_the_language_of_a_text():
    assert is_chinese("把 /home/li/projects/2026/report/final.md 的要点写下来")
    assert is_chinese("看看 https://example.org/news/today 说了什么")
    assert not is_chinese("Sum up C:\\docs\\青岛.md and tell me")


def test_a_text_is_chinese_whatever_names_are_in_it():
    assert all(
        map(is_chinese, ["你好", "Kùzu 是什么？", "國立臺灣大學（National Taiwan University）在哪裡？"])
    )
    assert not any(
        map(is_chinese, ["", "hi", "Who wrote 红楼梦?", "東京は日本の首都です", "서울은 韓國의 수도"])
    )
