"""The graph in a database of the team's own: FalkorDB, or another `RemoteGraphStore`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.engines.servers import GRAPH, open_graph_store
from loom_core.knowledge.indexes.graph_changes import apply_changes, find_changed, sample_matches
from loom_core.knowledge.indexes.remote import RemoteIndex
from loom_core.knowledge.interface import RemoteGraphStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges

__all__ = ["RemoteGraph"]

_CHANGES = 100  # changes at a time: with the entities of new passages, a second of work
_COMPARED = 64  # entities that are compared with the store when a graph is opened
_VERSION_SECONDS = 30.0  # until a graph that nothing is written to is asked for its version again


class RemoteGraph(RemoteIndex[RemoteGraphStore]):
    """A graph of a graph database; see `RemoteIndex`.

    Servers of graphs may lose what they have acknowledged, as they save from time to time. So the version of
    the graph is kept in the store: one that comes back with a lower version is built again.
    """

    name = "remote_graph"
    kind = GRAPH
    noted_as = "graph_collection"

    def __init__(self, store: KnowledgeStore, folder: Path, setting: str) -> None:
        super().__init__(store, folder, setting)
        self._version_at = 0.0  # by `time.monotonic`, when the version is compared again

    def is_current(self) -> bool:
        """Whether the graph holds every change of the store, so that it can be asked."""
        return self.is_built and not self.lag()

    def progress(self) -> tuple[int, int]:
        """Return the last entity that the graph holds while it is built, and the last one there is."""
        last, growing = self._store.graph.highest(), self._growing
        if self._store.changes.state(self.name).built:
            return last, last
        return (growing.after if growing is not None else 0), last

    def sync(self, *, limit: int = _CHANGES) -> bool:
        """Apply up to `limit` changes of the store, or continue a build; see `RemoteIndex.sync`."""
        return super().sync(limit=limit)

    def find_difference(self) -> str:
        """Compare the graph with the store by version, numbers and a sample; return what differs, or empty.

        Raises:
            StoreUnavailableError: it cannot be asked.
            IndexDamagedError: it is gone.
        """
        return self.ask(self._find_difference)

    def _begin(self, generation: int) -> None:
        super()._begin(generation)
        self._save_version(generation)

    def _next_keys(self, after: int) -> list[int]:
        return self._store.graph.keys(after=after, limit=self.step_size)

    def _take(self, keys: Sequence[int], generation: int) -> None:
        graph = self._store.graph
        with self._store.database.snapshot():
            edges = graph.edges_from(keys)
            nodes = graph.nodes(sorted({*keys, *(edge.object for edge in edges)}))

        def write(opened: RemoteGraphStore) -> None:
            opened.upsert_entities(nodes)
            opened.upsert_relations(edges)

        if nodes:
            self._write(generation, write)

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        changed = find_changed(self._store, pending)
        if changed:
            self._write(generation, lambda opened: apply_changes(self._store, opened, changed))

    def _catch_up(self, limit: int) -> bool:
        if super()._catch_up(limit):
            return True
        state = self._store.changes.state(self.name)
        if state.built and time.monotonic() >= self._version_at:
            self._check_version(state.generation)
        return False

    def _is_consistent(self) -> bool:
        return not self.find_difference()

    def _open(self, collection: str, secret: SecretStr | None) -> RemoteGraphStore:
        return open_graph_store(self.setting, secret=secret, graph=collection)

    def _write(self, generation: int, write: Callable[[RemoteGraphStore], None]) -> None:
        """Write into the graph, if it has not been set back, and save its version."""
        self._check_version(generation)
        write(self._index(generation))
        self._save_version(generation)

    def _check_version(self, generation: int) -> None:
        """Check that the graph has all that it acknowledged.

        Raises:
            IndexDamagedError: it was set back to an older state, or is gone.
        """
        known, version = self._saved_version(generation), self._index(generation).version()
        if version < known:
            raise IndexDamagedError(f"Its version is {version}, and was {known}: it has lost changes.")
        self._version_at = time.monotonic() + _VERSION_SECONDS

    def _save_version(self, generation: int) -> None:
        self._store.set("graph_version", json.dumps([generation, self._index(generation).version()]))

    def _saved_version(self, generation: int) -> int:
        saved = json.loads(self._store.get("graph_version") or "[0, 0]")
        return saved[1] if saved[0] == generation else 0

    def _find_difference(self, opened: RemoteGraphStore) -> str:
        self._check_version(self._store.changes.state(self.name).generation)
        counted, (entities, relations, _) = opened.counts(), self._store.graph.counts()
        if counted != (entities, relations):
            return (
                f"it has {counted[0]:,} entities and {counted[1]:,} relations, not {entities:,} and "
                f"{relations:,}"
            )
        matches = sample_matches(self._store, opened, size=_COMPARED)
        return "" if matches else "it has other entities than the store"
