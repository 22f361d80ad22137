"""Ranking metrics of retrieval: recall, reciprocal rank and nDCG, with bootstrap confidence intervals.

A question has one or more relevant items. `places` has the rank of each of them in the results, counted
from 1; None for an item that was not found. Two items may have the same place, if one result is both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["confidence_interval", "ndcg", "recall", "reciprocal_rank"]

_RESAMPLES = 2000
_SEED = 0


def recall(places: Sequence[int | None], *, k: int) -> float:
    """Return the share of the relevant items that are among the first `k` results."""
    return sum(place is not None and place <= k for place in places) / len(places)


def reciprocal_rank(places: Sequence[int | None], *, k: int) -> float:
    """Return 1 divided by the rank of the first relevant item; 0 if it is not among the first `k`."""
    return max((1 / place for place in places if place is not None and place <= k), default=0.0)


def ndcg(places: Sequence[int | None], *, k: int) -> float:
    """Return the normalized discounted cumulative gain (nDCG) of the first `k` results, 0 to 1.

    Each item is relevant or not, and discounted by the logarithm of its rank.
    """
    gain = sum(_discount(place) for place in places if place is not None and place <= k)
    ideal = sum(_discount(place) for place in range(1, min(len(places), k) + 1))
    return min(1.0, gain / ideal)


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean: percentiles of 2,000 bootstrap resamples.

    The random numbers are the same in every call, and so is the interval of the same values.
    """
    import numpy as np

    given = np.asarray(values, dtype=np.float64)
    chosen = np.random.default_rng(_SEED).integers(len(given), size=(_RESAMPLES, len(given)))
    low, high = cast("list[float]", np.percentile(given[chosen].mean(axis=1), (2.5, 97.5)).tolist())
    return low, high


def _discount(place: int) -> float:
    return 1 / math.log2(place + 1)
