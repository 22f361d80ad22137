"""The three ports in memory, for programs that embed Loom and for tests."""

from __future__ import annotations

from loom_core.knowledge.indexes.memory_graph import MemoryGraphStore
from loom_core.knowledge.indexes.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.memory_vectors import ExactVectorIndex

__all__ = ["ExactVectorIndex", "MemoryGraphStore", "MemoryLexicalIndex"]
