from __future__ import annotations

import rjieba
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.tagging import tagged_words

texts = st.text(alphabet="北京大学是中国的约翰·史密斯說𠮷野家あカab1 ，。\n")


@given(texts)
def test_words_stand_where_they_are_said_to(text: str):
    for word, _, start in tagged_words(text):
        assert len(word) > 1
        assert text[start : start + len(word)] == word


@given(texts)
def test_runs_that_are_cut_together_are_cut_as_each_alone(text: str):
    lines = text.split("\n")
    assert [w[:2] for w in tagged_words(text)] == [w[:2] for line in lines for w in tagged_words(line)]


def test_a_run_has_the_words_and_tags_of_jieba():
    run = "北京大学的约翰·史密斯教授"
    expected = [(word, tag) for word, tag in rjieba.tag(run) if len(word) > 1]
    assert [(word, tag) for word, tag, _ in tagged_words(f"He met {run}!")] == expected


def test_text_without_chinese_has_none():
    assert tagged_words("Café · John") == ()
