"""The system of record of a knowledge base: one database from which every index is derived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.store.documents import ChunkRow, DocumentReader, DocumentRow
    from loom_core.knowledge.store.duplicates import DuplicateReader
    from loom_core.knowledge.store.graph import EntityReader
    from loom_core.knowledge.store.jobs import Job, JobReader, JobTable
    from loom_core.knowledge.store.prepared_documents import (
        ItemOutcome,
        JobItem,
        PreparedChunk,
        PreparedDocument,
    )
    from loom_core.knowledge.store.store import KnowledgeStore

__all__ = [
    "ChunkRow",
    "DocumentReader",
    "DocumentRow",
    "DuplicateReader",
    "EntityReader",
    "ItemOutcome",
    "Job",
    "JobItem",
    "JobReader",
    "JobTable",
    "KnowledgeStore",
    "PreparedChunk",
    "PreparedDocument",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
