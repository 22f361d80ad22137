"""Opening, checking and deleting the store of a knowledge base, in a file or in a PostgreSQL database."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, get_args

from loom_core.errors import ConfigError, StoreError
from loom_core.knowledge.store.changes import IndexName
from loom_core.knowledge.store.store import KnowledgeStore
from loom_core.storage.sql import refuse_unfinished_copy

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.store.place import StorePlace
    from loom_core.storage.postgres import PostgresDatabase

__all__ = ["delete_store", "describe_problem", "has_store", "is_emptied", "open_store", "require_accessible"]

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
        _require_usable(place.file)
        return KnowledgeStore(place.file, read_only=read_only)
    if place.file.exists():
        raise ConfigError(
            f"The folder {place.folder} has a knowledge base of its own, and cannot have the indexes of "
            "another one.",
            advice="Choose another folder.",
        )
    from loom_core.knowledge.store.node import Sharing, WorkLease, open_node

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


def describe_problem(path: Path) -> str:
    """Return why a file cannot be a store; empty if it can, or does not exist."""
    if reason := _describe_access_problem(path):
        return reason
    return f"{path.name} is empty, but there are indexes made from it" if is_emptied(path) else ""


def is_emptied(path: Path) -> bool:
    """Whether a store has lost all its content.

    An empty file is a store that is being created, unless there are indexes next to it, as these are made
    from a store with content.
    """
    if not path.is_file() or path.stat().st_size:
        return False
    return any(any(path.parent.glob(f"{name}-*")) for name in get_args(IndexName))


def require_accessible(path: Path) -> None:
    """Raise if a store's file cannot be opened, whatever its content.

    Raises:
        StoreError: it is not a regular file, or it or its folder is not writable (SQLite needs that even to
            read).
    """
    if reason := _describe_access_problem(path):
        raise StoreError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice="Put the file back, or make it and its folder writable; --home chooses another place.",
        )


def _require_usable(path: Path) -> None:
    """Raise if a file cannot be a store.

    Raises:
        StoreError: it cannot be opened, or the store has lost its content.
    """
    require_accessible(path)
    if reason := describe_problem(path):
        raise StoreError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice=f"Put a copy of {path.name} back if there is one; `loom-kb check --repair` starts over.",
        )


def _describe_access_problem(path: Path) -> str:
    if not path.exists():
        return ""
    if not path.is_file():  # opening a pipe would block
        return f"{path.name} is not a file"
    if not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
        return f"this user may not write to {path.parent}"
    return ""
