"""Collections of Qdrant that others have filled, by the official client, with a strict server."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from qdrant_client.http import models

from loom_core.errors import InvalidInputError, SourceError, StoreUnavailableError
from tests.fixtures.store_servers.qdrant import QdrantServer
from tests.unit.knowledge.sources.collections.contract import CollectionContract

COSINE = models.VectorParams(size=512, distance=models.Distance.COSINE)


def points(towns, vector=lambda town: town.vector.tolist()) -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=town.number,
            vector=vector(town),
            payload={"page_content": town.text, "metadata": town.metadata},
        )
        for town in towns
    ]


@pytest.fixture(scope="module")
def server(towns) -> Generator[QdrantServer]:
    """A server whose collection `guide` another program has filled, as LangChain does."""
    server = QdrantServer(key="writer", reader="reader")
    server.hold("guide", COSINE, points(towns))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def config(server: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("GUIDE_KEY", "reader")  # which may not write
    return {"url": server.url, "collection": "guide", "secret": "env:GUIDE_KEY"}


class TestQdrant(CollectionContract):
    engine = "qdrant"
    away = "http://127.0.0.1:{port}"

    async def test_a_graph_that_finds_too_little_is_not_trusted(self, server, config) -> None:
        source = self.open(config)
        server.misses = 3
        found = await source.query("wall", limit=6, filters={"walled": True})
        server.misses = 0
        assert len(found) == 6
        source.close()

    async def test_a_key_that_is_refused(self, config, monkeypatch) -> None:
        monkeypatch.setenv("GUIDE_KEY", "another")
        source = self.open(config)
        with pytest.raises(StoreUnavailableError, match="refuses the API key") as caught:
            await source.query("wall")
        assert caught.value.advice == (
            "Check the API key: `secret` of the source, as env:NAME or keyring:NAME."
        )
        source.close()

    async def test_what_is_no_number_or_date_has_no_order(self, config) -> None:
        source = self.open(config)
        with pytest.raises(InvalidInputError, match="compares numbers and dates"):
            await source.query("wall", filters={"title": {"gte": "Lübeck"}})
        source.close()

    async def test_one_of_several_vectors_has_to_be_named(self, server, config, towns) -> None:
        def vectors(town) -> dict[str, Any]:
            return {"text": town.vector.tolist(), "image": [1.0, 2.0]}

        sizes = {"text": COSINE, "image": models.VectorParams(size=2, distance=models.Distance.DOT)}
        server.hold("several", sizes, points(towns[:4], vectors))
        source = self.open(config, collection="several")
        with pytest.raises(SourceError, match="has 2 vectors") as caught:
            await source.query("wall")
        assert "text, image" in caught.value.advice
        source.close()
        source = self.open(config, collection="several", fields={"vector": "text"})
        assert (await source.query("marzipan port", limit=1))[0].metadata["title"] == "Lübeck"
        source.close()

    @pytest.mark.parametrize("distance", [models.Distance.EUCLID, models.Distance.DOT])
    async def test_vectors_that_are_not_of_length_one(self, server, config, towns, distance) -> None:
        params = models.VectorParams(size=512, distance=distance)
        server.hold(f"long-{distance}", params, points(towns, lambda town: (town.vector * 7).tolist()))
        source = self.open(config, collection=f"long-{distance}")
        found = await source.query("Brno is a city in Moravia with two rivers and no harbour.", limit=2)
        assert found[0].metadata["title"] == "Brno"
        assert found[0].relevance == pytest.approx(1.0, abs=1e-3)
        assert 0 < found[1].relevance < 0.9
        source.close()

    async def test_it_answers_again_once_the_server_is_back(self, server, config) -> None:
        source = self.open(config)
        await source.query("wall")
        server.kill()
        with pytest.raises(StoreUnavailableError, match="there is no connection"):
            await source.query("wall")
        server.start()
        assert await source.query("wall")
        source.close()

    async def test_an_empty_collection_has_no_passages(self, server, config) -> None:
        server.hold("empty", COSINE, [])
        source = self.open(config, collection="empty")
        assert await source.query("wall") == []
        source.close()

    def test_a_password_in_the_address_is_refused(self, config) -> None:
        with pytest.raises(ValueError, match="put it into `secret`"):
            self.open(config, url="http://me:secret@127.0.0.1:6333")
