"""Opening a knowledge base: its name, its folder, its metadata and its embedder."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.store import KnowledgeStore

__all__ = [
    "choose_embedder",
    "folder_in",
    "is_name",
    "load_embedder_config",
    "open_record",
    "save_metadata",
]

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SLASH = re.compile(r"[/\\]")
_MAX_NAME = 64


def is_name(name: str) -> bool:
    """Whether a knowledge base can have a name, which is also in the descriptions of tools."""
    return (
        bool(name.strip())
        and len(name) <= _MAX_NAME
        and not _SLASH.search(name)
        and not CONTROL_CHARACTERS.search(name)
    )


def folder_in(home: Path, name: str) -> Path:
    """Return the folder of a knowledge base in Loom's home, whether it exists or not.

    Raises:
        InvalidInputError: no knowledge base can have this name.
    """
    if not is_name(name):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a knowledge base.",
            advice=f"Use 1 to {_MAX_NAME} characters of any script, without slashes.",
        )
    # Engines and file systems disagree about other characters in paths; the name itself is in the store.
    plain = name if _PLAIN.fullmatch(name) else "kb-" + sha256(name.encode()).hexdigest()[:12]
    return home / "kb" / plain


def open_record(folder: Path | None) -> KnowledgeStore:
    """Open the store in a folder, or in memory; make folder and store if they do not exist.

    Raises:
        ConfigError: the folder cannot be made.
        StoreError: the folder cannot be written, or the store cannot be opened.
    """
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.probe import require_usable

    if folder is None:
        return KnowledgeStore(None)
    _make_folder(folder)
    require_usable(folder / "record.db")
    return KnowledgeStore(folder / "record.db")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be made: {error.strerror}.",
            advice="Choose another with --home or LOOM_HOME, or make it writable.",
        ) from error


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
