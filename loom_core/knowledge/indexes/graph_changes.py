"""How a graph store follows the store: which entities changed, and what of them differs."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from loom_core.knowledge.interface import EntityEdge, GraphStore
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges

__all__ = ["apply_changes", "find_changed", "sample_matches"]


def find_changed(store: KnowledgeStore, pending: PendingChanges) -> set[int]:
    """Return the entities that changed, including those of new chunks."""
    return store.graph.entities_in(pending.keys["chunk+"]).union(pending.keys["entity"])


def apply_changes(store: KnowledgeStore, graph_store: GraphStore, changed: Collection[int]) -> None:
    """Make a graph store equal to the store, around entities that changed; idempotent."""
    touched = sorted(changed)
    if not touched:
        return
    # Write only the differences: a passage about a hub changes one of its thousands of relations.
    graph = store.graph
    stored = {_identity(edge): edge for edge in graph_store.touching(touched)}
    with store.database.snapshot():
        edges = {_identity(edge): edge for edge in graph.edges(touched)}
        updated = [edge for identity, edge in edges.items() if stored.get(identity) != edge]
        # The other ends may also be new, with their own changes still pending.
        concerned = {end for edge in updated for end in (edge.subject, edge.object)}.union(touched)
        nodes = set(graph.nodes(sorted(concerned)))
    there = set(graph_store.get(concerned))
    graph_store.delete_entities({node.key for node in there} - {node.key for node in nodes})
    graph_store.delete_relations(stored.keys() - edges.keys())
    graph_store.upsert_entities(sorted(nodes - there, key=attrgetter("key")))
    graph_store.upsert_relations(updated)


def sample_matches(store: KnowledgeStore, graph_store: GraphStore, *, size: int) -> bool:
    """Whether an even sample of the store's entities is in a graph store, and as it is here."""
    graph, highest = store.graph, store.graph.highest()
    places = sorted({highest * n // size for n in range(size)})
    keys = [key for place in places for key in graph.keys(after=place, limit=1)]
    return set(graph_store.get(keys)) == set(graph.nodes(keys))


def _identity(edge: EntityEdge) -> tuple[int, str, int]:
    return edge.subject, edge.predicate, edge.object
