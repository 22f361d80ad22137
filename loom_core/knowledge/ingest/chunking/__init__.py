"""Chunking of documents: by structure (the default), by size, or by a sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.chunking.registry import ChunkerName, create_chunker
    from loom_core.knowledge.ingest.chunking.structure import StructureChunker
    from loom_core.knowledge.ingest.chunking.windows import SimpleChunker, SlidingWindowChunker

__all__ = ["ChunkerName", "SimpleChunker", "SlidingWindowChunker", "StructureChunker", "create_chunker"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
