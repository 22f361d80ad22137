"""Opening a knowledge base: its metadata and its embedder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.store import KnowledgeStore

__all__ = [
    "choose_embedder",
    "load_embedder_config",
    "save_metadata",
]


def save_metadata(
    store: KnowledgeStore,
    embedder: EmbeddingProvider | None,
    *,
    name: str,
    description: str,
    search_hints: Sequence[str],
) -> None:
    """Save the name, description and embedder of a knowledge base, where they are given.

    Raises:
        ConfigError: the stored vectors were made by another embedder.
    """
    if name and not store.get("name"):
        store.set("name", name)
    if description:
        store.set("description", description)
    if search_hints:
        store.set("search_hints", "\n".join(search_hints))
    if embedder is None:
        return
    known = store.get("embedder") or _save_embedder(store, embedder)
    if known != embedder.id:
        raise ConfigError(
            f"The vectors of this knowledge base were made by {known!r}, not by {embedder.id!r}.",
            advice="Use the same embedder, or put the documents into a new knowledge base.",
        )
    config = json.dumps(embedder.config, ensure_ascii=False, sort_keys=True)
    if store.get("embedding_config") != config:  # the same vectors may come from another place now
        store.set("embedding_config", config)


def load_embedder_config(store: KnowledgeStore) -> dict[str, str]:
    """Return the configuration of a knowledge base's embedder; empty before there is one."""
    return json.loads(store.get("embedding_config") or "{}")


def choose_embedder(
    store: KnowledgeStore, choice: EmbeddingProvider | str | None
) -> EmbeddingProvider | None:
    """Choose the embedder of a knowledge base.

    Args:
        store: the knowledge base's store.
        choice: an embedder; `auto` for the one that made the vectors there are, or else the best one that is
            installed; `stored` for the one that made them, or else none; any other choice of
            `create_embedder`; or None for none.

    Raises:
        ConfigError: there is no such choice, or the embedder cannot be made from its stored configuration.
    """
    if not isinstance(choice, str):
        return choice
    from loom_core.embedding.registry import create_embedder

    stored = load_embedder_config(store) if choice in {"auto", "stored"} else {}
    if choice == "stored" and not stored:
        return None
    return create_embedder(stored or choice)


def _save_embedder(store: KnowledgeStore, embedder: EmbeddingProvider) -> str:
    with store.database.write():
        known = store.get("embedder")  # another process may have been faster
        if not known:
            store.set("embedder", embedder.id)
            store.set("dimension", str(embedder.dimension))
    return known or embedder.id
