"""Build of a graph store in a low-priority child process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.indexes.engines.child_call import ChildCall

if TYPE_CHECKING:
    from loom_core.knowledge.store.place import StorePlace

__all__ = ["GraphBuild", "build_graph"]

_GRAPH = "graph"


class GraphBuild:
    """A child process that copies the graph of a store into a new Kùzu database.

    It works in a separate folder, so that the files of a child that is killed, or that outlives this process
    by a moment, do not disturb other processes.

    Args:
        place: of the store.
        path: final path of the database.
        deadline: seconds until the child is killed.

    Raises:
        ChildError: no process can be started.
        OSError: no folder can be made.
    """

    def __init__(self, place: StorePlace, path: Path, *, deadline: float) -> None:
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
        try:
            self._call = ChildCall(
                build_graph,
                {**place.to_json(), "path": str(self._folder / _GRAPH)},
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
            The watermark: the last change of the store that the database holds.

        Raises:
            ChildError: the child failed; its files are removed.
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


def build_graph(*, folder: str, database: str, schema: str, path: str) -> int:
    """Build the database, in the child; return the watermark of the store at that time."""
    from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
    from loom_core.knowledge.indexes.engines.kuzu_session import write_tables
    from loom_core.knowledge.store.opening import open_store
    from loom_core.knowledge.store.place import StorePlace

    with tempfile.TemporaryDirectory(dir=Path(path).parent) as tables:
        source = open_store(StorePlace(Path(folder), database, schema), read_only=True)
        # As short as possible: a snapshot keeps SQLite from truncating the store's write-ahead log.
        with source.database.snapshot():
            watermark = source.changes.head()
            write_tables(Path(tables), source.graph.all_nodes(), source.graph.all_edges())
        source.close()
        KuzuGraphStore.load_tables(Path(path), Path(tables)).close()
    return watermark
