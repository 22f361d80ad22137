"""Collections of a Chroma server that others have filled, by Chroma's own client."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import chromadb
import pytest
from chromadb.config import Settings

from loom_core.errors import InvalidInputError, StoreUnavailableError
from tests.fixtures.store_servers import StoreServer
from tests.fixtures.store_servers.chroma import Gate, run_chroma, run_gate
from tests.unit.knowledge.sources.collections.contract import CollectionContract

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(towns, tmp_path_factory: pytest.TempPathFactory) -> Generator[StoreServer]:
    """A server whose collections another program has filled: by cosine, and by Chroma's default, l2."""
    with run_chroma(tmp_path_factory.mktemp("chroma")) as running:
        client = chromadb.HttpClient(
            host="127.0.0.1", port=running.port, settings=Settings(anonymized_telemetry=False)
        )
        for name, configuration, factor in (
            ("guide", {"hnsw": {"space": "cosine"}}, 1),
            ("long", None, 7),
            ("inner", {"hnsw": {"space": "ip"}}, 7),
        ):
            collection = client.create_collection(name, embedding_function=None, configuration=configuration)
            collection.add(
                ids=[f"town-{town.number}" for town in towns],
                embeddings=[town.vector * factor for town in towns],
                documents=[town.text for town in towns],
                metadatas=[town.metadata for town in towns],
            )
        client._server._session.close()  # `close` leaves it open
        yield running


@pytest.fixture
def gate(server: StoreServer) -> Generator[Gate]:
    with run_gate(server.port) as running:
        running.token = "ck-reader"
        yield running


@pytest.fixture
def config(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, Any]]:
    """The collection behind a gate, which sees that nothing is written."""
    monkeypatch.setenv("GUIDE_TOKEN", "ck-reader")
    yield {"url": gate.url, "collection": "guide", "secret": "env:GUIDE_TOKEN"}
    reads = ("/get", "/query", "/count", "/version", "/guide", "/long", "/inner", "/no_such_collection")
    assert [path for _, path in gate.requests if not is_read(path, reads)] == []
    assert {method for method, _ in gate.requests} <= {"GET", "POST"}


def is_read(path: str, ends: tuple[str, ...]) -> bool:
    return path.partition("?")[0].endswith((*ends, "/default_database"))


class TestChroma(CollectionContract):
    engine = "chroma"
    away = "http://127.0.0.1:{port}"

    @pytest.mark.parametrize("name", ["long", "inner"])
    async def test_vectors_that_are_not_of_length_one(self, config, name) -> None:
        source = self.open(config, collection=name)
        found = await source.query("Brno is a city in Moravia with two rivers and no harbour.", limit=2)
        assert found[0].id == "town-4"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert 0 < found[1].relevance < 0.9
        source.close()

    async def test_a_token_that_is_refused(self, config, gate) -> None:
        gate.token = "another"
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="refuses the token") as caught:
            await source.query("wall")
        assert caught.value.advice == "Check its token: `secret` of the source, as env:NAME or keyring:NAME."
        source.close()

    async def test_text_has_no_order(self, config) -> None:
        source = self.open(config)
        for given in ({"gte": "L"}, {"contains": "ü"}):
            with pytest.raises(InvalidInputError, match="Chroma cannot decide the filter 'title'"):
                await source.query("wall", filters={"title": given})
        source.close()
