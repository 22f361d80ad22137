"""The graph in a database follows the record, and answers as Kùzu does; the server may lose what it had."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_core.knowledge.indexes.graph import GraphIndexes, neighbourhood
from loom_core.knowledge.indexes.remote_graph import RemoteGraph
from loom_core.knowledge.interface import GraphStore
from loom_core.knowledge.store import KnowledgeStore
from tests.fixtures.plain_graph_store import PlainGraphServer
from tests.fixtures.store_servers.falkordb import FalkorServer, run_falkordb

TEXTS = [f"Town{n} is a town near Town{(n + 1) % 6} on the river Anna. 厦门是城市。" for n in range(6)]
MORE = ["Basel is a town on the Rhine. 巴塞尔是城市。", "Zell is a village near Basel."]


@pytest.fixture(scope="module")
def falkordb() -> Iterator[FalkorServer]:
    with run_falkordb() as server:
        yield server


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def server(url: str) -> PlainGraphServer:
    return PlainGraphServer.at(url)


@pytest.fixture
def remote(store: KnowledgeStore, tmp_path: Path, url: str) -> Iterator[RemoteGraph]:
    index = RemoteGraph(store, tmp_path, f"plain+{url}")
    yield index
    index.close()


class SteppingGraph(RemoteGraph):
    """Builds a graph three entities at a time."""

    step_size = 3


def assert_whole(index: RemoteGraph, store: KnowledgeStore) -> None:
    """The graph is equal to the record, item by item."""
    index.sync_all()
    assert index.is_current()
    assert index.problem == ""
    index.ask(lambda graph: assert_equal(graph, store))


def assert_equal(graph: GraphStore, store: KnowledgeStore) -> None:
    keys = store.graph.keys()
    assert set(graph.get(keys)) == set(store.graph.nodes(keys))
    assert set(graph.relations(0, max(keys, default=0))) == set(store.graph.edges_from(keys))
    assert graph.counts() == (len(keys), store.graph.counts()[1])
    for key in keys:
        expected = neighbourhood(store.graph, [key], hops=2)
        assert graph.neighbours(key, hops=2) == expected.neighbours(key, hops=2)


def test_the_record_is_followed(store: KnowledgeStore, put, remote: RemoteGraph):
    assert not remote.is_current()
    put(*TEXTS)
    assert not remote.is_current()
    assert_whole(remote, store)
    put(*MORE, first=6)
    assert not remote.is_current()
    assert_whole(remote, store)
    put("Town0 is a village far from Genf.", first=0)
    store.documents.remove(2)
    assert_whole(remote, store)
    assert store.changes.state("remote_graph").generation == 1


def test_a_large_graph_is_built_in_steps(store: KnowledgeStore, put, tmp_path: Path, url: str):
    remote = SteppingGraph(store, tmp_path, f"plain+{url}")
    put(*TEXTS)
    assert remote.sync()
    done, last = remote.progress()
    assert 0 < done < last
    assert not remote.is_current()
    put(*MORE, first=6)
    store.documents.remove(1)
    assert_whole(remote, store)
    done, last = remote.progress()
    assert done == last


def test_a_server_that_is_away_gets_what_it_missed_later(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer
):
    put(*TEXTS)
    assert_whole(remote, store)
    server.away = "connection refused"
    put(*MORE, first=6)
    remote.sync_all()
    assert "connection refused" in remote.problem
    assert remote.lag() > 0
    server.away = ""
    remote._asked_again = 0.0  # ten seconds later
    assert_whole(remote, store)
    assert store.changes.state("remote_graph").generation == 1


def test_an_older_state_is_noticed_by_its_version(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer
):
    put(*TEXTS)
    assert_whole(remote, store)
    [(name, (graph, version))] = server.graphs.items()
    server.graphs[name] = graph, version - 1
    remote.sync_all()
    assert store.changes.state("remote_graph").generation == 1  # it was asked a moment ago
    remote._version_at = 0.0  # half a minute later
    assert_whole(remote, store)
    assert store.changes.state("remote_graph").generation == 2
    assert len(server.graphs) == 1


def test_another_process_notices_what_was_changed_by_others(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer, tmp_path: Path
):
    put(*TEXTS)
    assert_whole(remote, store)
    [(graph, _)] = server.graphs.values()
    graph.delete_entities([1])
    again = RemoteGraph(store, tmp_path, remote.setting)
    assert "entities" in again.find_difference()
    assert_whole(again, store)
    assert store.changes.state("remote_graph").generation == 2


def test_a_copy_of_the_folder_gets_a_graph_of_its_own(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer, tmp_path: Path
):
    put(*TEXTS)
    assert_whole(remote, store)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("record.db*"):
        shutil.copy(file, copy)
    theirs = KnowledgeStore(copy / "record.db")
    second = RemoteGraph(theirs, copy, remote.setting)
    assert_whole(second, theirs)
    assert len(server.graphs) == 2
    second.discard()
    assert len(server.graphs) == 1
    assert_whole(remote, store)
    theirs.close()


def test_a_graph_moves_between_places_and_leaves_nothing(
    store: KnowledgeStore, put, server: PlainGraphServer, tmp_path: Path, url: str
):
    put(*TEXTS)
    graphs = GraphIndexes(store, tmp_path)

    def settle(setting: str) -> list[str]:
        store.set("graph", setting)
        while graphs.sync() or graphs.wait():
            pass
        assert graphs.lag() == 0
        graphs.ask(lambda graph: assert_around(graph, store), around=[1], hops=1, owner=True)
        return [index.name for index in graphs.maintained]

    assert settle("kuzu") == ["graph"]
    assert list(tmp_path.glob("graph-*"))
    assert settle(f"plain+{url}") == ["remote_graph"]
    assert not list(tmp_path.glob("graph-*"))
    assert len(server.graphs) == 1
    assert settle(f"plain+{url}x") == ["remote_graph"]
    assert server.graphs == {}
    assert len(PlainGraphServer.at(f"{url}x").graphs) == 1
    assert settle("none") == []
    assert PlainGraphServer.at(f"{url}x").graphs == {}
    assert settle("kuzu") == ["graph"]
    graphs.close()


def assert_around(graph: GraphStore, store: KnowledgeStore) -> None:
    assert graph.neighbours(1) == neighbourhood(store.graph, [1], hops=1).neighbours(1)


def test_processes_that_do_not_work_ask_the_database_and_else_the_store(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer, tmp_path: Path
):
    put(*TEXTS)
    remote.sync_all()
    store.set("graph", remote.setting)
    reader = GraphIndexes(store, tmp_path)

    def ask() -> int:
        reader.ask(lambda graph: assert_around(graph, store), around=[1], hops=1, owner=False)
        return server.questions

    assert ask() == 1
    put(*MORE, first=6)
    assert ask() == 1  # it lacks the last changes
    remote.sync_all()
    assert ask() == 2
    server.away = "connection lost"
    assert ask() == 2
    server.away = ""
    assert ask() == 2  # not asked again at once
    assert "connection lost" in reader.find_problem()
    reader.close()


def test_a_graph_that_is_deleted_on_the_server_is_built_again(
    store: KnowledgeStore, put, remote: RemoteGraph, server: PlainGraphServer, tmp_path: Path
):
    put(*TEXTS)
    remote.sync_all()
    store.set("graph", remote.setting)
    server.graphs.clear()
    reader = GraphIndexes(store, tmp_path)
    reader.ask(lambda graph: assert_around(graph, store), around=[1], hops=1, owner=False)
    assert not store.changes.state("remote_graph").built
    assert_whole(remote, store)
    reader.close()


@pytest.mark.slow
class TestWithFalkorDB:
    @pytest.fixture
    def index(self, store: KnowledgeStore, tmp_path: Path, falkordb: FalkorServer) -> Iterator[RemoteGraph]:
        index = RemoteGraph(store, tmp_path, falkordb.setting)
        yield index
        index._asked_again = 0.0
        index.discard()
        index.close()
        assert falkordb.graphs() == []

    def test_the_record_is_followed(self, store: KnowledgeStore, put, index: RemoteGraph):
        put(*TEXTS)
        assert_whole(index, store)
        put(*MORE, first=6)
        store.documents.remove(2)
        assert_whole(index, store)
        assert store.changes.state("remote_graph").generation == 1

    @pytest.mark.parametrize("saved", [False, True], ids=["nothing", "an old state"])
    def test_a_server_that_is_killed_comes_back_with_less(
        self, store: KnowledgeStore, put, index: RemoteGraph, falkordb: FalkorServer, saved: bool
    ):
        put(*TEXTS[:3])
        assert_whole(index, store)
        if saved:
            falkordb.execute("SAVE")
        put(*TEXTS[3:], first=3)
        assert_whole(index, store)
        put(*MORE, first=6)
        (falkordb.restart if saved else falkordb.forget)()
        index.sync_all()
        index._asked_again = 0.0  # ten seconds later, if the lost connection was noticed
        assert_whole(index, store)
        assert store.changes.state("remote_graph").generation == 2

    def test_a_server_that_is_killed_between_two_steps_of_a_build(
        self, store: KnowledgeStore, put, tmp_path: Path, falkordb: FalkorServer
    ):
        index = SteppingGraph(store, tmp_path, falkordb.setting)
        put(*TEXTS, *MORE)
        index.sync()
        falkordb.execute("SAVE")
        index.sync()
        falkordb.restart()
        index.sync_all()
        index._asked_again = 0.0
        assert_whole(index, store)
        index.discard()
        index.close()
        assert falkordb.graphs() == []
