"""The graph in FalkorDB, with a server of this machine: the contract, and the server's bad days."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.engines.falkordb import FalkorGraphStore
from loom_core.knowledge.interface import EntityEdge, EntityNode
from loom_core.testing.graph_stores import RemoteGraphStoreContract
from tests.fixtures.store_servers.falkordb import FalkorServer, run_falkordb, run_redis

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[FalkorServer]:
    with run_falkordb() as server:
        yield server


class TestFalkorGraphStore(RemoteGraphStoreContract):
    unreachable = "falkordb://127.0.0.1:1"

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def find_server(cls, server: FalkorServer) -> None:
        cls.url = server.setting


@pytest.fixture
def graph(server: FalkorServer) -> Iterator[FalkorGraphStore]:
    graph = opened(server)
    graph.create()
    graph.upsert_entities([EntityNode(1, "Zell", "town", 1), EntityNode(2, "Basel", "town", 2)])
    graph.upsert_relations([EntityEdge(1, "near", 2, 3, 0.5)])
    yield graph
    graph.drop()
    graph.close()


def opened(server: FalkorServer, *, user: str = "", password: str = "") -> FalkorGraphStore:
    secret = SecretStr(password) if password else None
    return FalkorGraphStore(
        f"falkordb://{user}{'@' if user else ''}127.0.0.1:{server.port}", secret=secret, graph="loom_test"
    )


@contextmanager
def configured(server: FalkorServer, kind: str, name: str, value: str | int) -> Generator[None]:
    """Change a setting of the server, and set it back."""
    before = server.execute(kind, "GET", name)
    server.execute(kind, "SET", name, value)
    try:
        yield
    finally:
        server.execute(kind, "SET", name, before[name] if isinstance(before, dict) else before[1])


def test_people_can_read_it_in_cypher(server: FalkorServer, graph: FalkorGraphStore):
    answer = server.execute(
        "GRAPH.RO_QUERY",
        "loom_test",
        "MATCH (a:Entity)-[r:RELATION {predicate: 'near'}]->(b:Entity) "
        "RETURN a.name, b.type, b.mentions, r.support, r.confidence",
    )
    assert isinstance(answer, list)
    assert answer[1] == [["Zell", "town", 2, 3, "0.5"]]


def test_a_server_that_is_killed_is_asked_again_once_it_is_back(
    server: FalkorServer, graph: FalkorGraphStore
):
    server.execute("SAVE")
    server.kill()
    with pytest.raises(StoreUnavailableError, match="the connection failed"):
        graph.counts()
    server.start()
    assert graph.counts() == (2, 1)
    graph.delete_entities([2])
    server.forget()
    with pytest.raises(IndexDamagedError, match="is gone"):
        graph.delete_entities([1])


def test_what_was_acknowledged_and_lost_is_damage_for_the_next_write(
    server: FalkorServer, graph: FalkorGraphStore
):
    server.execute("SAVE")
    graph.delete_entities([2])
    server.restart()
    with pytest.raises(IndexDamagedError, match="set back"):
        graph.delete_entities([1])


def test_a_server_that_hangs_is_given_up(server: FalkorServer, graph: FalkorGraphStore):
    store = FalkorGraphStore(server.setting, secret=None, graph="loom_test", question_seconds=0.3)
    server.pause()
    try:
        with pytest.raises(StoreUnavailableError, match="not answer in time"):
            store.neighbours(1)
    finally:
        server.resume()
    assert graph.counts() == store.counts() == (2, 1)
    store.close()


def test_a_limit_of_time_that_the_server_has_is_respected(server: FalkorServer, graph: FalkorGraphStore):
    with configured(server, "GRAPH.CONFIG", "TIMEOUT_MAX", 700):
        assert len(graph.neighbours(1)[0]) == 1
        assert graph.counts() == (2, 1)


def test_a_password_is_asked_for_and_never_shown(server: FalkorServer, graph: FalkorGraphStore):
    server.execute("ACL", "SETUSER", "anna", "on", ">correct horse 马", "~loom_*", "+@all", "-@dangerous")
    server.execute("ACL", "SETUSER", "reader", "on", ">seeing", "~loom_*", "+graph.ro_query")
    try:
        anna = opened(server, user="anna", password="correct horse 马")
        assert anna.counts() == (2, 1)
        anna.upsert_entities([EntityNode(3, "Genf", "town", 1)])
        for user, password in (("anna", "battery staple"), ("reader", "seeing")):
            store = opened(server, user=user, password=password)
            with pytest.raises(StoreUnavailableError, match="refuses the user") as caught:
                store.delete_entities([3])
            assert "LOOM_GRAPH_SECRET" in caught.value.advice
            assert password not in str(caught.value)
            store.close()
        anna.close()
    finally:
        server.execute("ACL", "DELUSER", "anna", "reader")


def test_a_server_with_a_password_that_is_not_given(server: FalkorServer, graph: FalkorGraphStore):
    server.execute("ACL", "SETUSER", "default", "resetpass", ">needed")
    try:
        for store in (opened(server), opened(server, user="anna")):
            with pytest.raises(StoreUnavailableError, match="refuses the user") as caught:
                store.counts()
            assert "LOOM_GRAPH_SECRET" in caught.value.advice
            store.close()
        store = opened(server, password="needed")
        assert store.counts() == (2, 1)
        store.close()
        with redis.Redis(port=server.port, password="needed") as client:
            client.execute_command("ACL", "SETUSER", "default", "nopass")
    finally:
        assert server.graphs() == ["loom_test"]


def test_memory_that_is_full_is_no_damage(server: FalkorServer, graph: FalkorGraphStore):
    with configured(server, "CONFIG", "maxmemory", 1):
        with pytest.raises(StoreUnavailableError, match="no memory left"):
            graph.upsert_entities([EntityNode(3, "Genf", "town", 1)])
        assert graph.counts() == (2, 1)
    graph.upsert_entities([EntityNode(3, "Genf", "town", 1)])
    assert graph.counts() == (3, 1)


def test_a_disk_that_is_full_is_no_damage(server: FalkorServer, graph: FalkorGraphStore):
    with configured(server, "CONFIG", "save", "100000 100000"):
        server.break_disk()
        try:
            with pytest.raises(StoreUnavailableError, match="cannot save its data"):
                graph.upsert_entities([EntityNode(3, "Genf", "town", 1)])
        finally:
            server.mend_disk()
    graph.upsert_entities([EntityNode(3, "Genf", "town", 1)])


def test_a_server_that_cuts_answers_is_not_used(server: FalkorServer, graph: FalkorGraphStore):
    with configured(server, "GRAPH.CONFIG", "RESULTSET_SIZE", 10):
        store = opened(server)
        with pytest.raises(StoreUnavailableError, match="cuts answers at 10 rows") as caught:
            store.counts()
        assert "RESULTSET_SIZE -1" in caught.value.advice
        store.close()
    assert graph.counts() == (2, 1)


def test_a_redis_server_without_graphs_is_not_used(server: FalkorServer, tmp_path: Path):
    with run_redis(server, tmp_path) as plain:
        store = opened(plain)
        with pytest.raises(StoreUnavailableError, match="has no FalkorDB") as caught:
            store.create()
        assert "FalkorDB 4" in caught.value.advice
        store.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:6379",
        "falkordb://",
        "falkordb://host:port",
        "falkordb://host/1",
        "redis://host?password=hidden",
        "falkordb://me:hidden@host",
    ],
)
def test_an_address_that_cannot_be_is_refused_without_showing_a_password(url: str):
    with pytest.raises(ConfigError, match="no address of FalkorDB") as caught:
        FalkorGraphStore(url, secret=None, graph="loom_test")
    assert "hidden" not in str(caught.value)
