"""Chunks that filters allow, remembered as long as they are right; cosines on the scale of confidence."""

from __future__ import annotations

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.confidence import LanguageSimilarity
from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
from loom_core.knowledge.retrieval.question import ChunkFilter, QuestionPreparer
from loom_core.knowledge.store import KnowledgeStore


@pytest.fixture
async def boats():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    await knowledge_base.add_texts(
        [f"Boat number {n}." for n in range(20)],
        uris=[f"test:{n}" for n in range(20)],
        metadatas=[{"number": n, "港口": "厦门" if n % 2 else "上海"} for n in range(20)],
    )
    yield knowledge_base
    knowledge_base.close()


async def test_the_same_filters_are_resolved_once(boats):
    chunks = ChunkFilter(boats.store)
    first = chunks.filter_chunks({"港口": "厦门", "number": [1, 3]})
    assert first is not None
    assert len(first) == 2
    assert chunks.filter_chunks({"number": (1, 3), "港口": ["厦门"]}) is first
    assert chunks.filter_chunks({"number": [1, 2]}) is not first


async def test_no_filters_allow_everything(boats):
    assert ChunkFilter(boats.store).filter_chunks({}) is None
    assert len(await boats.query("boat", 20, {})) == 20


async def test_what_is_remembered_is_forgotten_when_documents_come_and_go(boats):
    wanted = {"港口": "厦门"}
    assert len(await boats.query("boat", 50, wanted)) == 10
    await boats.add_texts(["Boat number 99."], uris=["test:99"], metadatas=[{"港口": "厦门"}])
    assert len(await boats.query("boat", 50, wanted)) == 11
    await boats.remove(["test:99", "test:1"])
    assert len(await boats.query("boat", 50, wanted)) == 9


async def test_what_is_remembered_is_forgotten_when_only_a_field_changes(boats):
    wanted = {"港口": "厦门"}
    assert len(await boats.query("boat", 50, wanted)) == 10
    await boats.add_texts(["Boat number 1."], uris=["test:1"], metadatas=[{"港口": "宁波", "新": 1}])
    assert len(await boats.query("boat", 50, wanted)) == 9
    assert len(await boats.query("boat", 50, {"新": 1})) == 1
    assert "新" in boats.supported_filters
    assert boats.index_lag() == {"words": 0, "graph": 0, "vectors": 0}


async def test_only_the_last_filters_are_remembered(boats):
    chunks = ChunkFilter(boats.store)
    first = chunks.filter_chunks({"number": 0})
    second = chunks.filter_chunks({"number": 1})
    for n in range(2, 9):
        assert chunks.filter_chunks({"number": 0}) is first
        chunks.filter_chunks({"number": n})
    assert chunks.filter_chunks({"number": 0}) is first
    assert chunks.filter_chunks({"number": 1}) is not second


async def test_what_is_no_filter_is_refused_each_time(boats):
    chunks = ChunkFilter(boats.store)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="'colour'"):
            chunks.filter_chunks({"colour": "red"})


@pytest.mark.parametrize(
    ("embedder", "question", "scaled"),
    [
        ("e5-small", "法国的首都是哪里？", set()),
        ("e5-small+bge-small-en", "法国的首都是哪里？", {"alphabetic"}),
        ("e5-small+bge-small-en", "What is the capital of France?", {"zh", "ja"}),
        ("hashing", "What is the capital of France?", None),
    ],
)
def test_cosines_between_scripts_are_shares_of_the_highest_possible(embedder, question, scaled):
    store = KnowledgeStore(None)
    provider = create_embedder(embedder)
    near = [LanguageSimilarity(each, 0.8, 0.7, 9, 0.6) for each in ("alphabetic", "zh", "ja")]
    found = QuestionPreparer(store, CurrentEmbedder(store, provider)).calibrate_nearness(question, near)
    store.close()
    if scaled is None:
        assert found is None
        return
    assert found is not None
    assert {each.language for each, before in zip(found, near, strict=True) if each != before} == scaled
    for each in found:
        if each.language in scaled:
            ceiling = provider.cross_script_ceiling
            assert (each.best, each.mean, each.usual) == (0.8 / ceiling, 0.7 / ceiling, 0.6 / ceiling)
