"""Figures of retrieval quality, question by question, with confidence intervals by bootstrap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from numpy.typing import NDArray

__all__ = ["INTERVALS", "Figures", "difference", "figures", "summary"]

INTERVALS = ("R@1", "R@5", "R@10", "nDCG@10")
"""The figures that are given with a 95 % confidence interval."""

_RESAMPLES = 2000
_SEED = 0

Figures = dict[str, "NDArray[np.float64]"]
"""Values from 0 to 1 by figure, one for each question."""


def figures(rankings: Sequence[Sequence[str]], golds: Sequence[Set[str]]) -> Figures:
    """Return the quality of each ranking.

    R@k is the share of a question's gold documents among the first k, all@k whether all of them are there.
    """
    pairs = list(zip(rankings, golds, strict=True))
    values: dict[str, list[float]] = {
        f"R@{k}": [len(gold & set(found[:k])) / len(gold) for found, gold in pairs] for k in (1, 2, 5, 10)
    }
    values |= {f"all@{k}": [float(gold <= set(found[:k])) for found, gold in pairs] for k in (5, 8)}
    values["MRR@10"] = [_reciprocal_rank(found[:10], gold) for found, gold in pairs]
    values["nDCG@10"] = [_ndcg(found[:10], gold) for found, gold in pairs]
    return {name: np.array(value) for name, value in values.items()}


def summary(of: Figures) -> dict[str, float | list[float]]:
    """Means in per cent, and the intervals of `INTERVALS` under `<figure>_ci95`."""
    means: dict[str, float | list[float]] = {name: _percent(value.mean()) for name, value in of.items()}
    return means | {f"{name}_ci95": interval(of[name]) for name in INTERVALS}


def difference(name: str, of: Figures, against: Figures) -> tuple[float, list[float]]:
    """How much better one run is than another at the same questions, in points, and its interval."""
    paired = of[name] - against[name]
    return _percent(paired.mean()), interval(paired)


def interval(values: NDArray[np.float64]) -> list[float]:
    """95 % confidence interval of a mean, in per cent: percentiles of 2,000 resamples of the questions."""
    chosen = np.random.default_rng(_SEED).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.percentile(values[chosen].mean(axis=1), (2.5, 97.5))
    return [_percent(low), _percent(high)]


def _reciprocal_rank(found: Sequence[str], gold: Set[str]) -> float:
    return next((1 / rank for rank, id_ in enumerate(found, 1) if id_ in gold), 0.0)


def _ndcg(found: Sequence[str], gold: Set[str]) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank, id_ in enumerate(found, 1) if id_ in gold)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(len(gold), 10) + 1))


def _percent(value: float | np.float64) -> float:
    return round(100 * float(value), 1)
