"""A local knowledge base as a source, opened at the first query."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.retrievers.passages import to_item
from loom_core.knowledge.sources.named_source import NamedSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom_core.knowledge.interface import Retriever
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.sources.library import Library
    from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase
    from loom_core.knowledge.sources.unified_tool import SourceInfo

__all__ = ["LocalKnowledgeBase"]


class LocalKnowledgeBase(NamedSource):
    """A knowledge base in a library as a source.

    Nothing is opened before the first question. If another process owns the knowledge base, that process
    answers.

    Args:
        library: the library with the knowledge base; its creator closes it.
        info: self-description of the source, such as that of the catalogue.
        base: name of the knowledge base, if it differs from that of the source.
        retriever: creates the retriever to use from the open knowledge base; None queries it as a whole.
    """

    def __init__(
        self,
        library: Library,
        info: SourceInfo,
        *,
        base: str = "",
        retriever: Callable[[GraphRAGKnowledgeBase], Awaitable[Retriever]] | None = None,
    ) -> None:
        self._library = library
        super().__init__(info.name, description=info.description, search_hints=info.search_hints)
        self._filters = info.supported_filters
        self._base = base or info.name
        self._retriever = retriever
        self._opened: GraphRAGKnowledgeBase | ShardedKnowledgeBase | None = None

    @property
    def supported_filters(self) -> Sequence[str]:
        """Fields of every document, and the fields that some have."""
        return self._filters

    @property
    def relevance_is_absolute(self) -> bool:
        """True, as for `GraphRAGKnowledgeBase`, unless a retriever scores the passages."""
        return self._retriever is None

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages; empty before the first query, and without an embedder."""
        return "" if self._opened is None else self._opened.embedder_id

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`.

        Raises:
            NotFoundError: there is no such knowledge base any more.
            LoomError: as `Library.open` and `GraphRAGKnowledgeBase.query`; or the retriever cannot be
                created, or the knowledge base is split, and there is a retriever.
        """
        if self._retriever is None:
            self._opened = await self._library.open(self._base)
            return await self._opened.query(query, limit=limit, filters=filters)
        self._opened = knowledge_base = await self._library.get(self._base)
        retriever = await self._retriever(knowledge_base)
        return [to_item(each) for each in await retriever.retrieve(query, top_k=limit, filters=filters)]

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """Return the passage with an id, or the whole document with an id or address."""
        knowledge_base = await self.open_base(knowledge_id)
        passage = await knowledge_base.get_by_id(knowledge_id)
        if passage is not None:
            return passage
        return await to_thread.run_sync(partial(_document, knowledge_base, knowledge_id))

    async def open_base(self, id_or_uri: str = "") -> GraphRAGKnowledgeBase:
        """Return the knowledge base itself, for callers that read its documents.

        Args:
            id_or_uri: of several shards, the one with this document or passage.

        Raises:
            LoomError: as `Library.get`.
        """
        # Ask the library each time: the knowledge base may have been deleted or recreated.
        return await self._library.part(self._base, id_or_uri)


def _document(knowledge_base: GraphRAGKnowledgeBase, id_: str) -> KnowledgeItem | None:
    documents = knowledge_base.documents
    row = documents.get(id_)
    if row is None:
        return None
    text = documents.text(row.key)
    metadata = {**row.metadata, "title": row.title, "document_id": row.id, "start": 0, "end": len(text)}
    return KnowledgeItem(id=row.id, content=text, source=row.uri, metadata=metadata)
