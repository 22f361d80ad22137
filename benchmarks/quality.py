"""Figures of retrieval quality, question by question, with confidence intervals by bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loom_core.knowledge.retrieval.ranking_metrics import confidence_interval, ndcg, recall, reciprocal_rank

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from numpy.typing import NDArray

__all__ = ["INTERVALS", "Figures", "difference", "figures", "summary"]

INTERVALS = ("R@1", "R@5", "R@10", "nDCG@10")
"""The figures that are given with a 95 % confidence interval."""

Figures = dict[str, "NDArray[np.float64]"]
"""Values from 0 to 1 by figure, one for each question."""


def figures(rankings: Sequence[Sequence[str]], golds: Sequence[Set[str]]) -> Figures:
    """Return the quality of each ranking.

    R@k is the share of a question's gold documents among the first k, all@k whether all of them are there.
    """
    found = [_places(ranking, gold) for ranking, gold in zip(rankings, golds, strict=True)]
    values: dict[str, list[float]] = {
        f"R@{k}": [recall(places, k=k) for places in found] for k in (1, 2, 5, 10)
    }
    values |= {f"all@{k}": [float(recall(places, k=k) == 1) for places in found] for k in (5, 8)}
    values["MRR@10"] = [reciprocal_rank(places, k=10) for places in found]
    values["nDCG@10"] = [ndcg(places, k=10) for places in found]
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
    """95 % confidence interval of a mean, in per cent; see `confidence_interval`."""
    return [_percent(bound) for bound in confidence_interval(values.tolist())]


def _places(ranking: Sequence[str], gold: Set[str]) -> list[int | None]:
    ranks = {id_: rank for rank, id_ in enumerate(ranking, 1)}
    return [ranks.get(id_) for id_ in gold]


def _percent(value: float | np.float64) -> float:
    return round(100 * float(value), 1)
