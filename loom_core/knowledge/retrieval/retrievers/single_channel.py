"""Retrievers that ask one channel: `dense`, `bm25`, `keyword` and `graph`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.retrievers.base import RetrievalRequest, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.channels import DenseChannel, LexicalChannel, ask_channel
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["BM25Retriever", "DenseRetriever", "GraphRetriever", "KeywordRetriever"]


@register("retriever", "dense")
class DenseRetriever(SourceRetriever):
    """Vector search. The score is the cosine, which passages of one model share across knowledge bases.

    Args:
        sources: the sources to search.
        top_k: how many passages are returned where `retrieve` does not say.
        embedding_config: the model that embeds the question, see `DenseChannel`; None leaves it to the
            knowledge base.
    """

    name = "dense"
    needs = "dense"

    def __init__(
        self,
        sources: Sequence[PassageSource],
        *,
        top_k: int = 5,
        embedding_config: Mapping[str, str] | str | None = None,
    ) -> None:
        super().__init__(sources, top_k=top_k)
        self._dense = DenseChannel(sources, embedding_config)

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        return await self._dense.ask(source, request, limit=request.top_k)


@register("retriever", "bm25")
class BM25Retriever(SourceRetriever):
    """BM25, stretched to 0 to 1 over the candidates of each knowledge base.

    The passages of a knowledge base without a lexical index are read and indexed in memory.

    Args:
        sources: the sources to search.
        top_k: how many passages are returned where `retrieve` does not say.
        max_chunks: maximum number of passages to read from a knowledge base without a lexical index.
        cache_ttl: for how many seconds that index is reused.
        clock: monotonic clock, in seconds.
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
        self._words = LexicalChannel(max_chunks=max_chunks, cache_ttl=cache_ttl, clock=clock)

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        return await self._words.ask(source, request, limit=request.candidates)


@register("retriever", "graph")
class GraphRetriever(SourceRetriever):
    """The channel `graph` of knowledge bases that have it, with its own score."""

    name = "graph"
    needs = "graph"

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        return await ask_channel("graph", source, request, limit=request.top_k)


@register("retriever", "keyword")
class KeywordRetriever(SourceRetriever):
    """The channel `keyword` of knowledge bases that have it, with its own score."""

    name = "keyword"
    needs = "keyword"

    async def _search(self, source: PassageSource, request: RetrievalRequest) -> list[KnowledgeItem]:
        return await ask_channel("keyword", source, request, limit=request.top_k)
