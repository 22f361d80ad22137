"""Opening and deleting the store of a knowledge base, in a file or in a PostgreSQL database."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.store.probe import require_usable
from loom_core.knowledge.store.store import KnowledgeStore
from loom_core.storage.sql import refuse_unfinished_copy

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.store.place import StorePlace
    from loom_core.storage.postgres import PostgresDatabase

__all__ = ["delete_store", "has_store", "open_store"]

_TRANSACTION_SECONDS = 600.0  # the largest documents have a hundred thousand mentions


def has_store(place: StorePlace) -> bool:
    """Whether there is a store. Blocks.

    Raises:
        StoreError: the database cannot be asked.
    """
    if not place.database:
        return place.file.exists()
    with closing(_connect(place, create=False)) as database:
        return database.exists()


def open_store(
    place: StorePlace, *, read_only: bool = False, allow_unfinished: bool = False
) -> KnowledgeStore:
    """Open the store; make folder and store if they do not exist. Blocks.

    Args:
        place: where it is.
        read_only: whether changes to a file are refused.
        allow_unfinished: whether it may be a copy that was interrupted, to go on with it.

    Raises:
        ConfigError: the folder cannot be made, or the address of the database is wrong.
        StoreError: the folder cannot be written, or the store cannot be opened, or is an unfinished copy.
    """
    store = _open(place, read_only=read_only)
    try:
        if not allow_unfinished:
            refuse_unfinished_copy(store.database, place)
    except BaseException:
        store.close()
        raise
    return store


def delete_store(place: StorePlace) -> None:
    """Delete a store and its folder. Blocks.

    Raises:
        StoreError: the database cannot be asked, or refuses.
    """
    if place.database:
        with closing(_connect(place, create=False)) as database:
            database.drop()
    shutil.rmtree(place.folder)


def _open(place: StorePlace, *, read_only: bool) -> KnowledgeStore:
    _make_folder(place.folder)
    if not place.database:
        require_usable(place.file)
        return KnowledgeStore(place.file, read_only=read_only)
    if place.file.exists():
        raise ConfigError(
            f"The folder {place.folder} has a knowledge base of its own, and cannot have the indexes of "
            "another one.",
            advice="Choose another folder.",
        )
    from loom_core.knowledge.store.node import Sharing, open_node
    from loom_core.knowledge.store.work_lease import WorkLease

    database = _connect(place)
    try:
        node = open_node(place.folder, database)
    except BaseException:
        database.close()
        raise
    return KnowledgeStore(database, sharing=Sharing(place, node, WorkLease(database)))


def _connect(place: StorePlace, *, create: bool = True) -> PostgresDatabase:
    from loom_core.knowledge.store.schema import POSTGRES_SCRIPTS, SCHEMA
    from loom_core.storage.postgres import PostgresDatabase

    return PostgresDatabase(
        place.database,
        name=place.schema,
        schema=SCHEMA,
        more=POSTGRES_SCRIPTS,
        seconds=_TRANSACTION_SECONDS,
        create=create,
        notifies=True,
    )


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be made: {error.strerror}.",
            advice="Choose another with --home or LOOM_HOME, or make it writable.",
        ) from error
