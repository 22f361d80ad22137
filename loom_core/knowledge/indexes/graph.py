"""The graph index: Kùzu on disk, a store in memory, a database, or a neighbourhood read from the store."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreError, StoreUnavailableError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.engines.child_call import ChildError
from loom_core.knowledge.indexes.engines.servers import GRAPH
from loom_core.knowledge.indexes.graph_build import GraphBuild
from loom_core.knowledge.indexes.graph_changes import apply_changes, find_changed, sample_matches
from loom_core.knowledge.indexes.remote import ServerChoice
from loom_core.knowledge.store.place import StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeVar

    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.interface import EntityEdge, GraphStore
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges
    from loom_core.knowledge.store.graph import GraphTable

    _Found = TypeVar("_Found")

__all__ = ["GraphIndex", "GraphIndexes", "neighbourhood"]

_log = logging.getLogger(__name__)

_CHANGES = 100  # changes at a time: with the entities of new passages, one or two seconds of work
_AHEAD = 5000  # pending changes that are examined to decide on a rebuild
_LARGE = 500  # changed entities; above, copying a whole new graph into Kùzu is faster
_COMPARED = 8  # entities that are compared with the store when a graph is opened
_ATTEMPTS = 3
_WAIT_SECONDS = 0.2


class GraphIndexes:
    """The graph where the setting says: in Kùzu here, in a graph database, or only in the store's tables.

    The setting is in the store, so that all processes have the same; it may change at any time.

    Args:
        store: the store.
        folder: where the knowledge base is; None keeps the graph in memory.

    Attributes:
        server: the graph in the database that the setting names, if it names one.
    """

    def __init__(self, store: KnowledgeStore, folder: Path | None) -> None:
        self._local = GraphIndex(store, folder)
        self.server = ServerChoice(store, folder, GRAPH, name="remote_graph", load=_load_remote)
        self._store = store

    @property
    def maintained(self) -> list[DerivedIndex]:
        """The indexes that are kept in sync with the store: one, or none. Blocks."""
        remote = self.server.find()
        if remote is not None:
            return [remote]
        return [self._local] if self.server.setting == "kuzu" else []

    def ask(
        self, ask: Callable[[GraphStore], _Found], *, around: Sequence[int], hops: int, owner: bool
    ) -> _Found:
        """Ask the graph, or the store where there is none that is up to date and answers. Blocks.

        Args:
            ask: queries the graph; it may be called twice.
            around: keys of the entities around which it does so.
            hops: how many hops from them it follows.
            owner: whether this process holds the lock: no other may open the graph on disk.
        """
        remote = self.server.find()
        try:
            if remote is not None:
                if remote.is_current():
                    return remote.ask(ask)
            elif owner and (graph := self._local.graph_store()) is not None:
                return ask(graph)
        except StoreUnavailableError:
            pass  # the store has the same
        except IndexDamagedError as error:
            (remote or self._local).report_damage(error)
        return ask(neighbourhood(self._store.graph, around, hops=hops))

    def find_problem(self) -> str:
        """Ask the graph database; return why it cannot be asked, or empty. Blocks."""
        remote = self.server.find()
        if remote is None:
            return ""
        with suppress(StoreUnavailableError, IndexDamagedError):
            remote.ask(lambda graph: graph.version())
        return remote.problem

    def sync(self) -> bool:
        """Bring the graph a step closer to the store; for the holder of the lock. Blocks.

        Returns:
            Whether there may be more to do.
        """
        remote = self.server.find()
        if remote is None:
            self.server.leave()
            if self.server.setting == "kuzu":
                return self._local.sync()
        self._local.discard()
        return self.server.sync()

    def wait(self) -> bool:
        """Wait a moment for the child that builds a graph; return False if there is none."""
        return self._local.wait()

    def lag(self) -> int:
        """Return how many changes are still to be applied. Blocks."""
        return max((index.lag() for index in self.maintained), default=0)

    def close(self) -> None:
        """Release files and connections; the next use opens them again."""
        self._local.close()
        self.server.close()


def _load_remote() -> type[RemoteGraph]:
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph

    return RemoteGraph


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

    def discard(self) -> None:
        """Delete the graph, as it is no longer configured."""
        with self._lock:
            building, self._building = self._building, None
            if building is not None:
                building.kill()
            super().discard()

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
            sharing = self._store.sharing
            place = StorePlace(self._folder) if sharing is None else sharing.place
            self._building = GraphBuild(place, self._path(generation), deadline=self._deadline)
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
        changed = find_changed(self._store, pending)
        if changed:
            apply_changes(self._store, self._open(generation), changed)

    def _probe(self, path: Path) -> str | None:
        from loom_core.knowledge.indexes.engines.probe import probe_kuzu

        return probe_kuzu(path)

    def _is_large(self, pending: PendingChanges) -> bool:
        if self._folder is None:
            return False
        changes = self._store.changes
        ahead = changes.since(changes.state(self.name).watermark, limit=_AHEAD) or pending
        return len(find_changed(self._store, ahead)) > _LARGE

    def _is_consistent(self) -> bool:
        graph_store = self._graph_store
        return graph_store is not None and sample_matches(self._store, graph_store, size=_COMPARED)

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
