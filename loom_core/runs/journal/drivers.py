"""Registry of drivers, the processes that execute runs: each shows others that it lives, and claims runs."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import StoreError
from loom_core.runs.journal.rows.commands import QueuedCommand, load_commands
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import StoredRun, find_run
from loom_core.storage import ProcessLock
from loom_core.storage.lease import IS_HELD, LEASE_SECONDS, Lease

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.run import Run
    from loom_core.storage.postgres import PostgresDatabase
    from loom_core.storage.sql import SQLConnection

__all__ = [
    "Claim",
    "DriverRegistry",
    "LeasingDrivers",
    "LockingDrivers",
    "claim_run",
    "find_unclaimed_runs",
]


class DriverRegistry(ABC):
    """Registry of the drivers of one journal: the processes that execute its runs, including this one.

    Attributes:
        own: id of this driver; empty before it is registered, and once it counts as dead for others.
        title: this process, for people.
    """

    def __init__(self) -> None:
        self.own = ""
        self.title = f"pid {os.getpid()} on {socket.gethostname()}"

    @abstractmethod
    def enter(self) -> None:
        """Prepare to show others that this driver is alive. Blocks; idempotent.

        Raises:
            StoreError: that is not possible.
        """

    @abstractmethod
    def register(self, db: SQLConnection) -> None:
        """Register this driver, after `enter`; part of a transaction."""

    @abstractmethod
    def is_alive(self, db: SQLConnection, driver: str) -> bool:
        """Whether a driver is alive."""

    @abstractmethod
    def clean(self, db: SQLConnection) -> None:
        """Release the runs of dead drivers, and forget those drivers; part of a transaction."""

    @abstractmethod
    def leave(self) -> None:
        """Count as dead for others. Blocks."""

    def live_titles(self, db: SQLConnection) -> list[str]:
        """Return the titles of all drivers that are alive."""
        rows = db.execute("SELECT id, title FROM drivers ORDER BY title").fetchall()
        return [row["title"] for row in rows if self.is_alive(db, row["id"])]

    def with_driver_titles(self, db: SQLConnection, found: Sequence[StoredRun]) -> list[Run]:
        """Return the runs with the titles of their live drivers."""
        titles = {"": ""}
        for driver in {stored.driver for stored in found} - {""}:
            row = db.execute("SELECT title FROM drivers WHERE id = ?", (driver,)).fetchone()
            titles[driver] = row["title"] if row is not None and self.is_alive(db, driver) else ""
        return [replace(stored.run, driver=titles[stored.driver]) for stored in found]

    def release_runs(self, db: SQLConnection, driver: str) -> None:
        """Release the runs of a dead driver as interrupted, and forget it; part of a transaction."""
        db.execute("UPDATE runs SET driver = '' WHERE driver = ?", (driver,))
        db.execute("DELETE FROM drivers WHERE id = ?", (driver,))


class LockingDrivers(DriverRegistry):
    """Drivers on one machine: one is alive while its lock file is locked, whatever the process does.

    A killed process is dead at once; one that hangs or sleeps is alive.

    Args:
        folder: folder of the lock files, created if absent; None if there are no other processes.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        self._entering = threading.Lock()
        self._lock: ProcessLock | None = None

    def enter(self) -> None:
        """See `DriverRegistry.enter`: acquires a lock."""
        with self._entering:
            while not self.own:
                name = secrets.token_hex(8)
                if self._folder is None or self._acquire_lock(self._folder, name):
                    self.own = name

    def _acquire_lock(self, folder: Path, name: str) -> bool:
        path = self._path(name)
        lock = ProcessLock(path)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            held = lock.acquire()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be created: {error.strerror or error}.",
                advice="Free some space, or make the folder writable: other processes see by this file that "
                "this one is alive.",
            ) from error
        if held and path.exists():  # else a cleanup was faster
            self._lock = lock
            return True
        lock.release()
        return False

    def register(self, db: SQLConnection) -> None:
        """See `DriverRegistry.register`."""
        sql = "INSERT INTO drivers (id, title) VALUES (?, ?) ON CONFLICT DO NOTHING"
        db.execute(sql, (self.own, self.title))

    def is_alive(self, db: SQLConnection, driver: str) -> bool:
        """See `DriverRegistry.is_alive`. Blocks for some microseconds."""
        if driver == self.own:
            return bool(driver)
        return self._folder is not None and bool(driver) and ProcessLock(self._path(driver)).is_held()

    def clean(self, db: SQLConnection) -> None:
        """See `DriverRegistry.clean`: removes the lock files of dead drivers, too."""
        for row in db.execute("SELECT id FROM drivers").fetchall():
            if not self.is_alive(db, row["id"]):
                self.release_runs(db, row["id"])
        if self._folder is None:
            return
        for path in self._folder.glob("*.lock"):
            lock = ProcessLock(path)
            # A process that is about to acquire this lock then sees that the file is gone.
            if path.stem != self.own and not lock.is_held() and lock.acquire():
                _remove(path)
                lock.release()

    def leave(self) -> None:
        """See `DriverRegistry.leave`: releases the lock and removes its file."""
        if self._lock is not None:
            _remove(self._path(self.own))
            self._lock.release()
        self._lock, self.own = None, ""

    def _path(self, driver: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{driver}.lock"


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # Windows does not delete an open file; the next cleanup does


class LeasingDrivers(DriverRegistry, Lease):
    """Drivers on any machine: one is alive while it renews its lease in the database.

    One that is killed, hangs or is cut off counts as dead once its lease has expired. It never comes back
    under the same id: if others have claimed its runs meanwhile, its writes to them are refused.

    Args:
        database: the database of the journal.
        seconds: the lease.
    """

    _TABLE, _HOLDER, _UNIQUE, _WHAT = "drivers", "id", "id", "The lease of this process in the journal"

    def __init__(self, database: PostgresDatabase, *, seconds: float = LEASE_SECONDS) -> None:
        Lease.__init__(self, database, seconds)

    def enter(self) -> None:
        """See `DriverRegistry.enter`: nothing is needed."""

    def register(self, db: SQLConnection) -> None:
        """See `DriverRegistry.register`: takes the lease."""
        self.take(db)

    def is_alive(self, db: SQLConnection, driver: str) -> bool:
        """See `DriverRegistry.is_alive`."""
        sql = f"SELECT 1 FROM drivers WHERE id = ? AND {IS_HELD}"
        return bool(driver) and db.execute(sql, (driver, self._seconds)).fetchone() is not None

    def clean(self, db: SQLConnection) -> None:
        """See `DriverRegistry.clean`."""
        sql = f"SELECT id FROM drivers WHERE NOT ({IS_HELD})"
        for row in db.execute(sql, (self._seconds,)).fetchall():
            self.release_runs(db, row["id"])

    def leave(self) -> None:
        """See `DriverRegistry.leave`."""
        self.end()


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this process has claimed.

    Attributes:
        stored: the run.
        commands: its queued commands.
        blobs: number of its blobs.
    """

    stored: StoredRun
    commands: Sequence[QueuedCommand]
    blobs: int


def claim_run(db: SQLConnection, run_id: str, drivers: DriverRegistry) -> Claim | None:
    """Claim a run; None if a live driver has it; part of a transaction.

    Raises:
        NotFoundError: there is no such run.
        StoreError: others take this process for dead.
    """
    stored = find_run(db, run_id)
    if not drivers.is_alive(db, drivers.own):
        raise StoreError(
            "Other processes could not hear of this one for too long, and take it for dead.",
            advice="Try again; look whether the database answers quickly.",
        )
    # A run that still names this driver was released here, but the release could not be written.
    if stored.driver != drivers.own and drivers.is_alive(db, stored.driver):
        return None
    db.execute("UPDATE runs SET driver = ? WHERE key = ?", (drivers.own, stored.key))
    (blobs,) = db.execute(
        "SELECT COALESCE(MAX(number), 0) FROM blobs WHERE run = ?", (stored.key,)
    ).fetchone()
    return Claim(stored, load_commands(db, stored.key), blobs)


def find_unclaimed_runs(db: SQLConnection, driven: frozenset[str], drivers: DriverRegistry) -> list[str]:
    """Find the runs that have work to do and that no process executes; oldest first.

    Args:
        db: the database.
        driven: ids of the runs that this process executes.
        drivers: the registry of drivers.
    """
    rows = db.execute(
        "SELECT id, status, driver, standing, key IN (SELECT run FROM orders) AS ordered FROM runs"
        " WHERE status IN ('working', 'input_required') OR key IN (SELECT run FROM orders) ORDER BY key"
    ).fetchall()
    others = {row["driver"] for row in rows if row["driver"] not in {None, drivers.own}}
    living = {driver for driver in others if drivers.is_alive(db, driver)}
    return [
        row["id"]
        for row in rows
        if row["id"] not in driven
        and row["driver"] not in living
        and (
            row["status"] == "working"
            or row["ordered"]
            or _has_missed_deadline(row["standing"])
            or (row["driver"] is not None and _is_flow(db, row["id"]))
        )
    ]


def _is_flow(db: SQLConnection, run_id: str) -> bool:
    """Whether a run is of a flow, of which other branches may be at work than the one that waits."""
    return find_run(db, run_id).run.request.metadata.get("kind") == "flow"


def _has_missed_deadline(standing: str) -> bool:
    """Whether a run waits for an answer whose deadline has passed: that counts as refused."""
    pending: list[dict[str, Any]] = cast("dict[str, Any]", from_column(standing))["pending"]
    deadlines = [each["deadline"] for each in pending if each["deadline"] is not None]
    return bool(deadlines) and min(deadlines) < time.time()
