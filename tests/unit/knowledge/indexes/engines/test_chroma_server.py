"""Vectors on a Chroma server: the contract, and the server's bad days."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import SecretStr

from loom_core.errors import ConfigError, IndexDamagedError, LoomError, StoreUnavailableError
from loom_core.knowledge.indexes.engines import chroma_server
from loom_core.knowledge.indexes.engines.chroma_server import ChromaServerIndex
from loom_core.knowledge.interface import PassageVectors, VectorQuery
from loom_core.testing.stores import VectorIndexContract
from tests.fixtures.store_servers import StoreServer, free_port
from tests.fixtures.store_servers.chroma import Gate, run_chroma, run_gate

pytestmark = pytest.mark.slow

DIMENSION = 8
TOKEN = "ck-5ecret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with run_chroma(tmp_path_factory.mktemp("chroma")) as running:
        yield running


@pytest.fixture
def gate(server: StoreServer) -> Iterator[Gate]:
    with run_gate(server.port) as running:
        yield running


@pytest.fixture
def index(server: StoreServer) -> Iterator[ChromaServerIndex]:
    opened = open_index(f"http://127.0.0.1:{server.port}")
    opened.create()
    opened.upsert(make_passages(60))
    yield opened
    opened.drop()
    opened.close()


def open_index(
    url: str, *, secret: str = "", name: str = "kb", dimension: int = DIMENSION
) -> ChromaServerIndex:
    return ChromaServerIndex(
        url, secret=SecretStr(secret) if secret else None, collection=name, dimension=dimension
    )


def make_passages(count: int) -> PassageVectors:
    rows = np.random.default_rng(3).standard_normal((count, DIMENSION)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    languages = ["han" if key % 3 == 0 else "alphabetic" for key in range(count)]
    return PassageVectors(range(1, count + 1), rows, languages, [key // 10 for key in range(count)])


def first_vector() -> NDArray[np.float32]:
    return make_passages(1).vectors[0]


def find_first(index: ChromaServerIndex) -> int:
    [hits] = index.search([VectorQuery(first_vector(), 3)])
    assert len(hits) == 3
    return hits[0][0]


class TestChromaServer(VectorIndexContract):
    unreachable = f"chroma+http://127.0.0.1:{free_port()}"

    @pytest.fixture(autouse=True)
    def choose_server(self, server: StoreServer) -> None:
        type(self).url = f"chroma+http://127.0.0.1:{server.port}"


def test_a_server_that_was_killed_is_asked_again_once_it_is_back(
    server: StoreServer, index: ChromaServerIndex
) -> None:
    assert find_first(index) == 1
    server.kill()
    with pytest.raises(StoreUnavailableError, match=f"Chroma at http://127.0.0.1:{server.port}") as caught:
        find_first(index)
    assert "Start it" in caught.value.advice
    server.start()
    assert find_first(index) == 1
    server.kill()
    server.start()
    assert find_first(index) == 1  # its connection has died, which is no error
    index.upsert(make_passages(61))
    assert index.count() == 61


def test_a_server_that_hangs_is_not_waited_for(
    server: StoreServer, index: ChromaServerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = open_index(f"http://127.0.0.1:{server.port}")
    find_first(index)
    server.pause()
    monkeypatch.setattr(chroma_server, "_SEARCH_SECONDS", 0.5)
    monkeypatch.setattr(chroma_server, "_CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(chroma_server, "_WRITE_SECONDS", 0.5)
    try:
        for act in (lambda: find_first(index), lambda: index.delete([1]), lambda: find_first(new)):
            with pytest.raises(StoreUnavailableError, match="does not answer in time"):
                act()
    finally:
        server.resume()
    monkeypatch.undo()
    assert find_first(index) == find_first(new) == 1
    new.close()


def test_a_cut_connection_is_no_error_the_first_time(gate: Gate, index: ChromaServerIndex) -> None:
    other = open_index(gate.url)
    gate.answers = [(0, "")]
    assert find_first(other) == 1
    gate.answers = [(0, ""), (0, "")]
    with pytest.raises(StoreUnavailableError, match="the connection failed"):
        find_first(other)
    assert find_first(other) == 1
    other.close()


def test_a_token_is_sent_and_a_wrong_or_missing_one_is_reported(gate: Gate, index: ChromaServerIndex) -> None:
    gate.token = TOKEN
    trusted = open_index(gate.url, secret=f"{TOKEN}\n")
    assert find_first(trusted) == 1
    trusted.close()
    for secret, reason in {"wr0ng": "it refuses the token", "": "it asks for a token"}.items():
        stranger = open_index(gate.url, secret=secret)
        for act in (stranger.count, stranger.create, stranger.drop):
            with pytest.raises(StoreUnavailableError, match=reason) as caught:
                act()
            assert "LOOM_VECTORS_SECRET" in caught.value.advice
            assert not secret or secret not in str(caught.value)
        stranger.close()


def test_a_secret_that_is_no_token_is_refused_without_being_shown() -> None:
    for secret in ("pass\nword", "pässword"):
        with pytest.raises(ConfigError, match="token") as caught:
            open_index("http://127.0.0.1:8000", secret=secret)
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "ftp://host:8000",
        "http://host:port",
        "http://host:0",
        "http://[::1",
        "http://user@host:8000",
        "http://user:hidden@host:8000",
        "http://host:8000?token=hidden",
        "http://host:8000?tenant=",
        "http://host:8000#part",
    ],
)
def test_an_address_that_is_none_of_a_chroma_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a Chroma server") as caught:
        open_index(url)
    assert "hidden" not in str(caught.value)
    assert caught.value.advice


def test_tenant_and_database_come_from_the_address(gate: Gate) -> None:
    index = open_index(f"{gate.url}/?tenant=default_tenant&database=elsewhere")
    with pytest.raises(StoreUnavailableError, match=r"\[elsewhere\]") as caught:
        index.create()
    assert "tenant and database" in caught.value.advice
    assert gate.requests[-1] == ("GET", "/api/v2/tenants/default_tenant/databases/elsewhere")
    index.close()


def test_another_dimension_is_damage_before_anything_is_compared(
    server: StoreServer, index: ChromaServerIndex
) -> None:
    wider = open_index(f"http://127.0.0.1:{server.port}", dimension=2 * DIMENSION)
    with pytest.raises(IndexDamagedError, match="of dimension 8, not 16"):
        wider.count()
    wider.close()


def test_a_collection_deleted_by_another_is_damage_and_one_made_again_is_found(
    server: StoreServer, index: ChromaServerIndex
) -> None:
    assert find_first(index) == 1
    other = open_index(f"http://127.0.0.1:{server.port}")
    other.drop()
    with pytest.raises(IndexDamagedError, match=r"kb\.vectors"):
        find_first(index)
    other.create()
    assert index.count() == 0
    other.create()
    index.upsert(make_passages(5))
    assert other.count() == 5
    other.close()


def error_body(kind: str, message: str) -> str:
    return json.dumps({"error": kind, "message": message})


FULL = "Query error: Database error: error returned from database: (code: 13) database or disk is full"
BROKEN = "Error in compaction: Failed to apply logs to the hnsw segment writer"
OTHER = "Error executing plan: Internal error: pool timed out"


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (500, error_body("InternalError", FULL), StoreUnavailableError, "Free some space on the server"),
        (500, error_body("InternalError", BROKEN), IndexDamagedError, "hnsw segment writer. It is derived"),
        (500, error_body("InternalError", OTHER), StoreUnavailableError, "answers with 500 Error executing"),
        (429, error_body("RateLimitError", "slow down"), StoreUnavailableError, "answers with 429 slow down"),
        (503, "<html>later</html>", StoreUnavailableError, "answers with 503. Start it"),
        (400, error_body("InvalidArgumentError", "dimension of 9, got 8"), IndexDamagedError, "got 8"),
        (404, "", StoreUnavailableError, "answers with 404, as Chroma does not. Check the address"),
        (301, "", StoreUnavailableError, "answers with 301"),
        (
            200,
            "<html>welcome</html>",
            StoreUnavailableError,
            "Chroma does (JSONDecodeError). Check the address",
        ),
        (200, '{"other": 1}', StoreUnavailableError, "Chroma does (KeyError)"),
    ],
)
def test_an_error_of_the_server_says_what_happened(
    gate: Gate, index: ChromaServerIndex, status: int, body: str, kind: type[LoomError], words: str
) -> None:
    other = open_index(gate.url)
    find_first(other)
    gate.answers = [(status, body)]
    with pytest.raises(kind) as caught:
        find_first(other)
    assert words in str(caught.value)
    assert find_first(other) == 1
    other.close()


def test_an_old_server_is_reported(gate: Gate) -> None:
    index = open_index(gate.url)
    gate.answers = [(200, '"0.6.3"')]
    with pytest.raises(StoreUnavailableError, match=r"version 0\.6\.3.*1\.0 or newer"):
        index.count()
    index.close()


def test_tens_of_thousands_of_documents_restrict(index: ChromaServerIndex) -> None:
    documents = [*range(100, 29_999), 2]
    [hits, chinese] = index.search(
        [
            VectorQuery(first_vector(), 20, documents=documents),
            VectorQuery(first_vector(), 20, language="han", documents=documents),
        ]
    )
    assert {key for key, _ in hits} == set(range(21, 31))
    assert {key for key, _ in chinese} == {22, 25, 28}


@pytest.mark.parametrize("wanted", [("", range(15, 400)), ("han", None), ("alphabetic", None), ("", [2, 4])])
@pytest.mark.parametrize("compared", [5, 500])
def test_a_restriction_of_any_width_has_the_nearest(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, compared: int, wanted: tuple[str, range | list[int]]
) -> None:
    monkeypatch.setattr(chroma_server, "_COMPARED", compared)
    language, documents = wanted
    index = open_index(f"http://127.0.0.1:{server.port}", name="wide")
    index.create()
    passages = make_passages(900)
    index.upsert(passages)
    cosines = passages.vectors @ first_vector()
    allowed = [
        row
        for row in range(900)
        if language in {"", passages.languages[row]}
        and (documents is None or passages.documents[row] in documents)
    ]
    nearest = sorted(allowed, key=lambda row: -cosines[row])[:20]
    [hits] = index.search([VectorQuery(first_vector(), 20, language=language, documents=documents)])
    assert [key - 1 for key, _ in hits] == nearest
    assert [cosine for _, cosine in hits] == pytest.approx(cosines[nearest].tolist(), abs=1e-4)
    index.drop()
    index.close()


def test_keys_are_listed_in_parts(index: ChromaServerIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma_server, "_LISTED", 20)
    assert sorted(index.keys()) == list(range(1, 61))


def test_threads_share_an_index_from_its_first_use(server: StoreServer, index: ChromaServerIndex) -> None:
    shared = open_index(f"http://127.0.0.1:{server.port}")
    found: list[object] = []

    def ask(act: Callable[[], object]) -> None:
        try:
            found.append(act())
        except LoomError as error:
            found.append(error)

    threads = [threading.Thread(target=ask, args=(lambda: find_first(shared),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8
    shared.close()
    with pytest.raises(StoreUnavailableError):
        shared.count()


def test_nothing_is_asked_before_the_first_use(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("chroma_server_ssl_verify=/no/such/file\n", encoding="utf-8")
    index = open_index(gate.url)
    index.close()
    assert gate.requests == []
    index.drop()
    assert gate.requests[0] == ("GET", "/api/v2/version")
    index.close()
