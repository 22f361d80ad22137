"""Questions about the documents as a whole, told from questions about one thing.

`tests/fixtures/global_questions.tsv` has three lists: the first was written with the rules, the two others
by writers who had not seen them. `benchmarks/overview.py` has the share of each that is recognised.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from loom_core.knowledge.overview.global_questions import GlobalQuestion, parse_global_question

LIST = Path(__file__).parents[3] / "fixtures" / "global_questions.tsv"
with LIST.open(encoding="utf-8", newline="") as file:
    QUESTIONS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def kind_of(question: str) -> str:
    parsed = parse_global_question(question)
    return "local" if parsed is None else "focus" if parsed.focus else "all"


def test_no_question_about_one_thing_is_taken_for_a_global_one():
    local = [row["question"] for row in QUESTIONS if row["kind"] == "local"]
    assert len(local) > 200
    assert [question for question in local if kind_of(question) != "local"] == []


@pytest.mark.parametrize("kind", ["all", "focus"])
def test_most_global_questions_are_recognised(kind):
    found = Counter(kind_of(row["question"]) == kind for row in QUESTIONS if row["kind"] == kind)
    assert found[True] > 4 * found[False]


@pytest.mark.parametrize(
    ("question", "focus"),
    [
        ("What are the main risks that these contracts name?", "risks"),
        ("Summarize the security requirements across all policies", "security requirements"),
        ("这些合同提到的主要风险有哪些？", "风险"),
        ("各个制度对请假有什么规定？", "请假"),
    ],
)
def test_the_focus_is_what_is_left_without_the_words_for_the_documents(question, focus):
    assert parse_global_question(question) == GlobalQuestion(focus)


@pytest.mark.parametrize(
    "question",
    [
        "WHAT ARE THESE DOCUMENTS ABOUT???",
        "  what’s in here ",
        "I have just started. What do these files cover?",
        "这个知识库里，有什么内容？",
        "谢谢！能概括一下这些资料吗",
    ],
)
def test_case_punctuation_and_other_clauses_do_not_count(question):
    assert parse_global_question(question) == GlobalQuestion()


@pytest.mark.parametrize("question", ["", "?", "。。。", "a" * 5000, "what is " * 500, "这些文档" * 200])
def test_what_is_no_question_is_no_global_one(question):
    assert parse_global_question(question) is None
