"""Keeping the derived indexes in step with the record."""

from __future__ import annotations

from loom_core.knowledge.indexing.graph import GraphIndex
from loom_core.knowledge.indexing.vectors import VectorsInMemory, VectorsOnDisk, VectorsSearched
from loom_core.knowledge.indexing.words import WordIndex

__all__ = ["GraphIndex", "VectorsInMemory", "VectorsOnDisk", "VectorsSearched", "WordIndex"]
