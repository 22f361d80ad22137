"""The three ports in memory, for programs that embed Loom and for tests."""

from __future__ import annotations

from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
from loom_core.knowledge.indexes.engines.memory_graph import MemoryGraphStore
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex

__all__ = ["ExactVectorIndex", "MemoryGraphStore", "MemoryLexicalIndex"]
