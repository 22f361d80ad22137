"""Common rules of all graph stores: limits, the order of edges, the edges along a path."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.knowledge.interface import EntityEdge

__all__ = [
    "MAX_NEIGHBOUR_HOPS",
    "MAX_PATH_HOPS",
    "edges_along",
    "missing_ends_error",
    "strongest_first",
    "validate_hops",
]

MAX_NEIGHBOUR_HOPS = 3
MAX_PATH_HOPS = 10


def validate_hops(hops: int, *, most: int) -> int:
    """Validate a number of hops and return it.

    Raises:
        InvalidInputError: it is below 1 or above `most`.
    """
    if not 1 <= hops <= most:
        raise InvalidInputError(f"{hops} hops cannot be followed.", advice=f"Ask for 1 to {most} hops.")
    return hops


def strongest_first(edges: Iterable[EntityEdge]) -> list[EntityEdge]:
    """Return edges by support, then confidence, the highest first; then by identity."""
    return sorted(edges, key=_strength)


def edges_along(keys: Sequence[int], edges: Iterable[EntityEdge]) -> tuple[EntityEdge, ...]:
    """Return the strongest edge, in either direction, for each step from one key to the next."""
    strongest: dict[frozenset[int], EntityEdge] = {}
    for edge in strongest_first(edges):
        strongest.setdefault(frozenset((edge.subject, edge.object)), edge)
    return tuple(strongest[frozenset(step)] for step in pairwise(keys))


def missing_ends_error(missing: Iterable[int]) -> InvalidInputError:
    """Return the error for relations whose ends are not in the graph."""
    named = ", ".join(str(key) for key in sorted(set(missing))[:5])
    return InvalidInputError(
        f"A relation's end is not in the graph: {named}.", advice="Store both entities before their relation."
    )


def _strength(edge: EntityEdge) -> tuple[int, float, int, int, str]:
    return -edge.support, -edge.confidence, edge.subject, edge.object, edge.predicate
