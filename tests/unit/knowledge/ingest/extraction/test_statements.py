"""Statements between two entities."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction.statements import find_predicate


@pytest.mark.parametrize(
    ("between", "first", "second", "stated"),
    [
        (" is an", "product", "term", ("is a", False)),
        (" is a distributed", "product", "term", ("is a", False)),
        (", also known as", "person", "person", ("alias of", False)),
        (" is part of the ", "api", "product", ("part of", False)),
        (" of the ", "clause", "law", ("part of", False)),
        (" ", "command", "option", ("has option", False)),
        (" option of ", "option", "command", ("has option", True)),
        (" package provides ", "product", "command", ("provided by", True)),
        (" such as ", "term", "product", ("is a", True)),
        (" parameter of ", "api", "api", ("has parameter", True)),
        (" defaults to ", "config", "config", ("has value", False)),
        (" may raise ", "api", "error", ("raises", False)),
        (" depends on ", "product", "product", ("requires", False)),
        (" has been replaced by ", "command", "command", ("deprecated by", False)),
        (" was written by ", "work", "person", ("created by", False)),
        (" wrote ", "person", "work", ("created by", True)),
        (" was founded by ", "organisation", "person", ("founded by", False)),
        (" was born in ", "person", "place", ("located in", False)),
        (" is licensed under the terms of the ", "product", "law", ("governed by", False)),
        ("`, released in ", "product", "date", ("dated", False)),
        (" inhibits ", "term", "term", ("affects", False)),
    ],
)
def test_words_between_two_entities_state_a_relation(between: str, first: str, second: str, stated: object):
    assert find_predicate(between, first, second, ".", is_chinese=False) == stated


@pytest.mark.parametrize(
    ("between", "first", "second", "after", "stated"),
    [
        ("是一种", "product", "term", "。", ("is a", False)),
        ("的参数", "api", "api", "", ("has parameter", False)),
        ("出生于", "person", "place", "。", ("located in", False)),
        ("由", "product", "person", "开发。", ("created by", False)),
        ("由", "organisation", "person", "创立", ("founded by", False)),
        ("的作者是", "work", "person", "", ("created by", False)),
        ("由", "organisation", "organisation", "组成", ("part of", True)),
        ("由", "term", "term", "代表", None),
        ("创作了《", "person", "work", "》", ("created by", True)),
        ("也支持", "product", "term", "。", ("supports", False)),
        ("不支持", "product", "term", "。", None),
    ],
)
def test_chinese_words_do_so_too(between: str, first: str, second: str, after: str, stated: object):
    assert find_predicate(between, first, second, after, is_chinese=True) == stated


@pytest.mark.parametrize(
    ("between", "first", "second"),
    [
        (" is not part of ", "api", "product"),
        (" was not written by ", "work", "person"),
        (" and ", "product", "product"),
        (" is used when the server that supports ", "product", "term"),
        (" in ", "person", "date"),
        ("(", "product", "api"),
        (" files such as ", "term", "file"),
    ],
)
def test_a_negation_or_a_longer_sentence_states_nothing(between: str, first: str, second: str):
    assert find_predicate(between, first, second, "", is_chinese=False) is None
