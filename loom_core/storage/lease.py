"""Leases in PostgreSQL: who holds one has to renew it, and who is not heard of for its length has lost it."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from loom_core.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.storage.postgres import PostgresDatabase
    from loom_core.storage.sql import SQLConnection

__all__ = ["IS_HELD", "LEASE_SECONDS", "SERVER_TIME", "Lease"]

_log = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
"""Default length: a holder that is not heard of for so long counts as dead."""

SERVER_TIME = "EXTRACT(EPOCH FROM clock_timestamp())"
"""The time by the clock of a PostgreSQL server, which is the same for all, in SQL."""

IS_HELD = f"expires BETWEEN {SERVER_TIME} AND {SERVER_TIME} + 2 * ?"
"""Whether a lease of a length, the parameter, is held, in SQL: one with more time left than any lease has was
renewed before the clock was put back, and its holder may be dead."""

_RENEWALS = 4  # within a lease


class Lease:
    """Lease in a row of a table, which has the id of its holder and the time when it `expires`.

    The id is another one each time the lease is taken: who has lost it is refused, even if the same process
    has taken it again.

    Args:
        database: the database, in PostgreSQL.
        seconds: the length; the same for all processes.

    Attributes:
        own: id of this holder; empty if this process does not have the lease, as far as it knows.
        taken: how often this process has taken it.
        title: this process, for people.
    """

    _TABLE: ClassVar[str]
    _HOLDER: ClassVar[str]  # its column with the id
    _UNIQUE: ClassVar[str]  # the column that two leases cannot have the same value in
    _WHAT: ClassVar[str]

    def __init__(self, database: PostgresDatabase, seconds: float) -> None:
        self.own, self.taken = "", 0
        self.title = f"pid {os.getpid()} on {socket.gethostname()}"
        self._database, self._seconds = database, seconds
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, db: SQLConnection) -> bool:
        """Take the lease if it is free, and renew it from now on; part of a transaction.

        Returns:
            Whether this process has it now, also when it did before.
        """
        own = self.own or secrets.token_hex(8)
        values = {self._HOLDER: own, **self._columns()}
        names, marks = ", ".join(values), "?, " * len(values)
        changes = ", ".join(f"{name} = excluded.{name}" for name in (*values, "expires"))
        taken = db.execute(
            f"INSERT INTO {self._TABLE} ({names}, expires) VALUES ({marks}{SERVER_TIME} + ?) "
            f"ON CONFLICT ({self._UNIQUE}) DO UPDATE SET {changes} WHERE NOT ({self._TABLE}.{IS_HELD})",
            (*values.values(), self._seconds, self._seconds),
        ).rowcount
        with self._lock:
            if taken and not self.own:
                self.own, self.taken, self._ending = own, self.taken + 1, threading.Event()
                run = partial(self._run, own, self._ending)
                self._thread = threading.Thread(target=run, name="loom-lease", daemon=True)
                self._thread.start()
        return bool(self.own)

    def check(self, db: SQLConnection) -> bool:
        """Check that this process still has the lease, else it is lost; part of a transaction."""
        own = self.own
        sql = f"SELECT 1 FROM {self._TABLE} WHERE {self._HOLDER} = ? AND expires > {SERVER_TIME}"
        if own and db.execute(sql, (own,)).fetchone() is not None:
            return True
        self._lose(own)
        return False

    def end(self) -> str:
        """Renew it no more, and wait for a renewal that is under way; return the id it was held under."""
        with self._lock:
            own, self.own = self.own, ""
            self._ending.set()
        if self._thread is not None:
            self._thread.join()
        return own

    def _columns(self) -> Mapping[str, str]:
        """Return the values of other columns, which each renewal writes, without asking the database."""
        return {"title": self.title}

    def _run(self, own: str, ending: threading.Event) -> None:
        failure = ""
        while not ending.wait(self._seconds / _RENEWALS):
            try:
                if not self._renew(own):
                    self._lose(own)
                failure = ""
            except LoomError as error:
                if failure != str(error):  # it is retried many times
                    _log.warning("%s is not renewed: %s", self._WHAT, error)
                failure = str(error)

    def _renew(self, own: str) -> bool:
        values = self._columns()
        changes = "".join(f", {name} = ?" for name in values)
        # It must not wait for the turns of other writers.
        with self._database.write(takes_turn=False, seconds=self._seconds / 2) as db:
            sql = f"UPDATE {self._TABLE} SET expires = {SERVER_TIME} + ?{changes} WHERE {self._HOLDER} = ?"
            return bool(db.execute(sql, (self._seconds, *values.values(), own)).rowcount)

    def _lose(self, own: str) -> None:
        with self._lock:
            if not own or own != self.own:
                return
            self.own = ""
            self._ending.set()
        _log.warning("%s is lost: others did not hear of this process for too long.", self._WHAT)
