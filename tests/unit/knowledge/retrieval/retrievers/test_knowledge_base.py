"""Retrievers over Loom's own knowledge base, alone and beside another store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.plugins import create
from tests.unit.knowledge.retrieval.retrievers.conftest import HARBOURS, MemorySource

if TYPE_CHECKING:
    MakeSource = Callable[..., MemorySource]


class _Shop(MemorySource, KnowledgeBaseProvider):
    """A store that answers as a whole, in one way only: by words."""

    description = "What the shop at the harbour sells."

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, object] | None = None
    ) -> list[KnowledgeItem]:
        return await self.ask("bm25", query, limit=limit, filters=filters)

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return next((item for item in self._items if item.id == knowledge_id), None)


@pytest.fixture(scope="module")
def library() -> Iterator[GraphRAGKnowledgeBase]:
    """The harbours in a knowledge base in memory. Nobody changes it."""
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), name="图书馆"
    )
    asyncio.run(
        knowledge_base.add_texts(
            list(HARBOURS.values()),
            titles=list(HARBOURS),
            metadatas=[{"tenant_id": "south" if title > "z" else "north"} for title in HARBOURS],
        )
    )
    yield knowledge_base
    knowledge_base.close()


@pytest.mark.parametrize("name", ["dense", "bm25", "graph", "hybrid", "fusion", "knowledge_base"])
@pytest.mark.parametrize(
    ("query", "best"), [("Where is Visby?", "Visby"), ("泉州是海上丝绸之路的起点吗", "泉州")]
)
async def test_every_retriever_finds_the_passage_in_a_knowledge_base(
    library: GraphRAGKnowledgeBase, name: str, query: str, best: str
) -> None:
    first = (await create("retriever", name, [library]).retrieve(query))[0]
    assert first["metadata"]["title"] == best
    assert first["knowledge_base_id"] == "图书馆"
    assert first["source"] == name
    item = await library.get_by_id(first["chunk_id"])
    assert item is not None
    assert (item.content, item.source) == (first["text"], first["metadata"]["uri"])
    assert first["document_id"] == item.metadata["document_id"]


async def test_identifier_is_found_by_keywords_in_a_knowledge_base(library: GraphRAGKnowledgeBase) -> None:
    found = await create("retriever", "keyword", [library]).retrieve(
        "what does max_retries of HTTPClient do?"
    )
    assert [p["metadata"]["title"] for p in found] == ["Retries"]
    assert found[0]["metadata"]["scores"]["keyword"] == found[0]["score"]


@pytest.mark.parametrize("name", ["dense", "bm25", "hybrid", "fusion", "knowledge_base"])
async def test_tenant_sees_only_its_documents_of_a_knowledge_base(
    library: GraphRAGKnowledgeBase, name: str
) -> None:
    retriever = create("retriever", name, [library], top_k=20)
    # More Chinese than English: hashing compares a question with passages in its own language alone.
    south = await retriever.retrieve("port 港口", tenant_id="south")
    assert {p["metadata"]["title"] for p in south} == {"厦门", "泉州"}
    north = await retriever.retrieve("port 港口", tenant_id="north")
    assert {p["metadata"]["title"] for p in north}.isdisjoint({"厦门", "泉州"})


async def test_knowledge_base_and_another_store_are_searched_together(
    library: GraphRAGKnowledgeBase, make_source: MakeSource
) -> None:
    shop = make_source(
        "shop", {"Marzipan": "Marzipan from Lübeck is sold at the harbour."}, channels=["dense"]
    )
    for name in ("dense", "bm25", "hybrid", "fusion"):
        found = await create("retriever", name, [library, shop]).retrieve("marzipan of Lübeck")
        assert {p["knowledge_base_id"] for p in found[:2]} == {"图书馆", "shop"}


async def test_limit_may_be_beyond_that_of_a_question(library: GraphRAGKnowledgeBase) -> None:
    for name in ("dense", "bm25", "hybrid", "fusion"):
        assert len(await create("retriever", name, [library]).retrieve("harbour", top_k=1000)) <= len(
            HARBOURS
        )


async def test_strategy_is_that_of_the_retriever(library: GraphRAGKnowledgeBase) -> None:
    by_words = await create("retriever", "knowledge_base", [library], strategy="bm25").retrieve("marzipan")
    assert [p["metadata"]["scores"].keys() for p in by_words] == [{"bm25"}]
    own = await create("retriever", "knowledge_base", [library]).retrieve("marzipan")
    assert {"bm25"} < own[0]["metadata"]["scores"].keys()


async def test_knowledge_base_of_another_kind_is_asked_in_its_own_way(library: GraphRAGKnowledgeBase) -> None:
    shop = _Shop("shop", {"Marzipan": "Marzipan from Lübeck is sold at the harbour."})
    found = await create("retriever", "knowledge_base", [shop, library]).retrieve("marzipan")
    assert {p["knowledge_base_id"] for p in found} == {"shop", "图书馆"}
    with pytest.raises(ConfigError, match="'shop' has no strategies"):
        create("retriever", "knowledge_base", [shop], strategy="bm25")


def test_source_that_is_no_knowledge_base_cannot_be_asked_as_a_whole(harbours: MemorySource) -> None:
    with pytest.raises(ConfigError, match="'harbours' is not a knowledge base"):
        create("retriever", "knowledge_base", [harbours])


async def test_filter_that_the_knowledge_base_does_not_have_is_told(library: GraphRAGKnowledgeBase) -> None:
    with pytest.raises(InvalidInputError, match="colour"):
        await create("retriever", "hybrid", [library]).retrieve("harbour", filters={"colour": "blue"})
