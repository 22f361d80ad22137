"""Vectors in Qdrant: the contract over HTTP, and the bad days of a server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, LoomError, StoreUnavailableError
from loom_core.knowledge.indexes.engines.qdrant import QdrantVectorIndex
from loom_core.knowledge.indexes.engines.servers import open_vector_index
from loom_core.knowledge.interface import PassageVectors, VectorQuery
from loom_core.testing.stores import VectorIndexContract
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.qdrant import QdrantError, QdrantServer

pytestmark = pytest.mark.slow

_KEY = "qd-key-of-no-value"
_REAL = os.environ.get("LOOM_TEST_QDRANT_URL", "")
_DIMENSION = 8


@pytest.fixture(scope="module")
def shared_server() -> Generator[QdrantServer]:
    server = QdrantServer(key=_KEY, prefix="/vectors")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server() -> Generator[QdrantServer]:
    server = QdrantServer()
    server.start()
    yield server
    server.kill()


class TestQdrantVectorIndex(VectorIndexContract):
    secret = SecretStr(_KEY)
    unreachable = f"qdrant+http://127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def _at(self, shared_server: QdrantServer) -> None:
        type(self).url = f"qdrant+{shared_server.url}"


@pytest.mark.skipif(
    not _REAL, reason="LOOM_TEST_QDRANT_URL names no Qdrant server, such as http://localhost:6333."
)
class TestRealQdrant(VectorIndexContract):
    url = f"qdrant+{_REAL}"
    secret = SecretStr(os.environ["LOOM_TEST_QDRANT_KEY"]) if "LOOM_TEST_QDRANT_KEY" in os.environ else None
    unreachable = "qdrant+http://127.0.0.1:9"


def test_a_collection_is_made_as_the_vendor_advises(server: QdrantServer) -> None:
    index = _filled(server)
    [create] = server.collections().values()
    assert create.vectors is not None
    assert create.vectors.model_dump(exclude_none=True) == {"size": _DIMENSION, "distance": "Cosine"}
    assert create.hnsw_config is not None
    assert create.hnsw_config.model_dump(exclude_none=True) == {"m": 16, "ef_construct": 100}
    assert server.threshold("notes") == 0
    assert [(each.method, each.path) for each in server.asked] == [
        ("DELETE", ""),
        ("PUT", ""),
        ("PUT", "/index"),  # before the first point, or the graph has no links for filters
        ("PUT", "/index"),
        ("PUT", "/points"),
    ]
    assert server.schema("notes") == {"language": "keyword", "document": "integer"}
    index.build()
    assert server.threshold("notes") == 10_000


def test_no_connection_before_the_first_use_and_no_request_for_its_own_sake(server: QdrantServer) -> None:
    index = _open(server)
    index.close()
    index = _filled(server)
    server.asked.clear()
    index.search([VectorQuery(_unit(1)[0], 3), VectorQuery(_unit(2)[1], 2, language="han", documents=[0, 1])])
    assert [each.path for each in server.asked] == ["/points/query/batch"]
    index.search([VectorQuery(_unit(1)[0], 3, documents=()), VectorQuery(_unit(1)[0], 0)])
    assert len(server.asked) == 1


def test_a_search_that_finds_too_little_is_made_exactly(server: QdrantServer) -> None:
    index = _filled(server, 40)
    server.misses = 3
    server.asked.clear()
    [far, near] = index.search([VectorQuery(_unit(1)[0], 10, language="han"), VectorQuery(_unit(1)[0], 5)])
    assert (len(far), len(near)) == (10, 5)
    assert near[0][0] == 1
    first, second = [each.body.searches for each in server.asked]
    assert [search.params.exact for search in (*first, *second)] == [False, False, True, True]
    assert all(search.params.hnsw_ef >= search.limit for search in first)


def test_a_search_in_documents_is_exact_at_once(server: QdrantServer) -> None:
    index = _filled(server, 40)
    server.misses = 3
    server.asked.clear()
    [few, many] = index.search([VectorQuery(_unit(1)[0], limit, documents=[2]) for limit in (10, 20)])
    assert {key for key, _ in few} == {key for key, _ in many} == set(range(21, 31))
    assert [search.params.exact for each in server.asked for search in each.body.searches] == [True, True]


def test_requests_stay_below_the_size_that_the_server_takes(server: QdrantServer) -> None:
    index = open_vector_index(f"qdrant+{server.url}", secret=None, collection="wide", dimension=60_000)
    index.create()
    vectors = np.full((17, 60_000), -0.004082482904638631, np.float32)
    index.upsert(PassageVectors(range(1, 18), vectors, ["han"] * 17, [1] * 17))
    assert [len(each.body.batch.ids) for each in server.asked if each.path == "/points"] == [16, 1]


def test_thirty_thousand_documents_restrict(server: QdrantServer) -> None:
    index = _filled(server, 40)
    [hits] = index.search([VectorQuery(_unit(1)[0], 40, documents=range(2, 30_002))])
    assert {key for key, _ in hits} == set(range(21, 41))


def test_building_waits_until_all_is_indexed(server: QdrantServer) -> None:
    index = _filled(server)
    server.statuses = ["yellow", "grey", "yellow", "green"]
    server.asked.clear()
    index.build()
    assert [each.method for each in server.asked] == ["PATCH", "GET", "GET", "PATCH", "GET", "GET"]


def test_a_collection_that_failed_for_good_is_damaged(server: QdrantServer) -> None:
    index = _filled(server)
    server.statuses = ["red"]
    with pytest.raises(IndexDamagedError, match=r"status is red: .*panicked"):
        index.build()
    server.optimizer_error, error = "No space left on device", server.optimizer_error
    with pytest.raises(StoreUnavailableError, match=r"no room left: .*Free space"):
        index.build()
    server.optimizer_error = error
    server.refusals = [QdrantError(500, "Service internal error: task 12 panicked")]
    with pytest.raises(IndexDamagedError, match="task 12 panicked"):
        index.count()
    server.statuses = ["green"]
    server.refusals = [
        QdrantError(500, "Service internal error: Failed to count, Failed to load local shard")
    ]
    with pytest.raises(IndexDamagedError, match="Failed to load local shard"):
        index.count()
    index.create()
    assert index.count() == 0


@pytest.mark.parametrize(
    ("refusal", "message", "advice"),
    [
        (QdrantError.FULL, "no room left: .*No space left", "Free space"),
        (QdrantError(507, "Insufficient storage: disk usage is at 95 %"), "no room left", "Free space"),
        (
            QdrantError(500, "Service internal error: channel closed"),
            "status 500: .*channel closed",
            "Start it",
        ),
        (
            QdrantError(503, "Shard temporarily unavailable: recovering"),
            "status 503: .*recovering",
            "Start it",
        ),
        (
            QdrantError(502, "<html>Bad Gateway</html>", json=False),
            "status 502: no reason given",
            "Start it",
        ),
        (QdrantError(408, "Timeout: Operation 'query' timed out after 60s"), "status 408: Timeout", ""),
        (QdrantError(413, "", json=False), "status 413", ""),
        (QdrantError(429, "Rate limiting exceeded: reads", retry_after="7"), "too many requests: Rate", ""),
        (QdrantError(429, "Rate limiting exceeded: reads"), "status 429: Rate limiting", ""),
        (
            QdrantError(400, "Bad request: Limit exceeded 5 > 4. Help: Reduce it."),
            "status 400: .*exceeded",
            "",
        ),
        (QdrantError(403, "Storage locked: snapshot"), "status 403: Storage locked", ""),
        (QdrantError(403, "Forbidden: Write access is required"), "wants an API key", "LOOM_VECTORS_SECRET"),
        (QdrantError(404, "404 page not found", json=False), "does not know this request", "1.10 or later"),
        (b"<html>Sign in</html>", "none of Qdrant", "Check its address"),
        (b'{"result": {"tally": 7}, "status": "ok"}', "none of Qdrant", "Check its address"),
    ],
)
def test_what_a_server_refuses_is_no_damage(
    server: QdrantServer, refusal: QdrantError | bytes, message: str, advice: str
) -> None:
    index = _filled(server)
    server.refusals = [refusal]
    with pytest.raises(StoreUnavailableError, match=message) as caught:
        index.count()
    assert server.url in caught.value.message
    assert advice in caught.value.advice
    assert index.count() == 20


def test_an_older_server_knows_no_queries() -> None:
    server = QdrantServer()
    server.is_old = True
    server.start()
    index = _filled(server)
    with pytest.raises(StoreUnavailableError, match=r"does not know this request.*1.10 or later"):
        index.search([VectorQuery(_unit(1)[0], 5)])
    server.kill()


def test_a_write_that_is_only_accepted_is_not_taken_for_done(server: QdrantServer) -> None:
    index = _filled(server)
    server.refusals = [b'{"result": {"operation_id": 7, "status": "acknowledged"}, "status": "ok"}']
    with pytest.raises(StoreUnavailableError, match="acknowledged, not completed"):
        index.delete([1])


@pytest.mark.parametrize(
    ("secret", "message"), [(None, "wants an API key"), ("qd-wrong", "refuses the API key")]
)
def test_credentials(shared_server: QdrantServer, secret: str | None, message: str) -> None:
    index = _open(shared_server, secret=secret)
    for act in _acts(index):
        with pytest.raises(StoreUnavailableError, match=message) as caught:
            act()
        assert "keyring set loom LOOM_VECTORS_SECRET" in caught.value.advice
        assert "qd-wrong" not in _story(caught.value)


def test_a_server_that_is_killed_and_comes_back_is_searched_again(server: QdrantServer) -> None:
    index = _filled(server)
    server.kill()
    server.start()
    assert index.search([VectorQuery(_unit(4)[3], 1)])[0][0][0] == 4  # over a connection that is dead
    for _ in range(2):
        server.kill()
        for act in _acts(index):
            with pytest.raises(StoreUnavailableError, match="there is no connection"):
                act()
        server.start()
        assert index.search([VectorQuery(_unit(4)[3], 1)])[0][0][0] == 4
        assert index.count() == 20


def test_a_connection_that_dies_is_replaced_once(server: QdrantServer) -> None:
    index = _filled(server)
    server.refusals = [None]
    index.upsert(_passages(21))
    assert index.count() == 21
    server.refusals = [None, None]
    with pytest.raises(StoreUnavailableError, match="there is no connection"):
        index.count()
    server.refusals = [None]
    index.create()
    assert index.count() == 0


def test_connections_are_used_again(server: QdrantServer) -> None:
    index = _filled(server)
    for _ in range(5):
        index.count()
    assert len({each.client for each in server.asked}) == 1


def test_a_server_that_hangs_is_not_waited_for_without_end(server: QdrantServer) -> None:
    index = _filled(server)
    server.paused = True
    failures: list[LoomError] = []

    def fail(act: Callable[[], object]) -> None:
        with pytest.raises(StoreUnavailableError, match="does not answer in time") as caught:
            act()
        failures.append(caught.value)

    reads = [index.count, index.keys, lambda: index.search([VectorQuery(_unit(1)[0], 5)])]
    threads = [threading.Thread(target=fail, args=(act,)) for act in reads]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(failures) == 3
    assert 9 < time.monotonic() - began < 60
    server.paused = False
    assert index.count() == 20


def test_a_collection_that_another_program_deletes_is_damage(server: QdrantServer) -> None:
    index = _filled(server)
    server.lose("notes")
    for act in (*_acts(index), index.build):
        with pytest.raises(IndexDamagedError, match=r"notes .*doesn't exist. .*built again"):
            act()
    index.create()
    assert index.count() == 0


def test_another_dimension_is_damage_for_writes_too(server: QdrantServer) -> None:
    _filled(server).close()
    wider = open_vector_index(f"qdrant+{server.url}", secret=None, collection="notes", dimension=16)
    with pytest.raises(IndexDamagedError, match="expected dim: 8, got 16"):
        wider.upsert(PassageVectors([1], np.ones((1, 16), np.float32), ["han"], [1]))


def test_a_host_that_cannot_be_is_unavailable() -> None:
    for host in ("qdrant..invalid", "xn--"):
        index = QdrantVectorIndex(f"http://{host}", secret=None, collection="notes", dimension=8)
        with pytest.raises(StoreUnavailableError, match="no connection"):
            index.count()


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:6333",
        "ftp://host:6333",
        "http://host:0",
        "http://host:port",
        "http://host:6333?api_key=secret",
        "http://host:6333/#points",
        "http://me@host:6333",
        "http://[::1",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a Qdrant server"):
        QdrantVectorIndex(url, secret=None, collection="notes", dimension=8)


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "密钥"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ConfigError, match="characters that no key has") as caught:
        QdrantVectorIndex("http://host", secret=SecretStr(key), collection="notes", dimension=8)
    assert key not in _story(caught.value)


def test_an_address_may_have_a_path_or_no_port() -> None:
    for url in ("http://localhost", "https://cluster.cloud.example/vectors/", "http://[::1]:6333"):
        index = QdrantVectorIndex(url, secret=None, collection="notes", dimension=8)
        index.close()


def _open(server: QdrantServer, secret: str | None = None) -> Any:
    return open_vector_index(
        f"qdrant+{server.url}",
        secret=None if secret is None else SecretStr(secret),
        collection="notes",
        dimension=_DIMENSION,
    )


def _filled(server: QdrantServer, count: int = 20) -> Any:
    index = _open(server)
    index.create()
    index.upsert(_passages(count))
    return index


def _acts(index: Any) -> list[Callable[[], object]]:
    return [
        lambda: index.search([VectorQuery(_unit(1)[0], 5)]),
        lambda: index.upsert(_passages(3)),
        lambda: index.delete([1]),
        lambda: index.vectors([1]),
        index.keys,
        index.count,
    ]


def _passages(count: int) -> PassageVectors:
    return PassageVectors(
        keys=range(1, count + 1),
        vectors=_unit(count),
        languages=["han" if row % 2 else "alphabetic" for row in range(count)],
        documents=[row // 10 for row in range(count)],
    )


def _unit(count: int) -> Any:
    vectors = np.random.default_rng(5).standard_normal((count, _DIMENSION))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _story(error: BaseException | None) -> str:
    """Return the texts of an error and its causes, as a log shows them."""
    return "" if error is None else f"{error!r} {error} {_story(error.__cause__ or error.__context__)}"
