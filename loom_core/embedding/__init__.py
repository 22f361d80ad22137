"""Embedding models: texts to vectors. Implementations are imported by `registry` when one is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
    from loom_core.embedding.registry import create_embedder
    from loom_core.embedding.remote_models.ollama import OllamaEmbedder
    from loom_core.embedding.remote_models.openai_compatible import (
        OpenAICompatibleEmbedder,
        OpenAIEmbeddingProvider,
    )

__all__ = [
    "EmbeddingKind",
    "EmbeddingProvider",
    "OllamaEmbedder",
    "OpenAICompatibleEmbedder",
    "OpenAIEmbeddingProvider",
    "create_embedder",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
