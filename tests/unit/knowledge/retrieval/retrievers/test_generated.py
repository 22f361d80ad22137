from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.retrieval.retrievers.expansion import parse_passage, parse_variants


def _parsed(answer: str, *, query: str = "How do cats sleep?", n: int = 3) -> list[str]:
    return parse_variants(answer, query=query, n=n)


@pytest.mark.parametrize(
    "answer",
    [
        '["alpha one", "beta two"]',
        '```json\n["alpha one", "beta two"]\n```',
        'Here you are:\n```\n["alpha one",\n "beta two"]\n```\nI hope this helps!',
        'Sure: ["alpha one", "beta two"]',
        '{"queries": ["alpha one", "beta two"]}',
        '{"note": "two of them", "variants": ["alpha one", "beta two"]}',
        '[{"id": 1, "kind": "synonym", "query": "alpha one"}, {"id": 2, "query": "beta two"}]',
        '{"1": "alpha one", "2": "beta two"}',
        '["alpha one", "beta two", "gam',
        '{"queries": ["alpha one", "beta two", "gam',
        "1. alpha one\n2. beta two",
        "1) alpha one\n\n2）beta two",
        "(1) alpha one\n（2）beta two",
        "Here are two variants of it:\n- alpha one\n- beta two\nShall I write more?",
        "• alpha one\n• beta two",
        "**1.** alpha one\n**2.** beta two",
        '"alpha one",\n"beta two",',
        "Query 1: “alpha one”\nQuery 2: 「beta two」",
        "问题一：alpha one\n问题二：beta two",
        "Variants：\nalpha one\nbeta two",
        '<think>[“no”]</think>["alpha one", "beta two"]',
        '["alpha one", "ALPHA  ONE?", "ａｌｐｈａ one", "", "  ", "beta two", "???"]',
        '["How do cats sleep", "alpha one", "beta two"]',
        '["alpha\\none", "beta\\u0000two", "\\ud83d"]',
        json.dumps(["alpha one", "x" * 401, "beta two"]),
    ],
)
def test_variants_are_read_from_whatever_form_the_model_chose(answer: str):
    assert _parsed(answer) == ["alpha one", "beta two"]


@pytest.mark.parametrize(
    "answer",
    ["", "   ", "[]", "{}", "```json\n[]\n```", "<think>cut off", "[[[[[[" * 4000, "[1, 2, null]", '["\\x"'],
)
def test_an_answer_without_variants_gives_none(answer: str):
    assert _parsed(answer) == []


def test_no_more_variants_than_asked_for_are_taken():
    assert _parsed(json.dumps([f"variant {i}" for i in range(9)]), n=2) == ["variant 0", "variant 1"]


def test_versions_and_signs_at_the_start_of_a_line_are_kept():
    assert _parsed("3.5版本有什么变化\n-5 degrees and cats\n12:30 trains") == [
        "3.5版本有什么变化",
        "-5 degrees and cats",
        "12:30 trains",
    ]


def test_names_that_differ_by_a_sign_are_different_variants():
    assert _parsed('["What is C++?", "What is C#?", "What is C?"]') == [
        "What is C++?",
        "What is C#?",
        "What is C?",
    ]


def test_brackets_within_a_line_are_not_taken_for_the_list():
    assert _parsed('1. What does ["a"] mean?\n2. beta two') == ['What does ["a"] mean?', "beta two"]


_PIECES = st.sampled_from(
    [
        "[",
        "]",
        '"',
        "{",
        "}",
        ",",
        ":",
        "\\",
        "\n",
        "1. ",
        "- ",
        "```",
        "<think>",
        "</think>",
        "问题1：",
        "cat",
        "猫",
    ]
)


@pytest.mark.slow
@given(
    st.one_of(
        st.text(st.characters(codec=None)),
        st.lists(_PIECES, max_size=40).map("".join),
        st.recursive(
            st.text(st.characters(codec=None)) | st.none() | st.integers(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).map(json.dumps),
    ),
    st.text(),
    st.integers(1, 10),
)
def test_any_answer_gives_at_most_n_clean_variants_and_no_error(answer: str, query: str, n: int):
    found = parse_variants(answer, query=query, n=n)
    assert len(found) <= n
    assert len({unicodedata.normalize("NFKC", line).casefold() for line in found}) == len(found)
    for line in found:
        line.encode("utf-8")
        assert line == " ".join(line.split())
        assert 0 < len(line) <= 400
        assert not any(unicodedata.category(char) == "Cc" for char in line)


@given(st.text(st.characters(codec=None)))
def test_any_answer_gives_a_clean_passage_and_no_error(answer: str):
    passage = parse_passage(answer)
    passage.encode("utf-8")
    assert len(passage) <= 2000
    assert passage == passage.strip()
    assert not any(unicodedata.category(char) == "Cc" for char in passage.replace("\n", ""))
