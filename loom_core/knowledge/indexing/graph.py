"""The graph store: Kùzu on disk, Loom's own in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.indexing.derived import DerivedIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loom_core.knowledge.interface import EntityEdge, EntityNode, GraphStore
    from loom_core.knowledge.record import Record
    from loom_core.knowledge.record.changes import Pending

__all__ = ["GraphIndex"]

_BATCH = 5000
_COMPARED = 8  # entities that are compared with the record when a graph is opened
_LARGE = 500  # entities; above, copying a whole new graph into Kùzu is faster than taking over changes


class GraphIndex(DerivedIndex):
    """Entities and relations; on disk only for the holder of the lock, see `DerivedIndex`."""

    name = "graph"

    def __init__(self, record: Record, folder: Path | None) -> None:
        super().__init__(record, folder)
        self._store: GraphStore | None = None

    def store(self) -> GraphStore | None:
        """The graph for a question; None where it is not built, open and up to date, which `sync` sees to."""
        return self._current(self._open)

    def _build(self, generation: int) -> None:
        if self._folder is None:
            from loom_core.knowledge.indexes.memory_graph import MemoryGraphStore

            self._store = MemoryGraphStore()
            self._store.upsert_entities(list(self._all_nodes()))
            self._store.upsert_relations(list(self._all_edges()))
        else:
            from loom_core.knowledge.indexes.kuzu import KuzuGraphStore

            self._store = KuzuGraphStore.load(self._path(generation), self._all_nodes(), self._all_edges())

    def _all_nodes(self) -> Iterator[EntityNode]:
        graph, after = self._record.graph, 0
        while keys := graph.keys(after=after, limit=_BATCH):
            yield from graph.nodes(keys)
            after = keys[-1]

    def _all_edges(self) -> Iterator[EntityEdge]:
        graph, after = self._record.graph, 0
        while keys := graph.keys(after=after, limit=_BATCH):
            yield from graph.edges_from(keys)
            after = keys[-1]

    def _apply(self, pending: Pending, generation: int) -> None:
        touched = sorted(set(pending.keys["entity"]))
        if not touched:
            return
        store, graph = self._open(generation), self._record.graph
        with self._record.database.snapshot():
            edges = graph.edges(touched)
            # The other ends may be new, too, and come only with the next changes.
            ends = {end for edge in edges for end in (edge.subject, edge.object)}
            nodes = graph.nodes(sorted(ends.union(touched)))
        # All relations of an entity are written anew, as some may be gone.
        store.delete_entities(touched)
        store.upsert_entities(nodes)
        store.upsert_relations(edges)

    def _probe(self, path: Path) -> str | None:
        from loom_core.knowledge.indexes.probe import probe_kuzu

        return probe_kuzu(path)

    def _is_large(self, pending: Pending) -> bool:
        return self._folder is not None and len(set(pending.keys["entity"])) > _LARGE

    def _agrees(self) -> bool:
        store, graph = self._store, self._record.graph
        highest = self._record.graph.highest()
        places = sorted({highest * n // _COMPARED for n in range(_COMPARED)})
        keys = [key for place in places for key in graph.keys(after=place, limit=1)]
        return store is not None and set(store.get(keys)) == set(graph.nodes(keys))

    def _is_open(self) -> bool:
        return self._store is not None

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None and self._folder is not None:
            store.close()

    def _open(self, generation: int) -> GraphStore:
        if self._store is None:
            # In memory the store is there from the first build on.
            from loom_core.knowledge.indexes.kuzu import KuzuGraphStore

            self._check(generation)
            self._store = KuzuGraphStore(self._path(generation))
        return self._store
