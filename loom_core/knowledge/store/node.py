"""Node that shares a knowledge base's store with others: its folder of indexes, and its right to work."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import StoreError
from loom_core.storage import Database
from loom_core.storage.lease import IS_HELD, LEASE_SECONDS, Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from loom_core.knowledge.store.place import StorePlace
    from loom_core.storage.postgres import PostgresDatabase
    from loom_core.storage.sql import SQLConnection, SQLDatabase

__all__ = ["LeaseHolder", "LeaseLostError", "Node", "Sharing", "WorkLease", "open_node"]

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


_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0  # between attempts to get a lease that another process has


class LeaseLostError(StoreError):
    """Another process works for the knowledge base by now: this one was not heard of for too long."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that works for a knowledge base.

    Attributes:
        title: the process and its host, for people.
        status: what it says about its work; see `WorkLease.report`.
    """

    title: str
    status: str


class WorkLease(Lease):
    """Lease of the right to work for a knowledge base, in the table `worker` of its store.

    A holder that is killed, hangs or is cut off loses it after its length, by the server's clock. Whatever
    such a process still tries to write is refused, as each of its transactions checks the lease (`checked`)
    and no other process can take the lease during a transaction: all writers take turns.

    Args:
        database: the store's.
        seconds: the length; the same for all nodes.

    Attributes:
        taken: how often this process has taken it: what it knew of the store before that may be outdated.
    """

    _TABLE, _HOLDER, _UNIQUE, _WHAT = "worker", "holder", "one", "The lease of the work for a knowledge base"

    def __init__(self, database: PostgresDatabase, *, seconds: float = LEASE_SECONDS) -> None:
        super().__init__(database, seconds)
        self._turn = threading.Lock()
        self._next_look = 0.0
        self._status: Callable[[], str] = str

    @property
    def held(self) -> bool:
        """Whether this process has it, as far as it knows."""
        return bool(self.own)

    def report(self, status: Callable[[], str]) -> None:
        """Show the other nodes how the work goes, while this process has the lease.

        Args:
            status: called at each renewal, in another thread, without asking the database.
        """
        self._status = status

    def acquire(self) -> bool:
        """Take the lease if it is free, without waiting for its holder. Blocks.

        Where another process has it, the database is asked once a second at most.

        Returns:
            Whether this process has it now, also when it did before.

        Raises:
            StoreError: the database cannot be asked.
        """
        with self._turn:
            if self.own:
                return True
            if time.monotonic() < self._next_look:
                return False
            self._next_look = time.monotonic() + _LOOK_SECONDS
            if self.holder() is not None:
                return False
            with self._database.write() as db:
                return self.take(db)

    def release(self, *, pause: float = 0.0) -> None:
        """Give the lease back; a database that cannot be asked takes it back by itself. Blocks.

        Args:
            pause: seconds in which this process does not take it, so that another one can.
        """
        self._next_look = time.monotonic() + pause
        with self._turn:
            own = self.end()
        if own:
            try:
                with self._database.write(takes_turn=False, seconds=self._seconds / 2) as db:
                    db.execute("DELETE FROM worker WHERE holder = ?", (own,))
            except StoreError as error:
                _log.info("the lease of the work was not given back: %s", error)

    def holder(self) -> LeaseHolder | None:
        """Return the process that has the lease, this one or another; None if there is none. Blocks."""
        row = self._database.row(f"SELECT title, status FROM worker WHERE {IS_HELD}", (self._seconds,))
        return None if row is None else LeaseHolder(row["title"], row["status"])

    @contextmanager
    def checked(self) -> Generator[None]:
        """Make every transaction that begins in the block check that this process still has the lease.

        Raises:
            LeaseLostError: it has not, in such a transaction, of which nothing is written.
        """
        with self._database.checking(self._require):
            yield

    def _columns(self) -> Mapping[str, str]:
        return {"title": self.title, "status": self._status()}

    def _require(self, db: SQLConnection) -> None:
        if not self.check(db):
            raise LeaseLostError(
                "Another process works for the knowledge base, as this one was not heard of for too long.",
                advice="Nothing is lost: look whether the database answers quickly.",
            )
