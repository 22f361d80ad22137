"""Which entities a question names."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.retrieval.graph_expansion import named_entities

NAMES = (
    "York",
    "New York City",
    "The Silent Harbour",
    "Mara Lindqvist",
    "厦门",
    "厦门大学",
    "林若曦",
    "港",
    "HTTPClient",
    "the",
    "什么",
    "WHO",
)


@pytest.fixture
def named(web):
    """Names of the entities that a question names."""
    record, keys = web(dict.fromkeys(NAMES, ()))
    of = {about.entity: name for name in NAMES for about in record.graph.abouts_in([keys[name]])}
    return lambda question: [of[entity.key] for entity in named_entities(question, record.graph)]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Who lives in New York City?", ["New York City"]),
        ("What does the WHO say of York?", ["WHO", "York"]),
        ("世卫组织 WHO 在厦门吗？", ["WHO", "厦门"]),
        ("WHO LIVES IN YORK?", ["York"]),
        ("Is York older than New York City?", ["York", "New York City"]),
        ("Who made the silent harbour's music?", ["The Silent Harbour"]),
        ("Did MARA LINDQVIST visit York or York?", ["Mara Lindqvist", "York"]),
        ("厦门大学在厦门吗？", ["厦门大学", "厦门"]),
        ("林若曦生于哪里？", ["林若曦"]),
        ("Is 林若曦 from York?", ["林若曦", "York"]),
        ("ＹＯＲＫ", ["York"]),
        ("How is `HTTPClient` used?", ["HTTPClient"]),
    ],
)
def test_the_longest_names_count_in_the_order_of_the_question(named, question, names):
    assert named(question) == names


@pytest.mark.parametrize(
    "question", ["", "?", "the of", "什么", "港在哪里", "Yorkshire", "where is it", "🙂"]
)
def test_stop_words_single_characters_and_parts_of_words_name_nothing(named, question):
    assert named(question) == []


@pytest.mark.parametrize(
    ("question", "sure"),
    [
        ("Where is York?", [True]),
        ("where is york?", [False]),
        ("who made the silent harbour", [True]),
        ("厦门在哪里", [True]),
    ],
)
def test_a_single_word_written_like_any_other_is_not_surely_a_name(web, question, sure):
    record, _ = web(dict.fromkeys(NAMES, ()))
    assert [entity.sure for entity in named_entities(question, record.graph)] == sure


def test_of_a_very_long_question_only_the_beginning_is_looked_at(named):
    assert named("York " + "word " * 100_000 + "厦门") == ["York"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=st.lists(st.sampled_from([*NAMES, "in", "与", "x", "?"]), max_size=12))
def test_nothing_is_named_that_is_not_there_and_nothing_twice(named, words):
    question = " ".join(words)
    found = named(question)
    assert len(found) == len(set(found))
    assert all(name.removeprefix("The ").casefold() in question.casefold() for name in found)
