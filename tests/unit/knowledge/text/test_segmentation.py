from __future__ import annotations

import rjieba
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.segmentation import segment_for_search, tag_words

texts = st.text(alphabet="北京大学是中国的约翰·史密斯說𠮷野家あカab1 ，。\n")


@given(texts)
def test_words_stand_where_they_are_said_to(text: str):
    for word, _, start in tag_words(text):
        assert len(word) > 1
        assert text[start : start + len(word)] == word


@given(texts)
def test_runs_that_are_cut_together_are_cut_as_each_alone(text: str):
    lines = text.split("\n")
    assert [w[:2] for w in tag_words(text)] == [w[:2] for line in lines for w in tag_words(line)]


def test_a_run_has_the_words_and_tags_of_jieba():
    run = "北京大学的约翰·史密斯教授"
    expected = [(word, tag) for word, tag in rjieba.tag(run) if len(word) > 1]
    assert [(word, tag) for word, tag, _ in tag_words(f"He met {run}!")] == expected


def test_text_without_chinese_has_none():
    assert tag_words("Café · John") == ()


@given(st.lists(st.text(alphabet="北京大学是中国的约翰史密斯說𠮷野家中华人民共和々〇あカー한", min_size=1)))
def test_each_run_has_the_words_that_jieba_cuts_for_search(runs: list[str]):
    assert segment_for_search(runs) == [rjieba.cut_for_search(run) for run in runs]


def test_words_inside_of_long_ones_come_before_them():
    assert segment_for_search(["中华人民共和国", "图谱"]) == [
        ["中华", "华人", "人民", "共和", "共和国", "中华人民共和国"],
        ["图谱"],
    ]


def test_what_stands_between_runs_of_any_script_moves_the_words_behind_it():
    assert tag_words("ok! 北京 の 上海·大学") == (("北京", "ns", 4), ("上海", "ns", 9), ("大学", "n", 12))
