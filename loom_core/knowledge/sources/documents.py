"""In-memory documents as a source, given by a program or a configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from loom_core.knowledge.sources.named_source import NamedSource

if TYPE_CHECKING:
    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

__all__ = ["DocumentsKnowledgeBase", "TextDocument"]

_log = logging.getLogger(__name__)


class TextDocument(BaseModel):
    """A document given as a text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, description="Markdown or plain text.")
    title: str = Field(default="", description="Its title; by default its first heading.")
    uri: str = Field(default="", description="Its address, for citations; by default made from the text.")
    metadata: Mapping[str, Any] = Field(default={}, description="What it can be filtered by: tags, date…")


class DocumentsKnowledgeBase(NamedSource):
    """In-memory documents as a source: chunked, linked and searched as in a knowledge base on disk.

    The first question indexes them, and waits for that: a few hundred documents take about a second.

    Args:
        documents: the documents.
        name: its name among other sources.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
        embedding_provider: the embedder; None searches by words and links alone.
    """

    def __init__(
        self,
        documents: Sequence[TextDocument],
        *,
        name: str,
        description: str = "",
        search_hints: Sequence[str] = (),
        embedding_provider: EmbeddingProvider | None = None,
    ) -> None:
        super().__init__(name, description=description, search_hints=search_hints)
        self._documents = tuple(documents)
        self._embedder = embedding_provider
        self._turn = anyio.Lock()
        self._base: GraphRAGKnowledgeBase | None = None
        self._job = ""
        self._is_read = False

    @property
    def supported_filters(self) -> Sequence[str]:
        """The fields of its documents; once they are indexed, also the fields that every document has."""
        if self._base is not None:
            return self._base.supported_filters
        return sorted({name for document in self._documents for name in document.metadata})

    @property
    def relevance_is_absolute(self) -> bool:
        """True, see `GraphRAGKnowledgeBase`."""
        return True

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages, or empty where it has none."""
        return "" if self._embedder is None else self._embedder.id

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`."""
        return await (await self.open_base()).query(query, limit=limit, filters=filters)

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """See `KnowledgeBaseProvider.get_by_id`."""
        return await (await self.open_base()).get_by_id(knowledge_id)

    def close(self) -> None:
        """Drop the index; the next question builds it again."""
        if self._base is not None:
            self._base.close()
            self._base, self._is_read = None, False

    async def open_base(self, id_or_uri: str = "") -> GraphRAGKnowledgeBase:
        """Return the knowledge base with all documents in it, for callers that read them.

        If a caller is cancelled, the next one continues the indexing.
        """
        async with self._turn:
            if self._base is None:
                self._base, self._job = await to_thread.run_sync(self._submit_documents)
            if not self._is_read:
                await self._base.worker.drain()
                self._is_read = True
                for line in self._base.jobs.report(self._base.job(self._job), ["failed"]):
                    _log.warning("%s: %s is left out: %s", self._name, line.uri, line.reason)
            return self._base

    def _submit_documents(self) -> tuple[GraphRAGKnowledgeBase, str]:
        from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
        from loom_core.knowledge.rag.requests import DocumentsRequest, text_drafts

        drafts = text_drafts(
            [document.text for document in self._documents],
            titles=[document.title for document in self._documents],
            metadatas=[dict(document.metadata) for document in self._documents],
        )
        named = [
            replace(draft, uri=document.uri or draft.uri)
            for draft, document in zip(drafts, self._documents, strict=True)
        ]
        base = GraphRAGKnowledgeBase.from_config(embedding_provider=self._embedder, name=self._name)
        return base, base.submit(DocumentsRequest(named))
