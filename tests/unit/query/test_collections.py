"""Collections that others have filled as sources: answers with citations, and what is said on bad days."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio
import pytest
from loom_query.command_line.doctor import own_checks
from qdrant_client.http import models

from loom_core.embedding.registry import create_embedder
from loom_core.server.doctor.checks import run_paste_safe
from tests.fixtures.store_servers import free_port
from tests.fixtures.store_servers.elastic_index import Index
from tests.fixtures.store_servers.elasticsearch import ElasticServer
from tests.fixtures.store_servers.qdrant import QdrantServer

TEXTS = {
    "Visby": "Visby has a wall of the thirteenth century.",
    "Brno": "Brno has two rivers and no harbour.",
}


@pytest.fixture(scope="module")
def server() -> Generator[QdrantServer]:
    """A server whose collection `guide` another program has filled."""
    server = QdrantServer()
    vectors = anyio.run(create_embedder("hashing").embed, list(TEXTS.values()))
    points = [
        models.PointStruct(
            id=number,
            vector=vector.tolist(),
            payload={
                "page_content": text,
                "metadata": {"title": title, "url": f"https://guide.example/{number}"},
            },
        )
        for number, ((title, text), vector) in enumerate(zip(TEXTS.items(), vectors, strict=True))
    ]
    server.hold("guide", models.VectorParams(size=512, distance=models.Distance.COSINE), points)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def guide(server: QdrantServer) -> dict[str, Any]:
    return {"kind": "qdrant", "url": server.url, "collection": "guide", "embedding": "hashing"}


async def test_an_answer_has_citations_that_can_be_read(configure, running, guide):
    configure({"guide": {**guide, "description": "Towns."}})
    async with running() as service:
        found = await service.query("Which town has a wall?", limit=1)
        assert [(each.title, each.uri, each.source) for each in found.passages] == [
            ("Visby", "https://guide.example/0", "guide")
        ]
        read = await service.fetch(found.passages[0].id, start=None, tokens=100)
        assert read.text == TEXTS["Visby"]
        [listed] = (await service.list_sources()).sources
        assert (listed.kind, listed.state, listed.filters) == ("qdrant", "ready", ["title", "url"])


async def test_the_others_answer_where_one_cannot(configure, running, guide, harbour):
    configure(
        {
            "guide": guide,
            "harbour": harbour,
            "away": {**guide, "url": f"http://127.0.0.1:{free_port()}"},
            "gone": {**guide, "collection": "none"},
        }
    )
    async with running() as service:
        found = await service.query("Which town has a wall?")
    assert {each.source for each in found.passages} >= {"guide"}
    assert found.notes[0] == "2 of 4 sources answered."
    assert found.notes[1].startswith("away: Qdrant at http://127.0.0.1:")
    assert found.notes[1].endswith("Start it, or check its address.")
    assert "Collection `none` doesn't exist" in found.notes[2]


async def test_a_server_that_hangs_costs_its_deadline_only(configure, running, guide, harbour, server):
    configure({"guide": {**guide, "deadline": 0.5}, "harbour": harbour})
    async with running() as service:
        server.paused = True
        try:
            found = await service.query("Who is the harbour master of Port Aster?")
        finally:
            server.paused = False
    assert [each.state for each in found.sources] == ["late", "answered"]
    assert "Ada Brown" in found.passages[0].text


async def test_a_source_may_name_a_retriever(configure, running, guide):
    configure(
        {
            "guide": {**guide, "retriever": "hybrid", "retriever_params": {"sparse_weight": 0.6}},
            "bad": {**guide, "retriever": "best"},
            "model": {**guide, "retriever": "hyde"},
        }
    )
    async with running() as service:
        found = await service.query("rivers", limit=1)
        assert found.passages[0].scores.keys() >= {"bm25", "dense"}
        assert any("needs a language model" in note for note in found.notes)
        assert any("there is no retriever 'best'" in note for note in found.notes)


async def test_doctor_examines_a_collection(configure, settings, guide, monkeypatch):
    monkeypatch.setenv("GUIDE_HOST", "127.0.0.1")
    url = guide["url"].replace("127.0.0.1", "${GUIDE_HOST}")
    configure(
        {
            "guide": {**guide, "url": url},
            "model": {**guide, "embedding": "e5-small"},
            "text": {**guide, "fields": {"text": "body"}},
            "unset": {**guide, "secret": "env:LOOM_TEST_UNSET"},
        }
    )
    report = await run_paste_safe(own_checks(settings()), program="loom-query-server", version="")
    found = {section.name.removeprefix("source "): section for section in report.sections}
    assert found["guide"].facts == {
        "passages": 2,
        "dimension": 512,
        "metric": "cosine",
        "filters": ["title", "url"],
    }
    assert found["guide"].findings[0].message == "It answers."
    assert "512 numbers, and those of the embedder 384" in found["model"].findings[0].message
    assert "There are: page_content, metadata.title, metadata.url." in found["text"].findings[0].remedy
    assert found["unset"].findings[0].message == "The environment variable LOOM_TEST_UNSET is not set."


@pytest.mark.parametrize("kind", ["elasticsearch", "opensearch"])
async def test_an_index_of_a_search_engine(configure, running, settings, kind):
    server = ElasticServer(kind)
    vector = {
        "elasticsearch": {"type": "dense_vector", "dims": 512, "index": True, "similarity": "cosine"},
        "opensearch": {"type": "knn_vector", "dimension": 512, "space_type": "l2"},
    }
    index = Index("guide", {}, {"properties": {"vector": vector[kind]}}, set())
    vectors = await create_embedder("hashing").embed(list(TEXTS.values()))
    for (title, text), each in zip(TEXTS.items(), vectors, strict=True):
        index.write(title, {"text": text, "vector": each.tolist(), "metadata": {"title": title}})
    index.refresh()
    server.indexes["guide"] = index
    server.start()
    hidden = {"bool": {"must_not": [{"terms": {"metadata.title.keyword": ["Brno"]}}]}}
    guide = {"kind": kind, "url": server.url, "collection": "guide", "embedding": "hashing"}
    configure(
        {
            "guide": {**guide, "retriever": "llama_hybrid"},
            "words": {**guide, "embedding": "", "body": {"query": hidden}},
            "model": {**guide, "retriever": "llama_hybrid", "embedding": "e5-small"},
            "key": {**guide, "collection": "none"},
        }
    )
    async with running() as service:
        found = await service.query("wall", sources=["guide"], limit=1, filters={"title": "Visby"})
        assert [(each.title, each.scores.keys() >= {"bm25", "dense"}) for each in found.passages] == [
            ("Visby", True)
        ]
        assert not (await service.query("harbour", sources=["words"])).passages
    report = await run_paste_safe(own_checks(settings()), program="loom-query-server", version="")
    sections = {section.name.removeprefix("source "): section for section in report.sections}
    metric = "cosine" if kind == "elasticsearch" else "l2"
    assert sections["guide"].facts == {
        "passages": 2, "dimension": 512, "metric": metric, "filters": ["title"]
    }  # fmt: skip
    assert sections["words"].findings[0].message == "It answers."
    assert "512 numbers, and those of the embedder 384" in sections["model"].findings[0].message
    assert "no such index [none]" in sections["key"].findings[0].message
    server.kill()
