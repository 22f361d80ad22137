"""Derived indexes, kept in sync with the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.indexes.graph import GraphIndex
    from loom_core.knowledge.indexes.lexical import WordIndex
    from loom_core.knowledge.indexes.vectors import ChromaVectors, FlatVectors, NearestByChroma

__all__ = ["ChromaVectors", "FlatVectors", "GraphIndex", "NearestByChroma", "WordIndex"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
