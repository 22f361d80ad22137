"""Node of a knowledge base whose store is a database that several machines share: one folder of indexes."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.storage import Database

if TYPE_CHECKING:
    from loom_core.knowledge.store.place import StorePlace
    from loom_core.knowledge.store.work_lease import WorkLease
    from loom_core.storage.postgres import PostgresDatabase
    from loom_core.storage.sql import SQLDatabase

__all__ = ["Node", "Sharing", "open_node"]

_SCHEMA = (
    """
CREATE TABLE indexes (           -- as the table of the same name in a store in a file
    name TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    watermark INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE store (
    id TEXT NOT NULL             -- of the store that the indexes were made from
)
""",
)


@dataclass(frozen=True, slots=True)
class Node:
    """A folder of indexes that follows a shared store.

    Attributes:
        id: its host and folder, by which the store knows how far it has followed.
        host: its host, as jobs name it that read its files.
        store_id: identity of the store.
        shared: the database of the store.
        database: `node.db` in that folder: the states of its indexes.
    """

    id: str
    host: str
    store_id: str
    shared: PostgresDatabase
    database: SQLDatabase


@dataclass(frozen=True, slots=True)
class Sharing:
    """Part of this process in a store that several machines share.

    Attributes:
        place: where the store is, for child processes that open it.
        node: the folder of indexes.
        lease: the right to work for the knowledge base.
    """

    place: StorePlace
    node: Node
    lease: WorkLease


def open_node(folder: Path, shared: PostgresDatabase) -> Node:
    """Open a node; indexes of another store in its folder are forgotten, and so made from scratch.

    Args:
        folder: its folder, which exists.
        shared: the database of the store.

    Raises:
        StoreError: `node.db` cannot be opened or written, or the database cannot be asked.
    """
    store_id = shared.row("SELECT id FROM identity")["id"]
    database = Database(folder / "node.db", schema=_SCHEMA)
    known = database.row("SELECT id FROM store")
    if known is None or known["id"] != store_id:
        with database.write() as db:
            db.execute("DELETE FROM indexes")
            db.execute("DELETE FROM store")
            db.execute("INSERT INTO store VALUES (?)", (store_id,))
    host = socket.gethostname()
    return Node(f"{host}:{folder.resolve()}", host, store_id, shared, database)
