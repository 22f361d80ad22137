"""Keeping the derived indexes in step with the record."""

from __future__ import annotations

from loom_core.knowledge.indexing.chroma_vectors import ChromaVectors, NearestByChroma
from loom_core.knowledge.indexing.graph import GraphIndex
from loom_core.knowledge.indexing.vectors import FlatVectors
from loom_core.knowledge.indexing.words import WordIndex

__all__ = ["ChromaVectors", "FlatVectors", "GraphIndex", "NearestByChroma", "WordIndex"]
