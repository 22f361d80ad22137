"""The patterns of generation over several sources at once."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.patterns import HierarchicalRAG, MultiQueryRAG, RAGPattern
from loom_core.knowledge.retrieval.retrievers.knowledge_base import KnowledgeBaseRetriever
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.federation.source import FederatedSource
from loom_core.llm.mock import MockProvider

_QUESTION = "Who is Mara Lindqvist, the director of The Silent Harbour?"


@pytest.fixture
def federation():
    films = DocumentsKnowledgeBase(
        [
            TextDocument(text="The Silent Harbour is a film directed by Mara Lindqvist.", title="Film"),
            TextDocument(text="The Long Winter is a film directed by Pavel Horak.", title="Another"),
        ],
        name="films",
        description="Films",
    )
    people = DocumentsKnowledgeBase(
        [
            TextDocument(
                text="玛拉·林德奎斯特（Mara Lindqvist）生于维斯比。",
                title="林德奎斯特",
                metadata={"year": 1930},
            )
        ],
        name="人物",
        description="人物传记",
    )
    yield Federation([films, people])
    films.close()
    people.close()


async def test_a_pattern_answers_from_all_sources_and_every_sentence_says_what_it_rests_on(federation):
    source = FederatedSource(federation)
    model = MockProvider(["Mara Lindqvist directed it [1]. She liked marzipan. It was a success [2]."])
    rag = RAGPattern(model, KnowledgeBaseRetriever([source]))
    answer = await rag.run(_QUESTION)
    assert {p["metadata"]["knowledge_base"] for p in answer.passages} == {"films", "人物"}
    assert answer.passages[0]["chunk_id"].startswith("films:")
    first, second, third = answer.sentences
    assert (first.citations, first.supported) == ((1,), True)
    assert (second.citations, second.supported) == ((), False)
    assert third.citations == (2,)
    assert {name: report.state for name, report in source.reports.items()} == {
        "films": "answered", "人物": "answered",
    }  # fmt: skip


async def test_several_wordings_are_asked_of_several_sources(federation):
    model = MockProvider(['["Silent Harbour director", "《静港》的导演"]', "Mara Lindqvist [1]."])
    source = FederatedSource(federation)
    rag = MultiQueryRAG(model, [source], base_retriever="knowledge_base", num_queries=2)
    answer = await rag.run(_QUESTION)
    assert answer.passages[0]["text"].startswith("The Silent Harbour")
    assert answer.sentences[0].supported


async def test_documents_come_first_in_the_pattern_that_narrows_down(federation):
    rag = HierarchicalRAG(None, KnowledgeBaseRetriever([FederatedSource(federation)]), top_documents=1)
    passages = await rag.retrieve(_QUESTION)
    assert [passage["text"][:18] for passage in passages] == ["The Silent Harbour"]


class _Notes(KnowledgeBaseProvider):
    """A source without filters, such as a remote service."""

    name = "notes"
    description = "Notes"

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        if filters:
            raise InvalidInputError("There is no filter.")
        text = "Mara Lindqvist, the director of The Silent Harbour, lives in Visby."
        return [KnowledgeItem(id="n1", content=text, source="https://notes.example/1", relevance=0.9)]

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return None


async def test_a_source_that_cannot_be_narrowed_down_keeps_what_it_found(federation):
    federation.replace([*federation.sources, _Notes()])
    source = FederatedSource(federation)
    rag = HierarchicalRAG(None, KnowledgeBaseRetriever([source]), top_documents=2)
    passages = await rag.retrieve(_QUESTION)
    assert {passage["metadata"]["knowledge_base"] for passage in passages} == {"films", "notes"}
    assert {name: report.state for name, report in source.reports.items()} == {
        "films": "answered", "人物": "answered", "notes": "answered",
    }  # fmt: skip


async def test_a_filter_that_was_asked_for_is_not_left_out_for_anyone(federation):
    federation.replace([*federation.sources, _Notes()])
    source = FederatedSource(federation)
    for _ in range(2):
        items = await source.query(_QUESTION, filters={"title": "Film"})
        assert [item.metadata["knowledge_base"] for item in items] == ["films"]
        assert source.reports["notes"].state == "failed"
        assert source.reports["notes"].is_refusal


async def test_filters_that_no_source_can_take_besides_are_refused():
    source = FederatedSource(Federation([_Notes()]))
    assert await source.query(_QUESTION)
    with pytest.raises(InvalidInputError, match="No source supports these filters"):
        await source.query(_QUESTION, filters={"source": ["https://notes.example/1"]})
    assert source.reports["notes"].state == "answered"


async def test_it_says_of_itself_what_its_sources_say(federation):
    source = FederatedSource(federation)
    assert source.description == "films: Films; 人物: 人物传记"
    assert "year" in source.supported_filters
    one = FederatedSource(federation, sources=["films"])
    assert one.description == "films: Films"
    (item, *_) = await one.query(_QUESTION, limit=1)
    assert await one.get_by_id(item.id) is not None
    assert list(one.reports) == ["films"]


async def test_it_has_no_channels_of_its_own(federation):
    source = FederatedSource(federation)
    assert (list(source.channels), source.embedder_id) == ([], "")
    assert await source.embed(["rope"]) is None
    assert await source.passages(limit=5) == []
    with pytest.raises(InvalidInputError, match="no channel 'dense'"):
        await source.ask("dense", "rope", limit=5)
