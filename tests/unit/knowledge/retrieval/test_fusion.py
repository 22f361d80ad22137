from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.retrieval.fusion import min_max, reciprocal_rank, weighted_sum

pytestmark = pytest.mark.slow

_SCORES = st.dictionaries(st.integers(0, 50), st.floats(-1e300, 1e300))
_UNIT = st.dictionaries(st.integers(0, 50), st.floats(0, 1))
_RANKINGS = st.lists(st.lists(st.integers(0, 30), unique=True), max_size=5)


def test_highest_score_of_a_batch_becomes_one_and_lowest_zero() -> None:
    assert min_max({"a": 3.18, "b": 1.18, "c": 2.18}) == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.5})


def test_equal_scores_become_one_if_they_are_above_zero_else_zero() -> None:
    assert min_max({"a": 4.2, "b": 4.2}) == {"a": 1.0, "b": 1.0}
    assert min_max({"a": 0.0, "b": 0.0}) == {"a": 0.0, "b": 0.0}
    assert min_max({"only": -1.0}) == {"only": 0.0}


def test_weights_take_effect_on_normalised_scores() -> None:
    """The example of the specification: BM25 3.18 at 30 %, cosine 0.57 at 70 %."""
    bm25 = min_max({"a": 3.18, "b": 0.4})
    assert weighted_sum([({"a": 0.57}, 0.7), (bm25, 0.3)])["a"] == pytest.approx(0.699)


def test_passage_that_one_part_does_not_have_counts_nothing_there() -> None:
    assert weighted_sum([({"a": 1.0}, 0.7), ({"b": 1.0}, 0.3)]) == {"a": 0.7, "b": 0.3}


def test_reciprocal_ranks_count_from_one_and_add_up() -> None:
    fused = reciprocal_rank([["a", "b"], ["b"]], k=60)
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61})


def test_nothing_fuses_to_nothing() -> None:
    assert min_max({}) == {}
    assert reciprocal_rank([]) == reciprocal_rank([[], []]) == {}
    assert weighted_sum([]) == weighted_sum([({}, 1.0)]) == {}


@given(_SCORES)
def test_min_max_is_bounded_and_keeps_the_order(scores: dict[int, float]) -> None:
    stretched = min_max(scores)
    assert stretched.keys() == scores.keys()
    assert all(0 <= score <= 1 for score in stretched.values())
    for a in scores:
        for b in scores:
            if scores[a] <= scores[b]:
                assert stretched[a] <= stretched[b]


@given(_SCORES.filter(lambda scores: len(set(scores.values())) > 1))
def test_min_max_reaches_both_ends(scores: dict[int, float]) -> None:
    stretched = min_max(scores)
    assert stretched[max(scores, key=scores.__getitem__)] == 1
    assert stretched[min(scores, key=scores.__getitem__)] == 0


@given(_RANKINGS, st.integers(1, 100))
def test_reciprocal_rank_is_bounded_and_has_everything_once(rankings: list[list[int]], k: int) -> None:
    fused = reciprocal_rank(rankings, k=k)
    assert fused.keys() == {key for ranking in rankings for key in ranking}
    assert all(0 < score <= len(rankings) / (k + 1) + 1e-9 for score in fused.values())


@given(st.lists(st.integers(), unique=True), st.integers(1, 5), st.integers(1, 100))
def test_rankings_that_agree_keep_their_order(ranking: list[int], times: int, k: int) -> None:
    fused = reciprocal_rank([ranking] * times, k=k)
    assert sorted(ranking, key=lambda key: -fused[key]) == ranking


@given(_RANKINGS)
def test_order_of_the_rankings_does_not_matter(rankings: list[list[int]]) -> None:
    assert reciprocal_rank(rankings) == pytest.approx(reciprocal_rank(rankings[::-1]))


@given(_UNIT, _UNIT, st.floats(0, 10), st.floats(0, 10))
def test_weighted_sum_is_bounded_by_the_weights(
    dense: dict[int, float], words: dict[int, float], a: float, b: float
) -> None:
    fused = weighted_sum([(dense, a), (words, b)])
    assert fused.keys() == dense.keys() | words.keys()
    assert all(0 <= score <= a + b + 1e-9 for score in fused.values())
    assert all(math.isclose(fused[key], a * dense.get(key, 0) + b * words.get(key, 0)) for key in fused)


@given(_UNIT)
def test_one_part_of_weight_one_stays_as_it_is(scores: dict[int, float]) -> None:
    assert weighted_sum([(scores, 1.0)]) == scores
