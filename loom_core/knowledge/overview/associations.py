"""Associations of entities: relations that passages state, and names that are together beyond chance.

Two names in one passage may be there by chance, and the more frequent they are, the more likely. Normalised
pointwise mutual information (Bouma, 2009) tells: 0 is chance, 1 means that neither is without the other. What
rests on few passages is discounted (Pantel and Lin, 2002).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from loom_core.knowledge.interface import EntityEdge
from loom_core.knowledge.model import RELATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from loom_core.knowledge.store import EntityReader

__all__ = ["Associations", "by_strength", "find_path", "informativeness", "related_pairs", "strength"]

_CHANCE = 0.25  # strength of two names from which on they are related
_DEVIATIONS = 3.0  # or so many standard deviations more passages than by chance
_FEW = 20  # passages, below which chance cannot be told, and every pair is kept
_READ = 1_000  # passages of an entity that are read: of a more frequent one, an even sample
_EACH = 200  # associations of an entity, the best
_RING = 20  # entities of a hop that are followed further
_FOLLOWED = 1.0  # cost of any step of a path; a weak association costs up to as much again
_HUB = 3.0  # cost of passing an entity that is in all passages


class Associations:
    """The associations of entities, read from the store as they are asked for.

    Args:
        graph: where entities and mentions are.
        passages: how many there are in all.
        stated: returns the relations of an entity that passages state.
    """

    def __init__(
        self, graph: EntityReader, *, passages: int, stated: Callable[[int], Iterable[EntityEdge]]
    ) -> None:
        self._graph = graph
        self._passages = passages
        self._stated = stated
        self._of: dict[int, list[EntityEdge]] = {}

    def of(self, entity: int) -> list[EntityEdge]:
        """Return the associations of an entity, the best first: relations, then names beyond chance.

        The confidence of the latter, `RELATED`, is their `strength`.
        """
        if entity not in self._of:
            stated = list(self._stated(entity))
            known = {end for edge in stated for end in (edge.subject, edge.object)}
            spread, together = self._graph.mentioned_together(entity, sample=_READ)
            others = sorted(together.keys() - known)
            counts = self._graph.passage_counts(others)
            pairs = [
                EntityEdge(entity, RELATED, other, together[other], sure)
                for other in others
                if (sure := strength(together[other], spread, counts.get(other, 0), self._passages))
            ]
            self._of[entity] = by_strength([*stated, *pairs])[:_EACH]
        return self._of[entity]

    def around(self, entities: Sequence[int], *, hops: int) -> tuple[list[int], list[EntityEdge]]:
        """Return the entities around some, nearest and best associated first, and their associations.

        Args:
            entities: where to begin; the result begins with them.
            hops: how far to go; of each hop the best associated entities are followed further.
        """
        edges: set[EntityEdge] = set()
        near, ring = dict.fromkeys(entities), list(entities)
        for _ in range(hops):
            fresh: dict[int, None] = {}
            for entity in ring:
                edges.update(self.of(entity))
                ends = (end for edge in self.of(entity) for end in (edge.subject, edge.object))
                fresh |= {end: None for end in ends if end not in near}
            near |= fresh
            ring = list(fresh)[:_RING]
        return list(near), by_strength(edges)

    def path(self, start: int, end: int, *, steps: int) -> list[EntityEdge] | None:
        """Return the path that says most from one entity to another, or None; see `find_path`."""
        keys, edges = self.around([start, end], hops=steps // 2)
        spread = self._graph.passage_counts(keys)
        path = find_path(edges, start, end, steps=steps, spread=spread, passages=self._passages)
        return None if path is None else [_between(edges, *ends) for ends in pairwise(path)]


def _between(edges: Iterable[EntityEdge], one: int, other: int) -> EntityEdge:
    return next(edge for edge in edges if {edge.subject, edge.object} == {one, other})


def related_pairs(
    mentions: Iterable[tuple[int, int]], spread: Mapping[int, int], *, passages: int
) -> list[EntityEdge]:
    """Return the pairs of names that are together beyond chance, the strongest first.

    Args:
        mentions: passages and the entities that they mention, by passage.
        spread: how many passages mention each entity.
        passages: how many there are in all.
    """
    together: Counter[tuple[int, int]] = Counter()
    of_passage: defaultdict[int, list[int]] = defaultdict(list)
    for passage, entity in mentions:
        of_passage[passage].append(entity)
    for entities in of_passage.values():
        together.update(combinations(sorted(entities), 2))
    return by_strength(
        EntityEdge(one, RELATED, other, support, sure)
        for (one, other), support in together.items()
        if (sure := strength(support, spread[one], spread[other], passages))
    )


def strength(together: int, one: int, other: int, passages: int) -> float:
    """Return how strongly two names are associated: 0 up to chance, 1 if neither is without the other.

    Args:
        together: passages that mention both.
        one: passages that mention the first.
        other: passages that mention the second.
        passages: all passages.
    """
    one, other = max(one, together), max(other, together)
    least = min(one, other)
    discount = together / (together + 1) * least / (least + 1)
    if together >= passages:
        return discount
    expected = one * other / passages
    mutual = min(math.log(together / expected) / math.log(passages / together), 1.0) * discount
    if passages < _FEW:
        return max(mutual, _CHANCE)
    beyond = together > 1 and together > expected + _DEVIATIONS * math.sqrt(expected)
    return mutual if mutual >= _CHANCE or (mutual > 0 and beyond) else 0.0


def by_strength(edges: Iterable[EntityEdge]) -> list[EntityEdge]:
    """Return associations in order: stated relations first, then by strength, which many passages raise."""
    return sorted(edges, key=_rank)


def informativeness(spread: int, passages: int) -> float:
    """Return how much an entity says about the passages that mention it: its gain (Papineni, 2001).

    Entities in one passage and entities in all of them say little; those in a part of them say most.

    Args:
        spread: how many passages mention it.
        passages: how many there are.
    """
    share = min(spread / max(passages, 1), 1.0)
    return share * (share - 1 - math.log(share)) if share else 0.0


def find_path(
    edges: Iterable[EntityEdge],
    start: int,
    end: int,
    *,
    steps: int,
    spread: Mapping[int, int],
    passages: int,
) -> list[int] | None:
    """Return the entities of the path that says most, or None if there is none.

    Few steps and strong associations make a good path; frequent entities on the way make a bad one, as
    everything is near a hub.

    Args:
        edges: the associations to follow, in both directions.
        start: where it begins.
        end: where it ends.
        steps: how many at most.
        spread: how many passages mention each entity.
        passages: how many there are in all.
    """
    near: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for edge in edges:
        for one, other in ((edge.subject, edge.object), (edge.object, edge.subject)):
            hub = math.log1p(spread.get(other, 0)) / math.log1p(max(passages, 1)) if other != end else 0.0
            near[one].append((other, _FOLLOWED + (1 - edge.confidence) + _HUB * hub))
    costs: dict[int, float] = {start: 0.0}
    waiting: list[tuple[float, int, tuple[int, ...]]] = [(0.0, start, (start,))]
    while waiting:
        cost, entity, path = heappop(waiting)
        if entity == end:
            return list(path)
        if len(path) > steps or cost > costs[entity]:
            continue
        for other, more in near[entity]:
            if cost + more < costs.get(other, math.inf):
                costs[other] = cost + more
                heappush(waiting, (cost + more, other, (*path, other)))
    return None


def _rank(edge: EntityEdge) -> tuple[bool, float, int, int]:
    return (
        edge.predicate == RELATED,
        -edge.confidence * math.log1p(edge.support),
        edge.subject,
        edge.object,
    )
