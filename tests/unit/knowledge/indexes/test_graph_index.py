"""A question to the graph waits for nothing: not for opening it, not for a probe, not for a rebuild."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes import GraphIndex
from loom_core.knowledge.store import KnowledgeStore

pytestmark = pytest.mark.slow

TEXTS = [f"Town{n} is a town near Town{(n + 1) % 6} on the river Anna. 厦门是城市。" for n in range(6)]


@pytest.fixture
def index(store: KnowledgeStore, put, tmp_path: Path) -> Iterator[GraphIndex]:
    """A graph as another process left it: built, and not open."""
    put(*TEXTS)
    built = GraphIndex(store, tmp_path)
    built.sync_all()
    built.close()
    index = GraphIndex(store, tmp_path)
    yield index
    index.close()


def test_a_graph_that_is_not_open_is_opened_by_the_next_round_of_work(
    index: GraphIndex, store: KnowledgeStore
):
    assert index.graph_store() is None
    assert index.sync() is False
    graph_store = index.graph_store()
    assert graph_store is not None
    assert graph_store.counts()[0] == len(store.graph.keys())


def test_a_graph_that_no_one_asks_is_not_opened(index: GraphIndex):
    index.sync_all()
    assert not index._is_open()


def test_a_graph_that_is_behind_is_not_asked(index: GraphIndex, store: KnowledgeStore, put):
    index.graph_store()
    index.sync_all()
    assert index.graph_store() is not None
    put("Basel is a town on the Rhine.", first=6)
    assert index.graph_store() is None
    index.sync_all()
    graph_store = index.graph_store()
    assert graph_store is not None
    assert graph_store.counts()[0] == len(store.graph.keys())


def test_the_entities_of_new_passages_come_with_them(index: GraphIndex, store: KnowledgeStore, put):
    index.graph_store()
    index.sync_all()
    before = store.changes.head()
    put("Basel is a town on the Rhine. 巴塞尔是城市。", first=6)
    pending = store.changes.since(before)
    assert pending is not None
    assert pending.keys["chunk+"] == [store.documents.last_chunk()]
    assert pending.keys["entity"] == []
    index.sync_all()
    graph_store, graph = index.graph_store(), store.graph
    assert graph_store is not None
    assert set(graph_store.get(graph.keys())) == set(graph.nodes(graph.keys()))
    assert set(graph_store.touching(graph.keys())) == set(graph.edges(graph.keys()))


def test_a_question_does_not_wait_while_changes_are_taken_over(index: GraphIndex):
    index.graph_store()
    index.sync_all()
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with index._lock:
            begun.set()
            end.wait(30)

    working = threading.Thread(target=hold)
    working.start()
    begun.wait(30)
    assert index.graph_store() is None
    end.set()
    working.join()
    assert index.graph_store() is not None


@pytest.mark.slow
def test_damage_is_mended_by_the_work_and_not_by_the_question(
    index: GraphIndex, store: KnowledgeStore, tmp_path: Path
):
    path = tmp_path / "graph-1"
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(b"\xff" * file.stat().st_size)
    assert index.graph_store() is None
    assert store.changes.state("graph").generation == 1
    index.sync_all()
    assert store.changes.state("graph").generation == 2
    assert index.graph_store() is not None


def test_damage_that_shows_only_when_it_is_asked_can_be_reported(index: GraphIndex, store: KnowledgeStore):
    index.graph_store()
    index.sync_all()
    index.report_damage(IndexDamagedError("a page cannot be read"))
    assert index.graph_store() is None
    index.sync_all()
    assert store.changes.state("graph").generation == 2
    assert index.graph_store() is not None
