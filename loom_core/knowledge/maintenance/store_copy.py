"""Copy of a knowledge store to another database, from SQLite to PostgreSQL or back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage.table_copy import copy_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["copy_knowledge_store"]

# The indexes belong to the folder of the source, and so do collections in databases.
_LEFT = {
    "indexes": "TRUE",
    "meta": "name IN ('collection', 'vector_languages', 'words_collection', 'graph_collection', "
    "'graph_version')",
}


def copy_knowledge_store(
    source: KnowledgeStore, target: KnowledgeStore, *, progress: Callable[[int, int], object] | None = None
) -> None:
    """Copy all that a store knows, and verify the copy; see `copy_tables`. Blocks.

    Keys and the numbers of changes stay the same. The states of indexes are not copied: the target's indexes
    are built from it.

    Args:
        source: the store to read; the caller holds the lock of its knowledge base.
        target: an empty store, or one with the beginning of such a copy.
        progress: see `copy_tables`.

    Raises:
        InvalidInputError: a text has U+0000, which a store of an earlier version may hold, and PostgreSQL
            cannot.
        StoreError: see `copy_tables`.
    """
    copy_tables(source.database, target.database, SCHEMA, without=_LEFT, progress=progress)
