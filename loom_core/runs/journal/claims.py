"""Which process drives which run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.runs.journal.rows.commands import GivenOrder, given_orders
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import StoredRun, find_run

if TYPE_CHECKING:
    import sqlite3

    from loom_core.runs.journal.drivers import Drivers

__all__ = ["Claim", "claim_run", "unclaimed_runs"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this process drives from now on.

    Attributes:
        stored: as it stands.
        orders: what it has to obey.
        blobs: how many blobs it has.
    """

    stored: StoredRun
    orders: Sequence[GivenOrder]
    blobs: int


def claim_run(db: sqlite3.Connection, run_id: str, drivers: Drivers) -> Claim | None:
    """Take a run that nobody drives; part of a transaction, and of this process's turn with it.

    Raises:
        NotFoundError: there is no such run.
    """
    stored = find_run(db, run_id)
    # One that has this driver's name was let go of here, but that could not be written.
    if stored.driver != drivers.own and drivers.alive(stored.driver):
        return None
    db.execute("UPDATE runs SET driver = ? WHERE key = ?", (drivers.own, stored.key))
    (blobs,) = db.execute(
        "SELECT COALESCE(MAX(number), 0) FROM blobs WHERE run = ?", (stored.key,)
    ).fetchone()
    return Claim(stored, given_orders(db, stored.key), blobs)


def unclaimed_runs(db: sqlite3.Connection, driven: frozenset[str], drivers: Drivers) -> list[str]:
    """Runs that have something to do, and that nobody drives; oldest first.

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
    living = {driver for driver in others if drivers.alive(driver)}
    return [
        row["id"]
        for row in rows
        if row["id"] not in driven
        and row["driver"] not in living
        and (row["status"] == "working" or row["ordered"] or _is_late(row["standing"]))
    ]


def _is_late(standing: str) -> bool:
    """Whether a run waits for an answer whose time is over: that counts as refused, and it goes on."""
    pending: list[dict[str, Any]] = cast("dict[str, Any]", from_column(standing))["pending"]
    deadlines = [each["deadline"] for each in pending if each["deadline"] is not None]
    return bool(deadlines) and min(deadlines) < time.time()
