"""Names together beyond chance, how much an entity says, and paths that avoid hubs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.interface import EntityEdge
from loom_core.knowledge.model import RELATED
from loom_core.knowledge.overview.associations import (
    by_strength,
    find_path,
    informativeness,
    related_pairs,
    strength,
)
from loom_core.knowledge.rag import GraphRAGKnowledgeBase


def near(one: int, other: int, sure: float = 0.9, support: int = 1) -> EntityEdge:
    return EntityEdge(one, RELATED, other, support, sure)


def stated(one: int, other: int, confidence: float = 0.8) -> EntityEdge:
    return EntityEdge(one, "part of", other, 1, confidence)


def test_two_frequent_names_that_met_once_are_not_related():
    assert strength(1, 500, 400, 1000) == 0


def test_two_names_that_are_only_together_are_related_the_surer_the_more_often():
    values = [strength(times, times, times, 1000) for times in (1, 2, 5, 100)]
    assert values == sorted(values)
    assert values[0] == 0.25
    assert values[3] > 0.9


def test_frequent_names_are_related_if_they_meet_far_more_often_than_by_chance():
    # By chance they would meet in 6 passages.
    assert strength(8, 300, 200, 10_000) == 0
    assert strength(21, 300, 200, 10_000) > 0


def test_a_rare_name_that_a_frequent_one_met_once_is_not_related_to_it():
    assert strength(1, 200, 1, 10_000) == 0


def test_in_a_few_passages_chance_cannot_be_told():
    assert strength(1, 5, 5, 6) > 0


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.integers(0, 10_000))
def test_a_strength_is_from_0_to_1(together, one, other, more):
    assert 0 <= strength(together, one, other, max(together, one, other) + more) <= 1


def test_what_passages_state_comes_first_then_what_is_strong_in_many_of_them():
    edges = [near(3, 4, 0.9), near(5, 6, 0.9, 9), stated(1, 2, 0.6), stated(3, 1, 0.9)]
    assert [(edge.subject, edge.object) for edge in by_strength(edges)] == [(3, 1), (1, 2), (5, 6), (3, 4)]


def test_the_pairs_of_passages_are_those_beyond_chance():
    # 1 and 2 are together in every third of 60 passages, 3 is everywhere, 4 and 5 met once.
    mentions = [(passage, 3) for passage in range(60)]
    mentions += [(passage, entity) for passage in range(0, 60, 3) for entity in (1, 2)]
    mentions += [(7, 4), (7, 5)]
    spread = {1: 20, 2: 20, 3: 60, 4: 1, 5: 1}
    pairs = related_pairs(sorted(mentions), spread, passages=60)
    assert [(edge.subject, edge.object, edge.support) for edge in pairs] == [(1, 2, 20), (4, 5, 1)]


def test_an_entity_in_some_passages_says_more_than_one_in_all_or_in_one():
    values = [informativeness(spread, 1000) for spread in (0, 1, 100, 900, 1000)]
    assert values[0] == 0
    assert values[4] == pytest.approx(0)
    assert values[1] < values[2] > values[3]


def path(edges, start, end, *, steps=4, spread=None):
    return find_path(edges, start, end, steps=steps, spread=spread or {}, passages=1000)


def test_a_path_has_few_steps_and_strong_ones():
    edges = [near(1, 2), near(2, 5), near(1, 3, 0.3), near(5, 3, 0.4)]
    edges += [near(1, 4, 1.0), near(4, 6, 1.0), near(6, 5, 1.0)]
    assert path(edges, 1, 5) == [1, 2, 5]
    assert path(edges[4:], 1, 5) == [1, 4, 6, 5]
    assert path(edges[4:], 1, 5, steps=2) is None
    assert path(edges, 1, 1) == [1]
    assert path(edges, 1, 9) is None


def test_a_path_goes_round_a_hub():
    edges = [near(1, 2), near(2, 5), near(1, 3), near(3, 4), near(4, 5)]
    assert path(edges, 1, 5, spread={2: 900, 3: 2, 4: 2}) == [1, 3, 4, 5]
    assert path(edges, 1, 5, spread={2: 3, 3: 2, 4: 2, 5: 900}) == [1, 2, 5]
    assert path(edges[:2], 1, 5, spread={2: 900}) == [1, 2, 5]


TEXTS = [
    "Charles Babbage was born in London. Ada Lovelace wrote to Mary Somerville.",
    "Mary Somerville read Laplace, and Ada Lovelace read Mary Somerville.",
    "Pierre-Simon Laplace lived in Paris.",
    "丁香园在杭州。",
]


@pytest.fixture
async def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    await knowledge_base.add_texts(TEXTS)
    yield knowledge_base
    knowledge_base.close()


def names_of(knowledge_base, keys):
    names = knowledge_base.graph.names_of(list(keys))
    return [names[key] for key in keys]


async def test_an_entity_is_associated_with_what_it_is_stated_and_mentioned_with(knowledge_base):
    (ada,) = knowledge_base.graph.search("Ada Lovelace", limit=1)
    (babbage,) = knowledge_base.graph.search("Charles Babbage", limit=1)
    associations = knowledge_base.associations()
    with_babbage = associations.of(babbage)
    assert [edge.predicate for edge in with_babbage][:2] == ["located in", RELATED]
    others = {edge.object for edge in associations.of(ada)}
    assert {"Mary Somerville", "Charles Babbage"} <= set(names_of(knowledge_base, sorted(others)))


async def test_a_related_pair_is_quoted_by_the_shortest_words_that_name_both(knowledge_base):
    (ada,) = knowledge_base.graph.search("Ada Lovelace", limit=1)
    (mary,) = knowledge_base.graph.search("Mary Somerville", limit=1)
    (edge,) = [edge for edge in knowledge_base.associations().of(ada) if edge.object == mary]
    assert edge.support == 2
    quotes = [
        knowledge_base.documents.chunks([chunk])[chunk].text[start:end]
        for chunk, start, end in knowledge_base.graph.evidence(edge, limit=2)
    ]
    assert quotes == ["Ada Lovelace read Mary Somerville", "Ada Lovelace wrote to Mary Somerville"]


async def test_a_path_leads_over_passages(knowledge_base):
    keys = [knowledge_base.graph.search(name, limit=1)[0] for name in ("Charles Babbage", "杭州")]
    (laplace,) = knowledge_base.graph.search("Laplace", limit=1)
    associations = knowledge_base.associations()
    edges = associations.path(keys[0], laplace, steps=4)
    assert edges is not None
    assert len(edges) == 2
    assert associations.path(*keys, steps=4) is None
