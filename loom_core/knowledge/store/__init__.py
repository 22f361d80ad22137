"""The system of record of a knowledge base: one SQLite file from which every index is derived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.store.documents import ChunkRow, DocumentReader, DocumentRow
    from loom_core.knowledge.store.duplicates import DuplicateReader
    from loom_core.knowledge.store.graph import EntityReader
    from loom_core.knowledge.store.jobs import Job, JobReader, JobTable
    from loom_core.knowledge.store.prepared import JobItem, Outcome, PreparedChunk, PreparedDocument
    from loom_core.knowledge.store.store import Record

__all__ = [
    "ChunkRow",
    "DocumentReader",
    "DocumentRow",
    "DuplicateReader",
    "EntityReader",
    "Job",
    "JobItem",
    "JobReader",
    "JobTable",
    "Outcome",
    "PreparedChunk",
    "PreparedDocument",
    "Record",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
