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

    from loom_core.knowledge.record.graph import GraphTable

__all__ = ["WalkSettings", "walk"]


@dataclass(frozen=True, slots=True)
class WalkSettings:
    """The numbers of the walk, as measured (`benchmarks/RESULTS.md`)."""

    seeds: int = 20
    damping: float = 0.5  # share of the walk that goes on rather than returns
    rounds: int = 12  # 0.5 ** 12: what is left is below anything that is ranked
    mentions_each: int = 8
    targets_each: int = 12
    about: float = 2.0  # an edge to what a passage is about, next to one to what it mentions


def walk(
    graph: GraphTable,
    scores: dict[int, float],
    *,
    entities: Sequence[int] = (),
    settings: WalkSettings | None = None,
) -> dict[int, float]:
    """Weight of chunks near the best ones, the highest being 1.

    Args:
        graph: where the edges are.
        scores: passages and how good they are; the best are where the walk starts and returns to.
        entities: entities the question names: the walk starts there, too, or there alone.
        settings: the numbers.
    """
    settings = settings or WalkSettings()
    seeds = nlargest(settings.seeds, scores, key=scores.__getitem__)
    edges = _edges(graph, seeds, entities, settings)
    if not edges:
        return {}
    import numpy as np

    nodes = {node: i for i, node in enumerate(dict.fromkeys(node for edge in edges for node in edge))}
    size = len(nodes)
    a = np.fromiter((nodes[x] for x, _ in edges), np.int64, len(edges))
    b = np.fromiter((nodes[y] for _, y in edges), np.int64, len(edges))
    w = np.fromiter(edges.values(), np.float64, len(edges))
    start, end, weight = np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([w, w])
    weight /= np.bincount(start, weights=weight, minlength=size)[start]
    home = np.zeros(size)
    for key in seeds:
        if (key, "chunk") in nodes:
            home[nodes[key, "chunk"]] += scores[key] ** 2
    for key in entities:
        if (key, "entity") in nodes:
            home[nodes[key, "entity"]] += 1 / len(entities)
    if not home.sum():
        return {}
    home /= home.sum()
    p = home.copy()
    for _ in range(settings.rounds):
        spread = np.bincount(end, weights=p[start] * weight, minlength=size)
        p = (1 - settings.damping) * home + settings.damping * spread
    found = {key: float(p[i]) for (key, kind), i in nodes.items() if kind == "chunk"}
    high = max(found.values(), default=0.0)
    return {key: value / high for key, value in found.items()} if high else {}


_Node = tuple[int, str]


def _edges(
    graph: GraphTable, seeds: Sequence[int], entities: Sequence[int], settings: WalkSettings
) -> dict[tuple[_Node, _Node], float]:
    """Passages and entities around the seeds, by the certainty of what connects them."""
    around = set(entities)
    if seeds:
        around |= graph.entities_in(seeds)
    else:  # nothing was found: a step further from what the question names
        near = [about.chunk for about in graph.abouts_of(entities, limit=settings.targets_each)]
        near += [chunk for chunk, _, _ in graph.mention_edges_of(entities, limit=settings.mentions_each)]
        around |= graph.entities_in(sorted(set(near)))
    wanted = sorted(around)
    edges: dict[tuple[_Node, _Node], float] = {}
    for chunk, entity, confidence in graph.mention_edges_of(wanted, limit=settings.mentions_each):
        edges[(chunk, "chunk"), (entity, "entity")] = confidence
    for about in graph.abouts_of(wanted, limit=settings.targets_each):
        edges[(about.chunk, "chunk"), (about.entity, "entity")] = settings.about * about.confidence
    return edges
