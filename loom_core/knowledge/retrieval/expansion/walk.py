"""Personalised PageRank around what was found.

Passages and entities near the best passages form a small graph; a random walk that keeps returning to
those passages gives weight to what several of them are connected with (Gutiérrez et al., "HippoRAG",
2024, there over the whole graph). Only the neighbourhood is read, so that the cost of a question does
not grow with the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.retrieval.expansion.neighbourhood import Surroundings

__all__ = ["WalkSettings", "walk"]


@dataclass(frozen=True, slots=True)
class WalkSettings:
    """The numbers of the walk, as measured (`benchmarks/RESULTS.md`)."""

    seeds: int = 6
    damping: float = 0.5  # share of the walk that goes on rather than returns
    rounds: int = 12  # 0.5 ** 12: what is left is below anything that is ranked
    mentions_each: int = 8
    targets_each: int = 6
    about: float = 2.0  # an edge to what a passage is about, next to one to what it mentions


def walk(
    surroundings: Surroundings,
    scores: dict[int, float],
    *,
    entities: Sequence[int] = (),
    settings: WalkSettings | None = None,
) -> dict[int, float]:
    """Weight of chunks near the best ones, the highest being 1.

    Args:
        surroundings: where the edges are.
        scores: passages and how good they are; the best are where the walk starts and returns to.
        entities: entities the question names: the walk starts there, too, or there alone.
        settings: the numbers.
    """
    settings = settings or WalkSettings()
    seeds = nlargest(settings.seeds, scores, key=scores.__getitem__)
    chunks, names, weights = _edges(surroundings, seeds, entities, settings)
    if not weights:
        return {}
    import numpy as np

    chunk_of, first = np.unique(np.array(chunks, np.int64), return_inverse=True)
    entity_of, second = np.unique(np.array(names, np.int64), return_inverse=True)
    size = len(chunk_of) + len(entity_of)
    second = second + len(chunk_of)  # passages are numbered first, then entities
    start, end = np.concatenate([first, second]), np.concatenate([second, first])
    weight = np.tile(np.array(weights, np.float64), 2)
    weight /= np.bincount(start, weights=weight, minlength=size)[start]
    home = np.zeros(size)
    for key in seeds:
        if (place := int(np.searchsorted(chunk_of, key))) < len(chunk_of) and chunk_of[place] == key:
            home[place] += scores[key] ** 2
    for key in entities:
        if (place := int(np.searchsorted(entity_of, key))) < len(entity_of) and entity_of[place] == key:
            home[len(chunk_of) + place] += 1 / len(entities)
    if not home.sum():
        return {}
    home /= home.sum()
    p = home.copy()
    for _ in range(settings.rounds):
        spread = np.bincount(end, weights=p[start] * weight, minlength=size)
        p = (1 - settings.damping) * home + settings.damping * spread
    found = p[: len(chunk_of)]
    high = found.max()
    return dict(zip(chunk_of.tolist(), (found / high).tolist(), strict=True)) if high else {}


def _edges(
    surroundings: Surroundings, seeds: Sequence[int], entities: Sequence[int], settings: WalkSettings
) -> tuple[list[int], list[int], list[float]]:
    """Passages and entities around the seeds, and the certainty of what connects them: edge by edge."""
    around = set(entities)
    if seeds:
        around |= surroundings.entities_in(seeds)
    else:  # nothing was found: a step further from what the question names
        about, mentioning = surroundings.abouts_of(entities), surroundings.mentions_of(entities)
        near = {chunk for edges in about.values() for chunk, _ in edges[: settings.targets_each]}
        near |= {chunk for edges in mentioning.values() for chunk, _ in edges[: settings.mentions_each]}
        around |= surroundings.entities_in(near)
    chunks: list[int] = []
    names: list[int] = []
    weights: list[float] = []
    for found, most, factor in (
        (surroundings.mentions_of(around), settings.mentions_each, 1.0),
        (surroundings.abouts_of(around), settings.targets_each, settings.about),
    ):
        for entity, edges in found.items():
            for chunk, confidence in edges[:most]:
                chunks.append(chunk)
                names.append(entity)
                weights.append(factor * confidence)
    return chunks, names, weights
