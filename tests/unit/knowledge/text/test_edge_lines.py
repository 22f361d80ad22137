"""The lines by which documents that begin or end alike find each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.edge_lines import edge_lines, is_boilerplate, is_repeated

LICENCE = ["# Licensed under the Apache License, Version 2.0.", "# You may not use this file otherwise."]


def lines_of(text: str, *, edge: bool) -> set[int]:
    return {line.line for line in edge_lines(text) if line.edge is edge}


def hashes(*lines: str) -> set[int]:
    return {line.line for line in edge_lines("\n".join(lines))}


def test_case_spaces_and_lines_of_marks_make_no_difference():
    assert set(edge_lines("Part of the  Git suite\n\n---\n  本页由计划提供。\n")) == set(
        edge_lines("part of the git SUITE\n本页由计划提供。")
    )


def test_a_short_text_is_all_edges():
    text = "\n".join(f"Line {number} of a text" for number in range(40))
    assert len(lines_of(text, edge=True)) == 40
    assert not lines_of(text, edge=False)


def test_of_a_long_text_the_lines_between_are_a_sample():
    text = "\n".join(f"Line {number} of a long text" for number in range(500))
    assert lines_of(text, edge=True) == hashes(
        *(f"Line {number} of a long text" for number in (*range(20), *range(480, 500)))
    )
    assert len(lines_of(text, edge=False)) == 16


def test_texts_that_share_lines_between_their_edges_share_samples_wherever_these_lines_are():
    body = [f"Paragraph {number} of the manual." for number in range(200)]
    one = "\n".join([*(f"First {n}" for n in range(20)), *body, *(f"Last {n}" for n in range(20))])
    other = "\n".join([*(f"Other {n}" for n in range(33)), *body, *(f"End {n}" for n in range(27))])
    shared = lines_of(one, edge=False) & lines_of(other, edge=False)
    assert len(shared) >= 10


def test_a_passage_is_boilerplate_if_three_quarters_of_it_are_repeated_lines():
    repeated = hashes(*LICENCE)
    assert is_boilerplate("\n".join(["# Copyright 2026 Ada", *LICENCE]), repeated)
    assert not is_boilerplate(
        "\n".join([*LICENCE, "import os", "def main() -> None: ...  # all of it"]), repeated
    )
    assert not is_boilerplate("---", repeated)
    assert not is_boilerplate("", repeated)


def test_chinese_boilerplate_is_found():
    repeated = hashes("本页面中文版由中文手册页计划提供。")
    assert is_boilerplate("跋\n\n本页面中文版由中文手册页计划提供。", repeated)
    assert not is_boilerplate("李白是唐代诗人，生于碎叶城。\n\n本页面中文版由中文手册页计划提供。", repeated)


def test_a_document_is_repeated_itself_if_more_than_half_of_it_is():
    lines = edge_lines("One line here\nTwo line here\nSix line here")
    assert is_repeated(lines, hashes("One line here", "Two line here"))
    assert not is_repeated(lines, hashes("One line here"))
    assert not is_repeated([], set())


@given(st.text(alphabet="ab 中\n-\ud800", max_size=300))
def test_any_text_has_lines_and_the_same_ones_each_time(text: str):
    lines = edge_lines(text)
    assert lines == edge_lines(text)
    assert len({line.line for line in lines}) == len(lines) <= 56
    assert is_boilerplate(text, {line.line for line in lines}) is bool(lines)
