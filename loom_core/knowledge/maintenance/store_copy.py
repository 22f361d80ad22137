"""Copy of a knowledge base's store to another database, from SQLite to PostgreSQL or back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError, StoreBusyError
from loom_core.knowledge.store.opening import open_store
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.knowledge.store.shard import read_shard, refuse_sharded
from loom_core.storage.ownership import holder_of, lock_of
from loom_core.storage.table_copy import copy_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.place import StorePlace

__all__ = ["copy_knowledge_store", "copy_to_place", "owned_store"]

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


def copy_to_place(
    source: StorePlace, target: StorePlace, *, progress: Callable[[int, int], object] | None = None
) -> None:
    """Copy a knowledge base to another place while no process works for either; see `copy_knowledge_store`.

    Raises:
        InvalidInputError: both are the same place, it is split or a shard, or see `copy_knowledge_store`.
        StoreBusyError: a process works for one of them.
        StoreError: see `copy_knowledge_store`.
    """
    if source == target:
        raise InvalidInputError("The knowledge base is there already.", advice="Name another database.")
    with owned_store(source) as given, owned_store(target, allow_unfinished=True) as taken:
        refuse_sharded(given.get("name"), given.get("shards"))
        if shard := read_shard(given):
            raise InvalidInputError(
                f"It is a shard of {shard.of!r}, which knows it by its place.",
                advice=f"Remove {shard.of!r}, and split it again from its documents.",
            )
        copy_knowledge_store(given, taken, progress=progress)


@contextmanager
def owned_store(place: StorePlace, *, allow_unfinished: bool = False) -> Generator[KnowledgeStore]:
    """Open a store as the process that works for it; arguments as for `open_store`. Blocks.

    Raises:
        StoreBusyError: another process does.
        StoreError: see `open_store`.
    """
    store = open_store(place, allow_unfinished=allow_unfinished)
    lock = lock_of(place.folder)
    lease = None if store.sharing is None else store.sharing.lease
    try:
        if not lock.acquire() or not (lease is None or lease.acquire()):
            holder = None if lease is None else lease.holder()
            by = holder_of(place.folder) if holder is None else holder.title
            raise StoreBusyError(
                f"{by or 'Another process'} works for the knowledge base in {place}.",
                advice="Stop the programs that use it and try again.",
            )
        yield store
    finally:
        store.close()
        lock.release()
