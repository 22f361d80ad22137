"""Derived indexes, kept in sync with the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.knowledge.indexes.graph import GraphIndex, GraphIndexes
    from loom_core.knowledge.indexes.lexical import DerivedLexicalIndex, LexicalIndexes
    from loom_core.knowledge.indexes.vectors import ChromaDenseSearch, ChromaVectors, FlatVectors

__all__ = [
    "ChromaDenseSearch",
    "ChromaVectors",
    "DerivedLexicalIndex",
    "FlatVectors",
    "GraphIndex",
    "GraphIndexes",
    "LexicalIndexes",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
