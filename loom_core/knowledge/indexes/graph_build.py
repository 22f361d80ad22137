"""Build of a graph store in a low-priority child process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import cast

from loom_core.knowledge.indexes.engines.child_call import ChildCall

__all__ = ["GraphBuild", "build_graph"]

_GRAPH = "graph"


class GraphBuild:
    """A child process that copies the graph of a store into a new Kùzu database.

    It works in a separate folder, so that what a child leaves that is killed, or outlives this process by
    a moment, is in no other process's way.

    Args:
        record: the file of the store.
        path: where the database is to be in the end.
        deadline: seconds until the child is killed.

    Raises:
        ChildError: no process can be started.
        OSError: no folder can be made.
    """

    def __init__(self, record: Path, path: Path, *, deadline: float) -> None:
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
        try:
            self._call = ChildCall(
                build_graph,
                {"record": str(record), "path": str(self._folder / _GRAPH)},
                timeout=deadline,
                background=True,
            )
        except BaseException:
            self._clear()
            raise

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._call.pid

    def has_ended(self, *, wait: float = 0.0) -> bool:
        """Whether the child has ended; this takes up to `wait` seconds."""
        return self._call.has_ended(wait=wait)

    def take(self) -> int:
        """Move the built database to its path; waits for it.

        Returns:
            Up to which change of the store it holds everything.

        Raises:
            ChildError: the child failed, and nothing is left of its work.
            OSError: the database cannot be moved.
        """
        try:
            watermark = cast("int", self._call.result())
            (self._folder / _GRAPH).rename(self._path)  # closed, it is one file
        finally:
            self._clear()
        return watermark

    def kill(self) -> None:
        """End the child, and remove its work."""
        self._call.kill()
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def build_graph(*, record: str, path: str) -> int:
    """In the child: build the database; return the number of the last change it holds."""
    from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
    from loom_core.knowledge.indexes.engines.kuzu_session import write_tables
    from loom_core.knowledge.store import KnowledgeStore

    with tempfile.TemporaryDirectory(dir=Path(path).parent) as tables:
        source = KnowledgeStore(Path(record), read_only=True)
        # No longer than reading takes: the store's log cannot be shortened meanwhile.
        with source.database.snapshot():
            watermark = source.changes.head()
            write_tables(Path(tables), source.graph.all_nodes(), source.graph.all_edges())
        source.close()
        KuzuGraphStore.load_tables(Path(path), Path(tables)).close()
    return watermark
