"""Embedding models: texts to vectors. Implementations are imported by `registry` when one is chosen."""

from __future__ import annotations

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider

__all__ = ["EmbeddingKind", "EmbeddingProvider"]
