"""Opening a knowledge base: its folder, and what its record remembers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.store import Record

__all__ = ["make_folder", "remember", "remembered_config", "stored_embedder"]


def make_folder(path: Path) -> None:
    """Make a knowledge base's folder if it is not there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be made: {error.strerror}.",
            advice="Choose another with --home or LOOM_HOME, or make it writable.",
        ) from error


def remember(
    record: Record, embedder: EmbeddingProvider | None, description: str, search_hints: Sequence[str]
) -> None:
    """Write down what is said of a knowledge base, and by which embedder its vectors are made.

    Raises:
        ConfigError: they were made by another.
    """
    if description:
        record.set("description", description)
    if search_hints:
        record.set("search_hints", "\n".join(search_hints))
    if embedder is None:
        return
    known = record.get("embedder") or _remember_embedder(record, embedder)
    if known != embedder.id:
        raise ConfigError(
            f"The vectors of this knowledge base were made by {known!r}, not by {embedder.id!r}.",
            advice="Use the same embedder, or put the documents into a new knowledge base.",
        )
    config = json.dumps(embedder.config, ensure_ascii=False, sort_keys=True)
    if record.get("embedding_config") != config:  # the same vectors may come from another place now
        record.set("embedding_config", config)


def remembered_config(record: Record) -> dict[str, str]:
    """The configuration of the embedder that makes a knowledge base's vectors; empty before there is one."""
    return json.loads(record.get("embedding_config") or "{}")


def stored_embedder(record: Record) -> EmbeddingProvider | None:
    """The embedder that makes a knowledge base's vectors, made again; None before there is one.

    Raises:
        ConfigError: it cannot be made from its configuration.
    """
    from loom_core.embedding.registry import create_embedder

    config = remembered_config(record)
    return create_embedder(config) if config else None


def _remember_embedder(record: Record, embedder: EmbeddingProvider) -> str:
    with record.database.write():
        known = record.get("embedder")  # another process may have been faster
        if not known:
            record.set("embedder", embedder.id)
            record.set("dimension", str(embedder.dimension))
    return known or embedder.id
