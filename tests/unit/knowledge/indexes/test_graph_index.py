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
def index(record: KnowledgeStore, put, tmp_path: Path) -> Iterator[GraphIndex]:
    """A graph as another process left it: built, and not open."""
    put(*TEXTS)
    built = GraphIndex(record, tmp_path)
    built.sync_all()
    built.close()
    index = GraphIndex(record, tmp_path)
    yield index
    index.close()


def test_a_graph_that_is_not_open_is_opened_by_the_next_round_of_work(
    index: GraphIndex, record: KnowledgeStore
):
    assert index.store() is None
    assert index.sync() is False
    store = index.store()
    assert store is not None
    assert store.counts()[0] == len(record.graph.keys())


def test_a_graph_that_no_one_asks_is_not_opened(index: GraphIndex):
    index.sync_all()
    assert not index._is_open()


def test_a_graph_that_is_behind_is_not_asked(index: GraphIndex, record: KnowledgeStore, put):
    index.store()
    index.sync_all()
    assert index.store() is not None
    put("Basel is a town on the Rhine.", first=6)
    assert index.store() is None
    index.sync_all()
    store = index.store()
    assert store is not None
    assert store.counts()[0] == len(record.graph.keys())


def test_the_entities_of_new_passages_come_with_them(index: GraphIndex, record: KnowledgeStore, put):
    index.store()
    index.sync_all()
    before = record.changes.head()
    put("Basel is a town on the Rhine. 巴塞尔是城市。", first=6)
    pending = record.changes.since(before)
    assert pending is not None
    assert pending.keys["chunk+"] == [record.documents.last_chunk()]
    assert pending.keys["entity"] == []
    index.sync_all()
    store, graph = index.store(), record.graph
    assert store is not None
    assert set(store.get(graph.keys())) == set(graph.nodes(graph.keys()))
    assert set(store.touching(graph.keys())) == set(graph.edges(graph.keys()))


def test_a_question_does_not_wait_while_changes_are_taken_over(index: GraphIndex):
    index.store()
    index.sync_all()
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with index._lock:
            begun.set()
            end.wait(30)

    working = threading.Thread(target=hold)
    working.start()
    begun.wait(30)
    assert index.store() is None
    end.set()
    working.join()
    assert index.store() is not None


@pytest.mark.slow
def test_damage_is_mended_by_the_work_and_not_by_the_question(
    index: GraphIndex, record: KnowledgeStore, tmp_path: Path
):
    path = tmp_path / "graph-1"
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(b"\xff" * file.stat().st_size)
    assert index.store() is None
    assert record.changes.state("graph").generation == 1
    index.sync_all()
    assert record.changes.state("graph").generation == 2
    assert index.store() is not None


def test_damage_that_shows_only_when_it_is_asked_can_be_reported(index: GraphIndex, record: KnowledgeStore):
    index.store()
    index.sync_all()
    index.report_damage(IndexDamagedError("a page cannot be read"))
    assert index.store() is None
    index.sync_all()
    assert record.changes.state("graph").generation == 2
    assert index.store() is not None
