"""Relations that say more than chance, how much an entity says, and paths that avoid hubs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.interface import EntityEdge
from loom_core.knowledge.model import RELATED
from loom_core.knowledge.overview.associations import Association, associate, find_path, informativeness


def near(one: int, other: int, support: int = 1) -> EntityEdge:
    return EntityEdge(one, RELATED, other, support, 0.2)


def stated(one: int, other: int, confidence: float = 0.8) -> EntityEdge:
    return EntityEdge(one, "part of", other, 1, confidence)


def test_two_frequent_names_that_met_once_are_not_related():
    assert associate([near(1, 2)], {1: 500, 2: 400}, passages=1000) == []


def test_two_rare_names_that_met_are_related():
    ((edge, strength),) = associate([near(1, 2)], {1: 2, 2: 1}, passages=1000)
    assert (edge.subject, edge.object) == (1, 2)
    assert 0.8 < strength <= 1


def test_frequent_names_are_related_if_they_meet_far_more_often_than_by_chance():
    # By chance they would meet in 6 passages.
    assert associate([near(1, 2, 8)], {1: 300, 2: 200}, passages=10_000) == []
    assert len(associate([near(1, 2, 21)], {1: 300, 2: 200}, passages=10_000)) == 1


def test_what_a_passage_states_is_kept_and_comes_first():
    spread = {1: 900, 2: 900, 3: 1, 4: 1}
    found = associate([near(3, 4), stated(1, 2, 0.6), stated(3, 1, 0.9)], spread, passages=1000)
    assert [(each.edge.subject, each.edge.object) for each in found] == [(3, 1), (1, 2), (3, 4)]


def test_of_equally_strong_pairs_the_one_in_more_passages_comes_first():
    found = associate([near(1, 2, 1), near(3, 4, 9)], {1: 1, 2: 1, 3: 9, 4: 9}, passages=1000)
    assert [each.edge.support for each in found] == [9, 1]


def test_in_a_few_passages_chance_cannot_be_told():
    assert len(associate([near(1, 2)], {1: 5, 2: 5}, passages=6)) == 1


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.integers(1, 10_000))
def test_a_strength_is_from_0_to_1(together, one, other, more):
    passages = max(together, one, other) + more
    for _, strength in associate([near(1, 2, together)], {1: one, 2: other}, passages=passages):
        assert 0 < strength <= 1


def test_an_entity_in_some_passages_says_more_than_one_in_all_or_in_one():
    values = [informativeness(spread, 1000) for spread in (0, 1, 100, 900, 1000)]
    assert values[0] == 0
    assert values[4] == pytest.approx(0)
    assert values[1] < values[2] > values[3]


def path(edges, start, end, *, steps=4, spread=None):
    return find_path(edges, start, end, steps=steps, spread=spread or {}, passages=1000)


def test_a_path_has_few_steps_and_strong_ones():
    edges = [
        Association(near(1, 2), 0.9),
        Association(near(2, 5), 0.9),
        Association(near(1, 3), 0.3),
        Association(near(5, 3), 0.4),
        Association(near(1, 4), 1.0),
        Association(near(4, 6), 1.0),
        Association(near(6, 5), 1.0),
    ]
    assert path(edges, 1, 5) == [1, 2, 5]
    assert path(edges[4:], 1, 5) == [1, 4, 6, 5]
    assert path(edges[4:], 1, 5, steps=2) is None
    assert path(edges, 1, 1) == [1]
    assert path(edges, 1, 9) is None


def test_a_path_goes_round_a_hub():
    edges = [Association(near(1, 2), 0.9), Association(near(2, 5), 0.9)]
    edges += [Association(near(1, 3), 0.9), Association(near(3, 4), 0.9), Association(near(4, 5), 0.9)]
    assert path(edges, 1, 5, spread={2: 900, 3: 2, 4: 2}) == [1, 3, 4, 5]
    assert path(edges, 1, 5, spread={2: 3, 3: 2, 4: 2, 5: 900}) == [1, 2, 5]
    assert path(edges[:2], 1, 5, spread={2: 900}) == [1, 2, 5]
