"""Cutting documents into passages: by structure (the default), by size, or by a sliding window."""

from __future__ import annotations

from loom_core.knowledge.chunking.registry import ChunkerName, create_chunker
from loom_core.knowledge.chunking.simple import SimpleChunker
from loom_core.knowledge.chunking.sliding import SlidingWindowChunker
from loom_core.knowledge.chunking.structure import StructureChunker

__all__ = ["ChunkerName", "SimpleChunker", "SlidingWindowChunker", "StructureChunker", "create_chunker"]
