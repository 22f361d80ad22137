"""The graph index: Kùzu on disk, a store in memory, or a neighbourhood read from the store."""

from __future__ import annotations

import logging
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.engines.child_call import ChildError
from loom_core.knowledge.indexes.graph_build import GraphBuild

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loom_core.knowledge.interface import EntityEdge, GraphStore
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges
    from loom_core.knowledge.store.graph import GraphTable

__all__ = ["GraphIndex", "neighbourhood"]

_log = logging.getLogger(__name__)

_CHANGES = 100  # changes at a time: with the entities of new passages, one or two seconds of work
_AHEAD = 5000  # pending changes that are examined to decide on a rebuild
_LARGE = 500  # changed entities; above, copying a whole new graph into Kùzu is faster
_COMPARED = 8  # entities that are compared with the store when a graph is opened
_ATTEMPTS = 3
_WAIT_SECONDS = 0.2


class GraphIndex(DerivedIndex):
    """Entities and relations; on disk only for the holder of the lock, see `DerivedIndex`.

    A large graph is built by a child process, see `GraphBuild`. Meanwhile there is none, or the previous one
    stays in use, and the store can be queried instead; `sync` adopts the graph that the child built. A child
    that is killed, crashes or exceeds the deadline is retried; the third failure in a row is an error.

    Args:
        store: the store that it is derived from.
        folder: where the store is, and its directories; None keeps it in memory.
        small: a graph of up to this many entities is built in this process: that takes half a second, as long
            as the start of a child.
        deadline: seconds that a child may take.
    """

    name = "graph"

    def __init__(
        self, store: KnowledgeStore, folder: Path | None, *, small: int = 3000, deadline: float = 3600.0
    ) -> None:
        super().__init__(store, folder)
        self._small = small
        self._deadline = deadline
        self._graph_store: GraphStore | None = None
        self._building: GraphBuild | None = None
        self._failures = 0  # consecutive failures of children

    @property
    def building(self) -> GraphBuild | None:
        """The child process that is building a graph, or None."""
        return self._building

    def graph_store(self) -> GraphStore | None:
        """Return the graph for a question; None unless it is open and up to date (see `sync`)."""
        return self._current(self._open)

    def sync(self, *, limit: int = _CHANGES) -> bool:
        """Apply up to `limit` changes of the store, or a graph that was built; see `DerivedIndex.sync`.

        Raises:
            StoreError: the graph could not be built, three times in a row; the next call tries again.
        """
        return super().sync(limit=limit)

    def wait(self) -> bool:
        """Wait a moment for the child that builds a graph; return False if there is none."""
        with self._lock:
            if self._building is None:
                return False
            self._building.has_ended(wait=_WAIT_SECONDS)
            return True

    def close(self) -> None:
        """Release files, and end a child that is building: the next use starts over."""
        with self._lock:
            building, self._building = self._building, None
            if building is not None:
                building.kill()
            super().close()

    def _catch_up(self, limit: int) -> bool:
        if self._building is None:
            return super()._catch_up(limit)
        if not self._building.has_ended():
            return False
        self._adopt_build(self._building)
        return True

    def _replace(self, error: IndexDamagedError) -> None:
        self._mark_damaged(
            self._store.changes.state(self.name).generation, error
        )  # no caller may use it any more
        self._rebuild()

    def _rebuild(self) -> None:
        if self._folder is None or self._store.graph.highest() <= self._small:
            super()._rebuild()
            return
        self._remove_stale_generations()
        generation = self._store.changes.state(self.name).generation + 1
        try:
            self._building = GraphBuild(
                self._folder / "record.db", self._path(generation), deadline=self._deadline
            )
        except (ChildError, OSError) as error:
            self._handle_failure(error)

    def _adopt_build(self, building: GraphBuild) -> None:
        self._building = None
        generation = self._store.changes.state(self.name).generation + 1
        try:
            watermark = building.take()
        except (ChildError, OSError) as error:
            self._handle_failure(error)
            return
        self._failures = 0
        with suppress(IndexDamagedError):  # a damaged index may fail to close
            self._close()
        self._probed = self._compared = generation
        self._adopt(generation, watermark)

    def _handle_failure(self, error: Exception) -> None:
        """Log a failed build, which the next `sync` retries.

        Raises:
            StoreError: it was the third failure in a row.
        """
        self._failures += 1
        if self._failures < _ATTEMPTS:
            _log.warning("The graph could not be built; retrying: %s", error)
            return
        self._failures = 0
        raise StoreError(
            f"The graph could not be built: {error}.",
            advice="Free disk space and memory; until the graph is built, questions read the store.",
        ) from error

    def _build(self, generation: int) -> None:
        store = self._store
        with store.database.snapshot():  # another process may merge or split entities meanwhile
            nodes, edges = list(store.graph.all_nodes()), list(store.graph.all_edges())
        if self._folder is None:
            from loom_core.knowledge.indexes.engines.memory_graph import MemoryGraphStore

            self._graph_store = MemoryGraphStore()
            self._graph_store.upsert_entities(nodes)
            self._graph_store.upsert_relations(edges)
        else:
            from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore

            self._graph_store = KuzuGraphStore.load(self._path(generation), nodes, edges)

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        touched = sorted(self._find_changed(pending))
        if not touched:
            return
        # Write only the differences: a passage about a hub changes one of its thousands of relations.
        graph_store, graph = self._open(generation), self._store.graph
        stored = {_identity(edge): edge for edge in graph_store.touching(touched)}
        with self._store.database.snapshot():
            edges = {_identity(edge): edge for edge in graph.edges(touched)}
            changed = [edge for identity, edge in edges.items() if stored.get(identity) != edge]
            # The other ends may also be new, with their own changes still pending.
            concerned = {end for edge in changed for end in (edge.subject, edge.object)}.union(touched)
            nodes = set(graph.nodes(sorted(concerned)))
        there = set(graph_store.get(concerned))
        graph_store.delete_entities({node.key for node in there} - {node.key for node in nodes})
        graph_store.delete_relations(stored.keys() - edges.keys())
        graph_store.upsert_entities(sorted(nodes - there, key=attrgetter("key")))
        graph_store.upsert_relations(changed)

    def _probe(self, path: Path) -> str | None:
        from loom_core.knowledge.indexes.engines.probe import probe_kuzu

        return probe_kuzu(path)

    def _is_large(self, pending: PendingChanges) -> bool:
        if self._folder is None:
            return False
        changes = self._store.changes
        ahead = changes.since(changes.state(self.name).watermark, limit=_AHEAD) or pending
        return len(self._find_changed(ahead)) > _LARGE

    def _find_changed(self, pending: PendingChanges) -> set[int]:
        """Return the entities that changed, including those of new chunks."""
        return self._store.graph.entities_in(pending.keys["chunk+"]).union(pending.keys["entity"])

    def _is_consistent(self) -> bool:
        graph_store, graph = self._graph_store, self._store.graph
        highest = self._store.graph.highest()
        places = sorted({highest * n // _COMPARED for n in range(_COMPARED)})
        keys = [key for place in places for key in graph.keys(after=place, limit=1)]
        return graph_store is not None and set(graph_store.get(keys)) == set(graph.nodes(keys))

    def _is_open(self) -> bool:
        return self._graph_store is not None

    def _close(self) -> None:
        graph_store, self._graph_store = self._graph_store, None
        if graph_store is not None and self._folder is not None:
            graph_store.close()

    def _open(self, generation: int) -> GraphStore:
        if self._graph_store is None:
            # In memory the store is there from the first build on.
            from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore

            self._check(generation)
            self._graph_store = KuzuGraphStore(self._path(generation))
        return self._graph_store


def _identity(edge: EntityEdge) -> tuple[int, str, int]:
    return edge.subject, edge.predicate, edge.object


_RING = 400  # entities of one hop that are followed further


def neighbourhood(graph: GraphTable, keys: Sequence[int], *, hops: int) -> GraphStore:
    """Return the neighbourhood of entities within some hops, as a graph in memory.

    Args:
        graph: the store's graph.
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
    graph_store = MemoryGraphStore()
    graph_store.upsert_entities(graph.nodes(sorted(met)))
    graph_store.upsert_relations(list(edges.values()))
    return graph_store
