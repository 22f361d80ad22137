"""`bm25`: passages that share words with the question."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.base import Request, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.channels import WordChannel
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["BM25Retriever"]


@register("retriever", "bm25")
class BM25Retriever(SourceRetriever):
    """BM25, stretched to 0 to 1 over the candidates of each knowledge base.

    A knowledge base without an index of words is read, and indexed in memory for a while.

    Args:
        sources: what is searched.
        top_k: how many passages are returned where `retrieve` does not say.
        max_chunks: how many passages of a knowledge base without an index of words are read at the most.
        cache_ttl: for how many seconds they are kept.
        clock: seconds that never go backwards.
    """

    name = "bm25"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        top_k: int = 5,
        max_chunks: int = 5000,
        cache_ttl: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(sources, top_k=top_k)
        self._words = WordChannel(max_chunks=max_chunks, cache_ttl=cache_ttl, clock=clock)

    async def _search(self, source: PassageSource, request: Request) -> list[KnowledgeItem]:
        return await self._words.ask(source, request, limit=request.candidates)
