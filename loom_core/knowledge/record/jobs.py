"""Jobs: what was asked to be added, and how far that is. Acknowledged once written here."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from loom_core.storage import Database

__all__ = ["ItemState", "Job", "JobItem", "JobState", "JobTable"]

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
ItemState = Literal["pending", "added", "updated", "unchanged", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Job:
    """A request to add documents, with how far it is.

    Attributes:
        id: handle to ask with.
        state: `queued` until its folders are listed, `running` until every document is in the record.
        request: what was asked for, as JSON.
        counts: number of documents by state.
        chunks: chunks written so far.
        error: why it failed as a whole, or empty.
    """

    key: int
    id: str
    state: JobState
    request: dict[str, Any]
    counts: dict[str, int]
    chunks: int
    error: str
    created_at: float
    finished_at: float | None

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in {"done", "failed", "cancelled"}

    @property
    def total(self) -> int:
        """How many documents it has, as far as is known."""
        return sum(self.counts.values())

    @property
    def processed(self) -> int:
        """How many documents are through."""
        return self.total - self.counts.get("pending", 0)


@dataclass(frozen=True, slots=True)
class JobItem:
    """One document of a job. `payload` is the text where it was given, and None for a file."""

    ordinal: int
    uri: str
    size: int
    state: ItemState
    reason: str
    payload: bytes | None


class JobTable:
    """Jobs in the record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(
        self, request: dict[str, Any], items: Sequence[tuple[str, bytes]] = (), *, listed: bool = False
    ) -> str:
        """Acknowledge a request: from here on it is done even if the process dies.

        Args:
            request: what is asked for, JSON.
            items: documents given as they are: URI and payload.
            listed: whether `items` is all there is, so that no folder has to be listed.

        Returns:
            The job's id.
        """
        id_ = "job-" + secrets.token_hex(4)
        with self._database.write() as db:
            cursor = db.execute(
                "INSERT INTO jobs (id, kind, state, request, created_at) VALUES (?, 'add', ?, ?, ?)",
                (
                    id_,
                    "running" if listed else "queued",
                    json.dumps(request),  # escaped: a path that is no UTF-8 has halves of surrogate pairs
                    time.time(),
                ),
            )
            db.executemany(
                "INSERT INTO items (job, ordinal, uri, size, state, payload) "
                "VALUES (?, ?, ?, ?, 'pending', ?)",
                [
                    (cursor.lastrowid, ordinal, uri, len(payload), payload)
                    for ordinal, (uri, payload) in enumerate(items)
                ],
            )
        return id_

    def listed(self, job: Job, files: Iterable[tuple[str, int, str]]) -> None:
        """Note the files a job is about: URI, size in bytes, and a reason if it is left out."""
        with self._database.write() as db:
            db.execute("DELETE FROM items WHERE job = ?", (job.key,))
            db.executemany(
                "INSERT INTO items (job, ordinal, uri, size, state, reason) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (job.key, ordinal, uri, size, "skipped" if reason else "pending", reason)
                    for ordinal, (uri, size, reason) in enumerate(files)
                ],
            )
            db.execute("UPDATE jobs SET state = 'running' WHERE key = ? AND state = 'queued'", (job.key,))

    def next(self) -> Job | None:
        """The oldest job that is not finished."""
        row = self._database.row(
            "SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY key LIMIT 1"
        )
        return None if row is None else self._job(row)

    def pending(self, job: Job, limit: int, *, size: int | None = None) -> list[JobItem]:
        """The next documents of a job, at least one where there are any.

        Args:
            job: the job.
            limit: how many at the most.
            size: bytes that they may have together.
        """
        items: list[JobItem] = []
        total = 0
        with self._database.read() as db:
            # By itself SQLite takes the primary key, and reads past all that are settled every time.
            rows = db.execute(
                "SELECT ordinal, uri, size, state, reason, payload FROM items INDEXED BY items_state "
                "WHERE job = ? AND state = 'pending' ORDER BY ordinal LIMIT ?",
                (job.key, limit),
            )
            for row in rows:
                total += row["size"]
                if items and size is not None and total > size:
                    break
                items.append(JobItem(**dict(row)))
        return items

    def settle(self, job: Job, item: JobItem, state: ItemState, *, reason: str = "", chunks: int = 0) -> None:
        """Note what became of a document; part of the transaction that writes it."""
        with self._database.write() as db:
            db.execute(
                "UPDATE items SET state = ?, reason = ?, chunks = ?, payload = NULL "
                "WHERE job = ? AND ordinal = ?",
                (state, reason, chunks, job.key, item.ordinal),
            )

    def finish(self, job: Job, state: JobState = "done", *, error: str = "") -> None:
        """Note that a job is over, unless it was before."""
        with self._database.write() as db:
            db.execute(
                "UPDATE jobs SET state = ?, error = ?, finished_at = ? "
                "WHERE key = ? AND state IN ('queued', 'running')",
                (state, error, time.time(), job.key),
            )
            if state == "cancelled":
                db.execute(
                    "UPDATE items SET state = 'skipped', reason = 'cancelled', payload = NULL "
                    "WHERE job = ? AND state = 'pending'",
                    (job.key,),
                )

    def get(self, id_: str) -> Job | None:
        """A job by its id."""
        row = self._database.row("SELECT * FROM jobs WHERE id = ?", (id_,))
        return None if row is None else self._job(row)

    def list(self, *, limit: int = 20) -> list[Job]:
        """The newest jobs, newest first."""
        return [
            self._job(row)
            for row in self._database.rows("SELECT * FROM jobs ORDER BY key DESC LIMIT ?", (limit,))
        ]

    def report(self, job: Job, states: Sequence[ItemState], *, limit: int = 50) -> list[JobItem]:
        """Documents of a job in given states, with the reasons."""
        marks = ",".join("?" * len(states))
        rows = self._database.rows(
            f"SELECT ordinal, uri, size, state, reason, NULL AS payload FROM items "
            f"WHERE job = ? AND state IN ({marks}) ORDER BY ordinal LIMIT ?",
            (job.key, *states, limit),
        )
        return [JobItem(**dict(row)) for row in rows]

    def _job(self, row: sqlite3.Row) -> Job:
        counts = self._database.rows(
            "SELECT state, COUNT(*) AS n, SUM(chunks) AS chunks FROM items WHERE job = ? GROUP BY state",
            (row["key"],),
        )
        return Job(
            key=row["key"],
            id=row["id"],
            state=row["state"],
            request=json.loads(row["request"]),
            counts={count["state"]: count["n"] for count in counts},
            chunks=sum(count["chunks"] for count in counts),
            error=row["error"],
            created_at=row["created_at"],
            finished_at=row["finished_at"],
        )
