"""The processes that drive runs: each holds a lock as long as it lives, and claims what it drives."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import RecordError
from loom_core.runs.journal.rows.commands import QueuedCommand, load_commands
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import StoredRun, find_run
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from loom_core.runs.run import Run

__all__ = ["Claim", "DriverRegistry", "claim_run", "find_unclaimed_runs"]


class DriverRegistry:
    """The processes that drive runs of one journal, and this one among them.

    A driver is alive while the lock of its file is held, whatever else the process does: one that was killed
    is dead at once, one that hangs or sleeps is not.

    Args:
        folder: for the lock files, made if absent; None where there are no other processes.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._entering = threading.Lock()
        self._lock: ProcessLock | None = None
        self.own = ""
        self.title = f"pid {os.getpid()} on {socket.gethostname()}"

    def enter(self) -> None:
        """Take a lock, so that others see that this driver lives. Blocks; nothing happens the second time.

        Raises:
            RecordError: the lock file cannot be made.
        """
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
            raise RecordError(
                f"{path} cannot be made: {error.strerror or error}.",
                advice="Make room, or the folder writable: it shows other processes that this one lives.",
            ) from error
        if held and path.exists():  # else one that cleans up was faster
            self._lock = lock
            return True
        lock.release()
        return False

    def register(self, db: sqlite3.Connection) -> None:
        """Write this driver down, which holds its lock; part of a transaction."""
        db.execute("INSERT OR IGNORE INTO drivers VALUES (?, ?)", (self.own, self.title))

    def is_alive(self, driver: str) -> bool:
        """Whether a process that drives runs has not ended. Blocks for some microseconds."""
        if driver == self.own:
            return bool(driver)
        return self._folder is not None and bool(driver) and ProcessLock(self._path(driver)).is_held()

    def with_driver_titles(self, db: sqlite3.Connection, found: Sequence[StoredRun]) -> list[Run]:
        """Runs with the names of the processes that drive them."""
        titles = {"": ""}
        for driver in {stored.driver for stored in found} - {""}:
            row = db.execute("SELECT title FROM drivers WHERE id = ?", (driver,)).fetchone()
            titles[driver] = row["title"] if row is not None and self.is_alive(driver) else ""
        return [replace(stored.run, driver=titles[stored.driver]) for stored in found]

    def clean(self, db: sqlite3.Connection) -> None:
        """Free the runs of dead drivers and remove what is left of these; part of a transaction."""
        for row in db.execute("SELECT id FROM drivers").fetchall():
            if not self.is_alive(row["id"]):
                db.execute("UPDATE runs SET driver = NULL WHERE driver = ?", (row["id"],))
                db.execute("DELETE FROM drivers WHERE id = ?", (row["id"],))
        if self._folder is None:
            return
        for path in self._folder.glob("*.lock"):
            lock = ProcessLock(path)
            # A process that is about to take this lock sees then that the file has gone.
            if path.stem != self.own and not lock.is_held() and lock.acquire():
                _remove(path)
                lock.release()

    def leave(self) -> None:
        """Give the lock back and remove its file. Blocks."""
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
        return  # Windows keeps what is open; the next one to come removes it


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this process drives from now on.

    Attributes:
        stored: as it stands.
        orders: what it has to obey.
        blobs: how many blobs it has.
    """

    stored: StoredRun
    commands: Sequence[QueuedCommand]
    blobs: int


def claim_run(db: sqlite3.Connection, run_id: str, drivers: DriverRegistry) -> Claim | None:
    """Take a run that no process drives; part of a transaction, and of this process's turn with it.

    Raises:
        NotFoundError: there is no such run.
    """
    stored = find_run(db, run_id)
    # One that has this driver's name was let go of here, but that could not be written.
    if stored.driver != drivers.own and drivers.is_alive(stored.driver):
        return None
    db.execute("UPDATE runs SET driver = ? WHERE key = ?", (drivers.own, stored.key))
    (blobs,) = db.execute(
        "SELECT COALESCE(MAX(number), 0) FROM blobs WHERE run = ?", (stored.key,)
    ).fetchone()
    return Claim(stored, load_commands(db, stored.key), blobs)


def find_unclaimed_runs(db: sqlite3.Connection, driven: frozenset[str], drivers: DriverRegistry) -> list[str]:
    """Runs that have something to do, and that no process drives; oldest first.

    Args:
        db: where they are.
        driven: those that this process drives.
        drivers: who drives the others.
    """
    rows = db.execute(
        "SELECT id, status, driver, standing, key IN (SELECT run FROM orders) AS ordered FROM runs"
        " WHERE status IN ('working', 'input_required') OR key IN (SELECT run FROM orders) ORDER BY key"
    ).fetchall()
    others = {row["driver"] for row in rows if row["driver"] not in {None, drivers.own}}
    living = {driver for driver in others if drivers.is_alive(driver)}
    return [
        row["id"]
        for row in rows
        if row["id"] not in driven
        and row["driver"] not in living
        and (row["status"] == "working" or row["ordered"] or _has_missed_deadline(row["standing"]))
    ]


def _has_missed_deadline(standing: str) -> bool:
    """Whether a run waits for an answer whose time is over: that counts as refused, and it goes on."""
    pending: list[dict[str, Any]] = cast("dict[str, Any]", from_column(standing))["pending"]
    deadlines = [each["deadline"] for each in pending if each["deadline"] is not None]
    return bool(deadlines) and min(deadlines) < time.time()
