"""The retrievers of LlamaIndex's names over collections: parameters, results, and what is refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from qdrant_client.http import models

from loom_core.errors import ConfigError
from loom_core.knowledge import CollectionConfig, CollectionSource
from loom_core.llm.mock import MockProvider
from loom_core.plugins import PluginRegistry, create
from tests.fixtures.store_servers.qdrant import QdrantServer

BRNO = "Brno is a city in Moravia with two rivers and no harbour."


@pytest.fixture(scope="module")
def server(towns) -> Generator[QdrantServer]:
    server = QdrantServer()
    points = [
        models.PointStruct(
            id=town.number,
            vector=town.vector.tolist(),
            payload={"text": town.text, "tenant_id": f"t{town.number % 2}", **town.metadata},
        )
        for town in towns
    ]
    server.hold("guide", models.VectorParams(size=512, distance=models.Distance.COSINE), points)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def params(server: QdrantServer) -> dict[str, Any]:
    return {"url": server.url, "collection": "guide"}


@pytest.fixture
def source(params) -> Generator[CollectionSource]:
    source = CollectionSource("qdrant", CollectionConfig(**params, embedding="hashing"), name="guide")
    yield source
    source.close()


async def test_a_store_is_opened_by_its_parameters(params) -> None:
    make = PluginRegistry().get("retriever", "llama_dense")
    retriever = make(top_k=3, store_type="qdrant", store_params=params, embedding_config="hashing")
    found = await retriever.retrieve(BRNO, tenant_id="t0")
    assert len(found) == 3
    assert found[0].keys() == {
        "chunk_id", "text", "score", "metadata", "knowledge_base_id", "document_id", "source"
    }  # fmt: skip
    assert found[0]["text"] == BRNO
    assert found[0]["score"] == pytest.approx(1.0, abs=1e-3)
    assert (found[0]["knowledge_base_id"], found[0]["source"]) == ("guide", "llama_dense")
    assert {each["metadata"]["tenant_id"] for each in found} == {"t0"}
    retriever.close()


async def test_a_store_has_the_name_that_it_is_given(params) -> None:
    named = {**params, "name": "towns"}
    retriever = create("retriever", "llama_dense", store_params=named, embedding_config="hashing")
    found = await retriever.retrieve(BRNO, kb_ids=["towns"])
    assert {each["knowledge_base_id"] for each in found} == {"towns"}
    retriever.close()  # type: ignore[attr-defined]


async def test_words_and_vectors_of_a_collection(source) -> None:
    registry = PluginRegistry([source])
    by_words = registry.get("retriever", "llama_bm25")(top_k=3, max_chunks=100, cache_ttl=60)
    words = await by_words.retrieve("harbour market")
    assert words[0]["score"] == 1.0
    assert words[0]["source"] == "llama_bm25"
    both = registry.get("retriever", "llama_hybrid")(dense_weight=0.5, bm25_weight=0.5, top_k=2)
    found = await both.retrieve("Moravia with two rivers")
    assert found[0]["metadata"]["title"] == "Brno"
    assert found[0]["metadata"]["scores"].keys() >= {"dense", "bm25"}


async def test_questions_are_expanded_over_a_collection(source) -> None:
    model = MockProvider(lambda _: "Brno lies in Moravia and has two rivers.")
    for name in ("hyde", "multi_query"):
        retriever = create("retriever", name, [source], llm_provider=model, base_retriever="llama_dense")
        found = await retriever.retrieve("Which Moravian city has two rivers?", top_k=2)
        assert found[0]["metadata"]["title"] == "Brno", name


def test_what_cannot_be_used_is_refused(params, source) -> None:
    def message(**given: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            create("retriever", "llama_dense", [source], **given)
        return str(caught.value)

    assert "no store type 'redis'" in message(store_type="redis")
    index = {"index_params": {"metric_type": "L2"}}
    assert "there is none" in message(store_type="milvus", store_params=index)
    assert "are Milvus's alone" in message(store_params=index)
    assert "collection: Field required" in message(store_params={"url": params["url"]})
    assert "There are: name, url, collection" in message(store_params={**params, "colour": 1})
    assert "made by" in message(embedding_config="static")


async def test_a_store_without_a_model_says_so(params) -> None:
    retriever = create("retriever", "llama_dense", store_params=params)
    with pytest.raises(ConfigError, match="names no model for questions") as caught:
        await retriever.retrieve("rivers")
    assert "embedding_config" in caught.value.advice
    retriever.close()  # type: ignore[attr-defined]
