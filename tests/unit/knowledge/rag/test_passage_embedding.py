"""Vectors make way for new documents when a server takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import anyio
import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.errors import EmbeddingError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.passage_embedding import embed_preemptibly
from loom_core.knowledge.retrieval.config import RAGConfig, WaitSettings


class SlowEmbedder(EmbeddingProvider):
    """Makes vectors of passages when its gate is open, and none of questions."""

    id = "slow"
    dimension = 2

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.failure: EmbeddingError | None = None
        self._asked: asyncio.Queue[str] = asyncio.Queue()

    async def asked(self) -> str:
        """The next texts that it is asked for."""
        return await self._asked.get()

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        if kind == "query":
            raise EmbeddingError("Not now.")
        self._asked.put_nowait(" ".join(texts))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return np.tile(np.float32([1, 0]), (len(texts), 1))


def looks(*answers: bool) -> Callable[[], bool]:
    left = list(answers)
    return lambda: left.pop(0) if left else False


async def test_vectors_are_given_where_nothing_is_urgent():
    embedder = SlowEmbedder()
    embedder.gate.set()
    vectors = await embed_preemptibly(embedder, ["a", "b"], urgent=looks(True), after=10.0)
    assert vectors is not None
    assert vectors.shape == (2, 2)


async def test_a_batch_that_takes_long_makes_way_as_soon_as_something_is_urgent():
    with anyio.fail_after(10):
        assert await embed_preemptibly(SlowEmbedder(), ["a"], urgent=looks(False, True), after=0.0) is None


async def test_a_failure_is_raised_as_it_is():
    embedder = SlowEmbedder()
    embedder.gate.set()
    embedder.failure = EmbeddingError("The model failed.")
    with pytest.raises(EmbeddingError, match="The model failed"):
        await embed_preemptibly(embedder, ["a"], urgent=looks(), after=10.0)


async def test_documents_are_found_by_words_while_a_server_does_not_answer():
    embedder = SlowEmbedder()
    config = RAGConfig(waits=WaitSettings(batch=0.0))
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, config=config)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(knowledge_base.add_texts, ["Zell is a town."])
            while "Zell" not in await embedder.asked():
                pass
            tasks.start_soon(knowledge_base.add_texts, ["厦门是一座城市。"])
            while "厦门" not in await embedder.asked():
                pass
            for question, answer in (("厦门", "厦门是一座城市。"), ("Zell", "Zell is a town.")):
                assert [item.content for item in await knowledge_base.query(question)] == [answer]
            assert knowledge_base.store.vectors.coverage()[0] == 0
            embedder.gate.set()
    assert knowledge_base.store.vectors.pending(10) == []
    knowledge_base.close()
