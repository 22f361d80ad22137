from __future__ import annotations

import math

import pytest

from loom_core.knowledge.retrieval.ranking_metrics import confidence_interval, ndcg, recall, reciprocal_rank

THIRD = 1 / math.log2(4)  # discounts of the third and the sixth place
SIXTH = 1 / math.log2(7)
SECOND = 1 / math.log2(3)


@pytest.mark.parametrize(
    ("places", "recalled", "reciprocal", "gain"),
    [
        ([1], 1.0, 1.0, 1.0),
        ([3], 1.0, 1 / 3, THIRD),
        ([6], 0.0, 0.0, 0.0),  # beyond the fifth
        ([None], 0.0, 0.0, 0.0),
        ([None, None], 0.0, 0.0, 0.0),
        ([2, 1], 1.0, 1.0, 1.0),  # in any order
        ([3, None], 0.5, 1 / 3, THIRD / (1 + SECOND)),
        ([1, 3, 6], 2 / 3, 1.0, (1 + THIRD) / (1 + SECOND + THIRD)),
        ([1, 1], 1.0, 1.0, 1.0),  # one result is both
        ([1, 2, 3, 4, 5, 6], 5 / 6, 1.0, 1.0),  # more than there are places
    ],
)
def test_metrics_of_the_first_five_results(
    places: list[int | None], recalled: float, reciprocal: float, gain: float
) -> None:
    assert recall(places, k=5) == pytest.approx(recalled)
    assert reciprocal_rank(places, k=5) == pytest.approx(reciprocal)
    assert ndcg(places, k=5) == pytest.approx(gain)


def test_an_interval_holds_the_mean_is_repeatable_and_narrows_with_more_values() -> None:
    few, many = [0.0, 1.0] * 10, [0.0, 1.0] * 100
    low, high = confidence_interval(few)
    assert 0.2 < low < 0.5 < high < 0.8
    assert confidence_interval(few) == (low, high)
    narrow_low, narrow_high = confidence_interval(many)
    assert narrow_high - narrow_low < (high - low) / 2
    assert confidence_interval([1.0]) == (1.0, 1.0)
