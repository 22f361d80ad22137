"""The cache of question vectors: each question is embedded once, and a failure is not kept."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from loom_core.embedding.interface import EmbeddingKind
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.query_cache import QueryCache
from loom_core.errors import EmbeddingError


class Embedder(HashingEmbedder):
    """Fails at the first texts, if asked to, and keeps what it was asked."""

    def __init__(self, *, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures
        self.asked: list[tuple[str, ...]] = []

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        self.asked.append(tuple(texts))
        await anyio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise EmbeddingError("The model is away.")
        return await super().embed(texts, kind=kind)


async def test_a_question_of_several_at_the_same_time_is_embedded_once():
    embedder = Embedder()
    cache = QueryCache(embedder)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            for question in ("谁织布?", "Who weaves?"):
                tasks.start_soon(lambda text=question: cache.embed([text], kind="query"))
    assert sorted(embedder.asked) == [("Who weaves?",), ("谁织布?",)]
    assert (await cache.embed(["Who weaves?"], kind="query")).shape == (1, embedder.dimension)
    await cache.embed(["Who weaves?"])  # a passage
    assert len(embedder.asked) == 3
    assert (cache.id, cache.config, cache.semantic) == (embedder.id, embedder.config, embedder.semantic)


async def test_a_question_whose_embedding_failed_is_embedded_again():
    embedder = Embedder(failures=1)
    cache = QueryCache(embedder)
    with pytest.raises(EmbeddingError):
        await cache.embed(["Who weaves?"], kind="query")
    assert (await cache.embed(["Who weaves?"], kind="query")).any()
    for number in range(100):  # more than are kept
        await cache.embed([f"{number}?"], kind="query")
    await cache.embed(["Who weaves?"], kind="query")
    assert embedder.asked.count(("Who weaves?",)) == 3
