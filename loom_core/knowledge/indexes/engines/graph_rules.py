"""Common rules of all graph stores: limits, and the order of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.interface import EntityEdge

__all__ = [
    "missing_ends_error",
    "strongest_first",
    "validate_hops",
]

_MAX_HOPS = 3


def validate_hops(hops: int) -> None:
    """Validate a number of hops.

    Raises:
        InvalidInputError: it is below 1 or above 3.
    """
    if not 1 <= hops <= _MAX_HOPS:
        raise InvalidInputError(f"{hops} hops cannot be followed.", advice=f"Ask for 1 to {_MAX_HOPS} hops.")


def strongest_first(edges: Iterable[EntityEdge]) -> list[EntityEdge]:
    """Return edges by support, then confidence, the highest first; then by identity."""
    return sorted(edges, key=_strength)


def missing_ends_error(missing: Iterable[int]) -> InvalidInputError:
    """Return the error for relations whose ends are not in the graph."""
    named = ", ".join(str(key) for key in sorted(set(missing))[:5])
    return InvalidInputError(
        f"A relation's end is not in the graph: {named}.", advice="Store both entities before their relation."
    )


def _strength(edge: EntityEdge) -> tuple[int, float, int, int, str]:
    return -edge.support, -edge.confidence, edge.subject, edge.object, edge.predicate
