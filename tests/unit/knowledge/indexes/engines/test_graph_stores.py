"""The contract of graph stores, for those of this machine."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loom_core.knowledge.indexes.engines.kuzu import KuzuGraphStore
from loom_core.knowledge.indexes.engines.memory_graph import MemoryGraphStore
from loom_core.testing.graph_stores import GraphStoreContract, RemoteGraphStoreContract
from tests.fixtures import plain_graph_store

assert plain_graph_store.PlainGraphStore


class TestMemoryGraphStore(GraphStoreContract):
    @contextmanager
    def graph(self) -> Generator[MemoryGraphStore]:
        yield MemoryGraphStore()


class TestKuzuGraphStore(GraphStoreContract):
    @contextmanager
    def graph(self) -> Generator[KuzuGraphStore]:
        with tempfile.TemporaryDirectory() as folder:
            graph = KuzuGraphStore(Path(folder) / "graph", buffer_pool_mb=64)
            try:
                yield graph
            finally:
                graph.close()


class TestPlainGraphStore(RemoteGraphStoreContract):
    """An engine that another distribution registers."""

    url = "plain+memory://contract"
    unreachable = "plain+memory://nowhere"
