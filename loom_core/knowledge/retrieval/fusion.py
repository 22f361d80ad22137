"""Fusion of rankings and scores of several searches."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

__all__ = ["min_max", "reciprocal_rank", "weighted_sum"]

_K = TypeVar("_K", bound="Hashable")


def min_max(scores: Mapping[_K, float]) -> dict[_K, float]:
    """Scale the scores of one batch to 0 to 1 (min-max normalisation).

    Where all are equal there is nothing to stretch: each is 1 if it is above 0, else 0.

    Args:
        scores: any scores and a finite range of them, such as BM25, which has no upper limit.
    """
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high <= low:
        return {key: float(score > 0) for key, score in scores.items()}
    return {key: (score - low) / (high - low) for key, score in scores.items()}


def reciprocal_rank(rankings: Iterable[Sequence[_K]], *, k: int = 60) -> dict[_K, float]:
    """Reciprocal rank fusion: sum 1 / (k + rank) over the rankings that have an element.

    Source: Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet and Individual Rank Learning
    Methods", SIGIR 2009.

    Args:
        rankings: each best first, nothing twice; ranks count from 1.
        k: the higher, the smaller the lead of the first ranks.
    """
    fused: defaultdict[_K, float] = defaultdict(float)
    for ranking in rankings:
        for rank, key in enumerate(ranking, start=1):
            fused[key] += 1 / (k + rank)
    return dict(fused)


def weighted_sum(parts: Iterable[tuple[Mapping[_K, float], float]]) -> dict[_K, float]:
    """Weighted sum of scores; a missing score counts as 0.

    Args:
        parts: scores and their weight; the weights need not sum to 1.
    """
    fused: defaultdict[_K, float] = defaultdict(float)
    for scores, weight in parts:
        for key, score in scores.items():
            fused[key] += weight * score
    return dict(fused)
