"""Reading a part of the graph from the record, for processes that do not hold the graph store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import EntityEdge, GraphStore
    from loom_core.knowledge.store.graph import GraphTable

__all__ = ["neighbourhood"]

_RING = 400  # entities of one hop that are followed further


def neighbourhood(graph: GraphTable, keys: Sequence[int], *, hops: int) -> GraphStore:
    """What lies within some hops of entities, as a graph in memory.

    Args:
        graph: the record's graph.
        keys: where to begin.
        hops: how far to go; of a hop's entities only the best supported are followed further.
    """
    from loom_core.knowledge.indexes.engines.memory_graph import MemoryGraphStore

    met = set(keys)
    edges: dict[tuple[int, str, int], EntityEdge] = {}
    ring = list(keys)
    for _ in range(hops):
        support: dict[int, int] = {}
        for edge in graph.edges(ring):
            edges[edge.subject, edge.predicate, edge.object] = edge
            for end in (edge.subject, edge.object):
                if end not in met:
                    support[end] = support.get(end, 0) + edge.support
        met |= support.keys()
        ring = sorted(support, key=lambda key: (-support[key], key))[:_RING]
    store = MemoryGraphStore()
    store.upsert_entities(graph.nodes(sorted(met)))
    store.upsert_relations(list(edges.values()))
    return store
