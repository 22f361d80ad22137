"""Graph store in memory."""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from loom_core.knowledge.indexes.engines.graph_rules import (
    missing_ends_error,
    strongest_first,
    validate_hops,
)
from loom_core.knowledge.interface import EntityEdge, EntityNode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = ["MemoryGraphStore"]

_Identity = tuple[int, str, int]


class MemoryGraphStore:
    """`GraphStore` over dictionaries: for programs that embed Loom, and for tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entities: dict[int, EntityNode] = {}
        self._relations: dict[_Identity, EntityEdge] = {}
        self._touching: defaultdict[int, set[_Identity]] = defaultdict(set)

    def upsert_entities(self, entities: Sequence[EntityNode]) -> None:
        """Store entities; an existing key is overwritten."""
        with self._lock:
            self._entities.update((entity.key, entity) for entity in entities)

    def upsert_relations(self, relations: Sequence[EntityEdge]) -> None:
        """Store relations (identity: subject, predicate, object); all of them or none.

        Raises:
            InvalidInputError: an end of a relation does not exist.
        """
        with self._lock:
            ends = {end for edge in relations for end in (edge.subject, edge.object)}
            if missing := ends - self._entities.keys():
                raise missing_ends_error(missing)
            for edge in relations:
                identity = (edge.subject, edge.predicate, edge.object)
                self._relations[identity] = edge
                self._touching[edge.subject].add(identity)
                self._touching[edge.object].add(identity)

    def delete_entities(self, keys: Collection[int]) -> None:
        """Forget entities with every relation that touches them; unknown ones are ignored."""
        with self._lock:
            for key in keys:
                self._forget(list(self._touching.get(key, ())))
                self._entities.pop(key, None)

    def delete_relations(self, relations: Collection[_Identity]) -> None:
        """Forget relations by identity; unknown ones are ignored."""
        with self._lock:
            self._forget(relations)

    def get(self, keys: Collection[int]) -> list[EntityNode]:
        """Return the entities with these keys in the order of their keys, unknown ones left out."""
        with self._lock:
            return [self._entities[key] for key in sorted(set(keys)) if key in self._entities]

    def neighbours(
        self, key: int, *, hops: int = 1, limit: int = 50
    ) -> tuple[list[EntityNode], list[EntityEdge]]:
        """Return entities around one and the edges among them and to it; an unknown key has none.

        A hop adds the `limit` unvisited entities with the most total support from the
        entities of the hop before it; equals come in the order of their keys.

        Raises:
            InvalidInputError: `hops` is not 1 to 3.
        """
        validate_hops(hops)
        with self._lock:
            if key not in self._entities or limit < 1:
                return [], []
            met = {key: None}
            ring = [key]
            for _ in range(hops):
                support: defaultdict[int, int] = defaultdict(int)
                for member in ring:
                    for other, edge in self._steps(member):
                        support[other] += edge.support
                fresh = ((other, total) for other, total in support.items() if other not in met)
                ring = [other for other, _ in heapq.nsmallest(limit, fresh, key=lambda at: (-at[1], at[0]))]
                met.update(dict.fromkeys(ring))
            nodes = [self._entities[other] for other in met if other != key]
            return nodes, strongest_first(self._edges_among(met))

    def relations(self, first: int, last: int) -> list[EntityEdge]:
        """Return every relation whose subject's key is from `first` to `last`."""
        with self._lock:
            return [edge for edge in self._relations.values() if first <= edge.subject <= last]

    def touching(self, keys: Collection[int]) -> list[EntityEdge]:
        """Return every relation with an end among the keys."""
        with self._lock:
            identities = set[_Identity]().union(*(self._touching.get(key, ()) for key in keys))
            return [self._relations[identity] for identity in identities]

    def counts(self) -> tuple[int, int]:
        """Return how many entities and how many relations are stored."""
        return len(self._entities), len(self._relations)

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entities.clear()
            self._relations.clear()
            self._touching.clear()

    def _forget(self, identities: Iterable[_Identity]) -> None:
        for identity in identities:
            if self._relations.pop(identity, None):
                subject, _, object_ = identity
                self._touching[subject].discard(identity)
                self._touching[object_].discard(identity)

    def _steps(self, key: int) -> Iterator[tuple[int, EntityEdge]]:
        for identity in self._touching.get(key, ()):
            edge = self._relations[identity]
            yield (edge.object if edge.subject == key else edge.subject), edge

    def _edges_among(self, keys: Collection[int]) -> Iterator[EntityEdge]:
        members = frozenset(keys)
        for key in members:
            for identity in self._touching.get(key, ()):
                if identity[0] == key and identity[2] in members:
                    yield self._relations[identity]
