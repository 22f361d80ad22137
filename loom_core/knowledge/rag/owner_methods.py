"""Methods of a knowledge base's owner that other processes may call."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loom_core.errors import ConfigError
from loom_core.knowledge.retrieval.config import SearchOptions, SearchRequest
from loom_core.observability.propagation import extract_context
from loom_core.observability.spans import KNOWLEDGE_OWNER
from loom_core.observability.tracing import span

if TYPE_CHECKING:
    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.interface import Channel
    from loom_core.knowledge.rag.owner.protocol import OwnerRequest
    from loom_core.knowledge.rag.worker import KnowledgeBaseWorker
    from loom_core.knowledge.retrieval.channel_search import ChannelSearch
    from loom_core.knowledge.retrieval.searcher import Searcher

__all__ = ["OwnerMethods"]


class OwnerMethods:
    """Carries out the requests that an `OwnerClient` sends.

    Args:
        searcher: answers questions.
        channel_search: asks one channel.
        embedder: embeds questions, or None.
        worker: does the pending work of the store.
    """

    def __init__(
        self,
        searcher: Searcher,
        channel_search: ChannelSearch,
        *,
        embedder: EmbeddingProvider | None,
        worker: KnowledgeBaseWorker,
    ) -> None:
        self._searcher = searcher
        self._channel_search = channel_search
        self._embedder = embedder
        self._worker = worker

    async def answer(self, request: OwnerRequest) -> object:
        """Carry out a request; return a JSON-serializable result.

        Raises:
            LoomError: what the method raises in the owner.
        """
        if request.method in {"wake", "status"}:
            return await self._answer(request)
        attributes = {"loom.owner.method": request.method}
        with span(KNOWLEDGE_OWNER, attributes, parent=extract_context(request.trace)):
            return await self._answer(request)

    async def _answer(self, request: OwnerRequest) -> object:
        match request.method:
            case "search":
                return await self._search(request.params)
            case "ask":
                return await self._ask(**request.params)
            case "embed":
                return await self._embed(**request.params)
            case "wake":
                self._worker.wake()
                return None
            case "status":
                return asdict(self._worker.status)

    async def _search(self, params: dict[str, Any]) -> dict[str, Any]:
        options = params.pop("options")
        request = SearchRequest(**params, options=SearchOptions(**options) if options else None)
        return asdict(await self._searcher.find(request))

    async def _ask(
        self,
        *,
        channel: Channel,
        query: str,
        limit: int,
        filters: dict[str, Any] | None,
        vector: list[float] | None,
    ) -> list[dict[str, Any]]:
        import numpy as np

        given = None if vector is None else np.array(vector, dtype=np.float32)
        items = await self._channel_search.find(channel, query, limit=limit, filters=filters, vector=given)
        return [asdict(item) for item in items]

    async def _embed(self, *, texts: list[str]) -> list[list[float]]:
        if self._embedder is None:
            raise ConfigError("This process has no embedder.")
        return (await self._embedder.embed(texts, kind="query")).tolist()
