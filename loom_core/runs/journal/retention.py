"""Removing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError
from loom_core.runs.journal.rows.runs import StoredRun, event_keys, run_rows
from loom_core.runs.journal.searching import RUN_WORDS

if TYPE_CHECKING:
    import sqlite3

    from loom_core.runs.journal.drivers import Drivers

__all__ = ["forget_run", "forget_some"]

_PORTION = 20  # so few that nobody waits long for the writer


def forget_run(db: sqlite3.Connection, stored: StoredRun, drivers: Drivers) -> None:
    """Remove all that there is of a run, and its session with the last one; part of a transaction.

    Raises:
        InvalidInputError: somebody drives it.
    """
    if drivers.alive(stored.driver):
        raise InvalidInputError(
            f"Run {stored.run.id} is at work.", advice="Abort it first, and wait until it has ended."
        )
    RUN_WORDS.forget(db, stored.key)
    db.execute("DELETE FROM events WHERE key BETWEEN ? AND ?", event_keys(stored.key))
    for table in ("orders", "blobs", "requests"):
        db.execute(f"DELETE FROM {table} WHERE run = ?", (stored.key,))
    (session,) = db.execute("SELECT session FROM runs WHERE key = ?", (stored.key,)).fetchone()
    db.execute("DELETE FROM runs WHERE key = ?", (stored.key,))
    db.execute(
        "DELETE FROM sessions WHERE key = ? AND NOT EXISTS (SELECT 1 FROM runs WHERE session = sessions.key)",
        (session,),
    )


def forget_some(db: sqlite3.Connection, before: float, keep_last: int, drivers: Drivers) -> int:
    """Remove a few of the runs that ended before a time: how many; part of a transaction.

    Args:
        db: where they are.
        before: in seconds since 1970.
        keep_last: so many that began last are kept.
        drivers: who drives runs.
    """
    where = (
        "runs.status IN ('completed', 'failed', 'aborted')"
        " AND runs.key NOT IN (SELECT key FROM runs ORDER BY key DESC LIMIT ?)"
        " AND runs.key NOT IN (SELECT run FROM orders)"
        " AND COALESCE((SELECT at FROM events WHERE key = last_event), runs.created) < ?"
    )
    forgotten = 0
    for stored in run_rows(db, where, (keep_last, before), order="runs.key", limit=_PORTION):
        if not drivers.alive(stored.driver):
            forget_run(db, stored, drivers)
            forgotten += 1
    return forgotten
