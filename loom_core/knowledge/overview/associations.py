"""Associations of entities: relations that passages state, and pairs that are near each other beyond chance.

Two names in one sentence may be there by chance, and the more frequent they are, the more likely. Normalised
pointwise mutual information (Bouma, 2009) tells: 0 is chance, 1 means that neither is without the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.model import RELATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom_core.knowledge.interface import EntityEdge

__all__ = ["Association", "associate", "find_path", "informativeness"]

_CHANCE = 0.25  # association of two names from which on they are related
_DEVIATIONS = 3.0  # or so many standard deviations more passages than by chance
_FEW = 20  # passages, below which chance cannot be told, and every pair is kept
_FOLLOWED = 1.0  # cost of any step of a path; a weak association costs up to as much again
_HUB = 3.0  # cost of passing an entity that is in all passages


class Association(NamedTuple):
    """A relation, and how strong it is, 0 to 1.

    The strength of a stated relation is its confidence, that of a pair without a statement its normalised
    pointwise mutual information over passages.
    """

    edge: EntityEdge
    strength: float


def associate(edges: Iterable[EntityEdge], spread: Mapping[int, int], *, passages: int) -> list[Association]:
    """Return the relations that are stated, or better than chance: stated ones first, then the strongest.

    Args:
        edges: relations of entities.
        spread: how many passages mention each entity that is an end of one.
        passages: how many there are in all.
    """
    found: list[Association] = []
    for edge in edges:
        if edge.predicate != RELATED:
            found.append(Association(edge, edge.confidence))
            continue
        one, other = (max(spread.get(end, 0), edge.support) for end in (edge.subject, edge.object))
        expected = one * other / passages
        mutual = _mutual_information(edge.support, expected, passages)
        if passages < _FEW:
            found.append(Association(edge, max(mutual, _CHANCE)))
        elif mutual > 0 and (
            mutual >= _CHANCE or edge.support > expected + _DEVIATIONS * math.sqrt(expected)
        ):
            found.append(Association(edge, mutual))
    found.sort(key=_rank)
    return found


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
    associations: Iterable[Association],
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
        associations: the relations to follow, in both directions.
        start: where it begins.
        end: where it ends.
        steps: how many at most.
        spread: how many passages mention each entity.
        passages: how many there are in all.
    """
    near: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for edge, strength in associations:
        for one, other in ((edge.subject, edge.object), (edge.object, edge.subject)):
            hub = math.log1p(spread.get(other, 0)) / math.log1p(max(passages, 1)) if other != end else 0.0
            near[one].append((other, _FOLLOWED + (1 - strength) + _HUB * hub))
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


def _rank(each: Association) -> tuple[bool, float, int, int]:
    """Order relations: stated ones first, then by strength, and of equally strong ones by passages."""
    edge, strength = each
    return edge.predicate == RELATED, -strength * math.log1p(edge.support), edge.subject, edge.object


def _mutual_information(together: int, expected: float, passages: int) -> float:
    """Return the normalised pointwise mutual information of two names.

    Args:
        together: passages that have both next to each other.
        expected: how many would have them by chance.
        passages: all passages.
    """
    if together >= passages:
        return 1.0
    return min(math.log(together / expected) / math.log(passages / together), 1.0)
