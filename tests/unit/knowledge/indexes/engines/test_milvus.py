"""Vectors in Milvus: the contract, and the server's bad days."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.engines.milvus import MilvusVectorIndex
from loom_core.knowledge.interface import PassageVectors, VectorQuery
from loom_core.testing.stores import VectorIndexContract
from tests.fixtures.store_servers import StoreServer, free_port
from tests.fixtures.store_servers.milvus import (
    PASSWORD,
    USER,
    ScriptedMilvus,
    run_milvus,
    skip_unless_wanted,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("milvus")]

_Found = TypeVar("_Found")
_DIMENSION = 8


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Generator[StoreServer]:
    with run_milvus(tmp_path_factory.mktemp("milvus")) as running:
        yield running


@pytest.fixture
def server(request: pytest.FixtureRequest) -> StoreServer:
    """The server, for tests that hurt it or wait for it."""
    skip_unless_wanted()
    return request.getfixturevalue("started")


class TestMilvus(VectorIndexContract):
    unreachable = f"milvus+http://127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def _address(self, request: pytest.FixtureRequest) -> None:
        if url := os.environ.get("LOOM_TEST_MILVUS_URL"):
            type(self).url = f"milvus+{url}"
            secret = os.environ.get("LOOM_TEST_MILVUS_SECRET")
            type(self).secret = SecretStr(secret) if secret else None
        else:
            type(self).url = f"milvus+{_address(request.getfixturevalue('started'))}"
            type(self).secret = SecretStr(PASSWORD)


def _address(server: StoreServer) -> str:
    return f"http://{USER}@127.0.0.1:{server.port}"


def _open(
    url: str, collection: str, *, secret: str | None = PASSWORD, dimension: int = _DIMENSION
) -> MilvusVectorIndex:
    key = None if secret is None else SecretStr(secret)
    return MilvusVectorIndex(url, secret=key, collection=collection, dimension=dimension)


def _passages(count: int) -> PassageVectors:
    vectors = np.random.default_rng(5).standard_normal((count, _DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return PassageVectors(range(1, count + 1), vectors, ["han"] * count, [1] * count)


@contextmanager
def _filled(server: StoreServer, name: str) -> Iterator[tuple[MilvusVectorIndex, PassageVectors]]:
    index = _open(_address(server), name)
    index.create()
    passages = _passages(30)
    index.upsert(passages)
    yield index, passages
    index.drop()
    index.close()


def _await_answer(ask: Callable[[], _Found]) -> _Found:
    """Ask until the server is back, for two minutes at most."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return ask()
        except StoreUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def test_a_killed_server_is_away_and_found_again_when_it_is_back(server: StoreServer) -> None:
    with _filled(server, "killed") as (index, passages):
        query = VectorQuery(passages.vectors[2], 5)
        assert index.search([query])[0][0][0] == 3
        server.kill()
        try:
            for _ in range(2):
                with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{server.port}") as caught:
                    index.search([query])
                assert caught.value.advice
                assert USER not in str(caught.value)
            with pytest.raises(StoreUnavailableError):
                index.upsert(passages)
        finally:
            server.start()
        [hits] = _await_answer(lambda: index.search([query]))
        assert hits[0][0] == 3
        assert len(hits) == 5
        assert _await_answer(index.count) == 30


def test_a_paused_server_is_given_up_in_time(server: StoreServer) -> None:
    with _filled(server, "paused") as (index, passages):
        query = VectorQuery(passages.vectors[2], 5)
        index.search([query])
        other = _open(_address(server), "paused")
        server.pause()
        try:
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="in time"):
                other.search([query])  # cannot connect
            with pytest.raises(StoreUnavailableError):
                index.search([query])
            assert time.monotonic() - began < 30
        finally:
            server.resume()
        assert len(_await_answer(lambda: index.search([query]))[0]) == 5
        assert len(_await_answer(lambda: other.search([query]))[0]) == 5
        other.close()


@pytest.mark.parametrize("secret", [None, "wrong-password-1", "an-api-key"])
def test_wrong_credentials_are_named_and_not_shown(server: StoreServer, secret: str | None) -> None:
    url = _address(server) if secret != "an-api-key" else f"http://127.0.0.1:{server.port}"
    index = _open(url, "credentials", secret=secret)
    with pytest.raises(StoreUnavailableError, match="refuses the credentials") as caught:
        index.count()
    assert "LOOM_VECTORS_SECRET" in caught.value.advice
    assert secret is None or secret not in str(caught.value)
    index.close()


def test_an_unknown_database_has_no_collections(server: StoreServer) -> None:
    index = _open(f"{_address(server)}?database=nowhere", "credentials")
    with pytest.raises(IndexDamagedError):
        index.count()
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        index.create()
    index.close()


def test_a_collection_that_another_deleted_is_damage(server: StoreServer) -> None:
    with _filled(server, "deleted") as (index, passages):
        other = _open(_address(server), "deleted")
        other.drop()
        other.close()
        for act in (
            lambda: index.search([VectorQuery(passages.vectors[0], 5)]),
            lambda: index.upsert(passages),
            lambda: index.delete([1]),
            lambda: index.vectors([1]),
            index.keys,
            index.build,
        ):
            with pytest.raises(IndexDamagedError, match="no such collection"):
                act()


def test_another_dimension_is_damage_when_writing_too(server: StoreServer) -> None:
    with _filled(server, "dimension"):
        other = _open(_address(server), "dimension", dimension=3)
        vectors = np.eye(3, dtype=np.float32)
        for act in (
            lambda: other.search([VectorQuery(vectors[0], 5)]),
            lambda: other.upsert(PassageVectors([1, 2, 3], vectors, ["han"] * 3, [1] * 3)),
        ):
            with pytest.raises(IndexDamagedError, match="dimension 8, not 3"):
                act()
        other.close()


def test_a_released_collection_is_loaded_again(server: StoreServer) -> None:
    from pymilvus import MilvusClient

    with _filled(server, "released") as (index, passages):
        client = MilvusClient(_address(server), user=USER, password=PASSWORD, dedicated=True)
        client.release_collection("released")
        client.close()
        query = VectorQuery(passages.vectors[2], 5)
        with pytest.raises(StoreUnavailableError, match="not loaded"):
            index.search([query])
        assert len(_await_answer(lambda: index.search([query]))[0]) == 5


def test_a_collection_that_lost_its_index_is_damage(server: StoreServer) -> None:
    from pymilvus import MilvusClient

    with _filled(server, "unindexed") as (index, _):
        client = MilvusClient(_address(server), user=USER, password=PASSWORD, dedicated=True)
        client.release_collection("unindexed")
        client.drop_index("unindexed", "vector")
        client.close()
        with pytest.raises(IndexDamagedError, match="its index is gone"):
            index.count()


def test_threads_connect_once_and_search_side_by_side(server: StoreServer) -> None:
    with _filled(server, "threads") as (_, passages):
        index = _open(_address(server), "threads")
        found: list[int] = []

        def ask(row: int) -> None:
            [hits, none] = index.search(
                [
                    VectorQuery(passages.vectors[row], 3),
                    VectorQuery(passages.vectors[row], 3, language="latin"),
                ]
            )
            assert not none
            found.append(hits[0][0])

        threads = [threading.Thread(target=ask, args=(row,)) for row in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(1, 9))
        index.close()
        index.close()


def test_thousands_of_documents_restrict(server: StoreServer) -> None:
    with _filled(server, "documents") as (index, passages):
        index.upsert(PassageVectors([31], passages.vectors[:1], ["han"], [29_999]))
        query = VectorQuery(passages.vectors[0], 5, documents=np.arange(2, 30_002))
        assert [key for key, _ in index.search([query])[0]] == [31]


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "tcp://host:19530",
        "http://host:port",
        "http://host?databse=x",
        "http://host?x",
        "http://host/db",
    ],
)
def test_an_address_that_is_none_of_milvus_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="Milvus"):
        _open(url, "address")


def test_an_old_server_is_refused() -> None:
    with ScriptedMilvus(version="v2.2.16").serve() as url:
        index = _open(url, "old")
        with pytest.raises(StoreUnavailableError, match=r"v2\.2\.16, which is too old") as caught:
            index.count()
        assert "2.3" in caught.value.advice


@pytest.mark.parametrize(
    ("code", "reason", "message", "advice"),
    [
        (9, "quota exceeded[reason=disk quota exceeded]", "no room left", "Free space"),
        (65_535, "write segment: no space left on device", "no room left", "Free space"),
        (1401, "privilege not permitted", "refuses the credentials", "LOOM_VECTORS_SECRET"),
        (106, "collection on recovering", "not loaded yet", "Wait"),
        (4, "request limit exceeded\nstack", r"request limit exceeded\.", "Start it"),
    ],
)
def test_what_a_server_lacks_is_said(code: int, reason: str, message: str, advice: str) -> None:
    with ScriptedMilvus(code=code, reason=reason).serve() as url:
        index = _open(url, "scripted")
        with pytest.raises(StoreUnavailableError, match=message) as caught:
            index.vectors([1])
        assert advice in caught.value.advice
        index.close()


def test_a_collection_whose_files_are_gone_is_damage() -> None:
    with ScriptedMilvus(code=1000, reason="key not found[key=files/insert_log/1]").serve() as url:
        index = _open(url, "broken")
        with pytest.raises(IndexDamagedError, match="files are gone"):
            index.count()
        index.close()


@pytest.mark.parametrize(("load_code", "error"), [(700, IndexDamagedError), (2, StoreUnavailableError)])
def test_a_collection_that_can_never_be_loaded_is_damage(load_code: int, error: type[Exception]) -> None:
    with ScriptedMilvus(code=101, reason="collection not loaded", load_code=load_code).serve() as url:
        index = _open(url, "unloadable")
        with pytest.raises(error):
            index.count()
        index.close()


def test_importing_the_client_reads_no_file_of_settings_and_prints_nothing() -> None:
    code = """
import os, sys
from pydantic import SecretStr
from loom_core.errors import StoreUnavailableError
from loom_core.knowledge.indexes.engines.milvus import MilvusVectorIndex
index = MilvusVectorIndex("http://127.0.0.1:1", secret=None, collection="a", dimension=2)
assert "pymilvus" not in sys.modules and "numpy" not in sys.modules
before = dict(os.environ)
try:
    index.count()
except StoreUnavailableError:
    assert "pymilvus" in sys.modules
    assert dict(os.environ) == before
    print("away")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("away\n", "")
