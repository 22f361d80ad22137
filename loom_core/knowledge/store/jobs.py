"""Jobs: requests to add or sync documents, and their progress. Durable once written here."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loom_core.knowledge.store.prepared_documents import ItemOutcome, ItemState, JobItem
from loom_core.knowledge.text.control_characters import UNSTORABLE
from loom_core.llm.interface import Usage
from loom_core.observability.propagation import inject_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.storage.sql import SQLConnection, SQLDatabase, SQLRow

__all__ = [
    "Job",
    "JobKind",
    "JobProgress",
    "JobReader",
    "JobState",
    "JobTable",
    "ListedDocument",
    "Throughput",
    "new_job_id",
]

JobKind = Literal["add", "sync"]
JobState = Literal["receiving", "queued", "listing", "running", "done", "failed", "cancelled"]
_OPEN: tuple[JobState, ...] = ("queued", "listing", "running")
_TO_DO: tuple[ItemState, ...] = ("pending", "leaving")
_PIECES = 30  # pieces of work that the throughput is computed from: about half a minute
_PURGE_LIMIT = 5_000  # rows at a time, for a tenth of a second in which no other process can write


@dataclass(frozen=True, slots=True)
class Job:
    """A request to add documents or to sync folders, with its progress.

    Attributes:
        id: public id, for queries.
        kind: `add`; or `sync`, which also removes documents whose files are gone.
        state: `queued` until it is begun, `listing` until its folders are listed, `running` until every
            document is in the store.
        request: the request as JSON.
        counts: number of documents by state.
        chunks: chunks written so far.
        error: why it failed as a whole, or empty.
        first_chunk: the chunks after this key, up to `last_chunk`, were written while it ran.
    """

    key: int
    id: str
    kind: JobKind
    state: JobState
    request: dict[str, Any]
    counts: dict[str, int]
    chunks: int
    error: str
    created_at: float
    started_at: float | None
    finished_at: float | None
    first_chunk: int | None
    last_chunk: int | None

    @property
    def roots(self) -> tuple[Path, ...]:
        """Real paths of the folders that it may read; empty if it may read anything."""
        return tuple(map(Path, self.request.get("roots", ())))

    @property
    def host(self) -> str:
        """Name of the machine whose files it reads; empty if any process may do it."""
        return self.request.get("host", "")

    @property
    def finished(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state not in _OPEN

    @property
    def total(self) -> int:
        """Number of its documents, as far as known."""
        return sum(self.counts.values())

    @property
    def processed(self) -> int:
        """Number of its documents that are settled."""
        return self.total - sum(self.counts.get(state, 0) for state in _TO_DO)


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that the file listing found for a job.

    Attributes:
        size: in bytes.
        state: `pending`, `leaving`, or the final state if it needs no work.
        reason: why it is left out, or empty.
    """

    uri: str
    size: int = 0
    state: ItemState = "pending"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of a job in the last half minute of work.

    Attributes:
        documents: documents per second.
        chunks: chunks per second.
        seconds_left: seconds until it is done at this rate; None if unknown.
    """

    documents: float
    chunks: float
    seconds_left: float | None


class JobReader:
    """Reads the progress of jobs, and the outcome of their documents."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    def get(self, id_: str) -> Job | None:
        """Return a job by its id."""
        row = self._database.row("SELECT * FROM jobs WHERE id = ?", (UNSTORABLE.sub("?", id_),))
        return None if row is None else self._job(row)

    def list(self, *, limit: int = 20, before: float = math.inf) -> list[Job]:
        """Return the newest jobs, newest first.

        Args:
            limit: maximum number.
            before: only jobs created before this time, in seconds since 1970.
        """
        rows = self._database.rows(
            "SELECT * FROM jobs WHERE created_at < ? ORDER BY key DESC LIMIT ?", (before, limit)
        )
        return [self._job(row) for row in rows]

    def next(self, *, host: str = "") -> Job | None:
        """Return the oldest job that is not finished.

        Args:
            host: a machine: jobs that read files of another one are left out.
        """
        sql = f"SELECT * FROM jobs WHERE state IN {_OPEN} AND finished_at IS NULL ORDER BY key"
        if not host:
            row = self._database.row(f"{sql} LIMIT 1")
            return None if row is None else self._job(row)
        found = map(self._job, self._database.rows(sql))
        return next((job for job in found if job.host in {"", host}), None)

    def is_open(self, job: Job) -> bool:
        """Whether a job is unfinished; within a transaction, the result holds until the end of that."""
        row = self._database.row("SELECT finished_at FROM jobs WHERE key = ?", (job.key,))
        return row is not None and row["finished_at"] is None

    def pending(
        self,
        job: Job,
        limit: int,
        *,
        size: int | None = None,
        state: Literal["pending", "leaving"] = "pending",
        after: int = -1,
    ) -> list[JobItem]:
        """Return the next documents of a job, at least one if there are any.

        Args:
            job: the job.
            limit: maximum number.
            size: bytes that they may have together.
            state: those to be added, or those to be removed.
            after: ordinal of the last document that is in progress already.
        """
        items: list[JobItem] = []
        total = 0
        with self._database.read() as db:
            # Without the hint SQLite uses the primary key, and reads all settled documents.
            rows = db.execute(
                "SELECT ordinal, uri, size, state, reason, payload FROM items INDEXED BY items_state "
                "WHERE job = ? AND state = ? AND ordinal > ? ORDER BY ordinal LIMIT ?",
                (job.key, state, after, limit),
            )
            for row in rows:
                total += row["size"]
                if items and size is not None and total > size:
                    break
                items.append(JobItem(**dict(row)))
        return items

    def still_open(self, job: Job, items: Sequence[JobItem]) -> set[int]:
        """Return the ordinals of documents of a job that are still not settled."""
        rows = self._database.rows_in(
            "SELECT ordinal FROM items WHERE ordinal IN ({}) AND job = ? AND state IN ('pending', 'leaving')",
            [item.ordinal for item in items],
            (job.key,),
        )
        return {row["ordinal"] for row in rows}

    def report(
        self, job: Job, states: Sequence[ItemState], *, limit: int = 50, after: int = -1
    ) -> list[JobItem]:
        """Return documents of a job in given states with the reasons, after the one with an ordinal."""
        marks = ",".join("?" * len(states))
        rows = self._database.rows(
            f"SELECT ordinal, uri, size, state, reason, NULL AS payload FROM items "
            f"WHERE job = ? AND state IN ({marks}) AND ordinal > ? ORDER BY ordinal LIMIT ?",
            (job.key, *states, after, limit),
        )
        return [JobItem(**dict(row)) for row in rows]

    def list_skipped(self, job: Job, *, limit: int) -> list[tuple[str, str]]:
        """Return the addresses of skipped documents of a job, each with the reason."""
        rows = self._database.rows(
            "SELECT uri, reason FROM items INDEXED BY items_state "
            "WHERE job = ? AND state = 'skipped' ORDER BY ordinal LIMIT ?",
            (job.key, limit),
        )
        return [(row["uri"], row["reason"]) for row in rows]

    def throughput(self, job: Job) -> Throughput | None:
        """Return the throughput of a job; None if it is not known."""
        row = self._database.row(
            "SELECT SUM(seconds) AS seconds, CAST(SUM(documents) AS BIGINT) AS documents, "
            "CAST(SUM(chunks) AS BIGINT) AS chunks FROM job_paces WHERE job = ?",
            (job.key,),
        )
        if row is None or not row["seconds"]:
            return None
        documents, chunks = row["documents"] / row["seconds"], row["chunks"] / row["seconds"]
        known = job.state == "running" and documents > 0
        return Throughput(documents, chunks, (job.total - job.processed) / documents if known else None)

    def llm_usage(self, job: Job) -> Usage | None:
        """Return the language model's usage for a job so far; None if none was asked."""
        row = self._database.row(
            "SELECT input_tokens, output_tokens, cost FROM job_spendings WHERE job = ?", (job.key,)
        )
        return None if row is None else Usage(row["input_tokens"], row["output_tokens"], cost=row["cost"])

    def count_embedded(self, job: Job) -> int:
        """Return how many of a job's chunks have vectors; 0 without an embedder. One look-up per chunk."""
        if job.first_chunk is None:
            return 0
        last = job.last_chunk if job.last_chunk is not None else (1 << 62)
        row = self._database.row(
            "SELECT COUNT(*) AS missing FROM chunks AS c WHERE c.key > ? AND c.key <= ? "
            "AND NOT EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash)",
            (job.first_chunk, last),
        )
        return max(0, job.chunks - (0 if row is None else int(row["missing"])))

    def notes(self, job: Job, *, limit: int = 50, after: int = 0) -> list[tuple[int, str]]:
        """Return the notes about a job after the one with a key, with their keys."""
        rows = self._database.rows(
            "SELECT key, note FROM job_notes WHERE job = ? AND key > ? ORDER BY key LIMIT ?",
            (job.key, after, limit),
        )
        return [(row["key"], row["note"]) for row in rows]

    def count_notes(self, job: Job) -> int:
        """Return how many notes there are about a job."""
        row = self._database.row("SELECT COUNT(*) AS n FROM job_notes WHERE job = ?", (job.key,))
        return 0 if row is None else int(row["n"])

    def _job(self, row: SQLRow) -> Job:
        values = dict(row)
        values["request"] = json.loads(values["request"])
        counts = self._database.rows(
            "SELECT state, documents, chunks FROM job_counts WHERE job = ?", (row["key"],)
        )
        return Job(
            **values,
            counts={count["state"]: count["documents"] for count in counts if count["documents"]},
            chunks=sum(count["chunks"] for count in counts),
        )


class JobTable(JobReader):
    """Jobs in the store. Progress is counted as it happens, so that reading it is cheap.

    Args:
        database: the store.
        keep: how many finished jobs are kept.
    """

    def __init__(self, database: SQLDatabase, *, keep: int = 1000) -> None:
        super().__init__(database)
        self._keep = keep

    def submit(
        self,
        request: dict[str, Any],
        items: Sequence[JobItem] = (),
        *,
        listed: bool = False,
        kind: JobKind = "add",
        id_: str = "",
    ) -> str:
        """Submit a request as a job, which is durable from here on.

        Args:
            request: the request as JSON.
            items: the documents that are known already, with their payloads.
            listed: whether `items` is complete, so that no folder has to be listed.
            kind: the kind of the job.
            id_: its id, if it has one already: that of the same job in other shards.

        Returns:
            The job's id.
        """
        id_ = id_ or new_job_id()
        if trace := inject_context():
            request = {**request, "trace": trace}
        # JSON is escaped: a path that is not UTF-8 has lone surrogates.
        row = (id_, kind, "running" if listed else "queued", json.dumps(request), time.time())
        with self._database.write() as db:
            sql = (
                "INSERT INTO jobs (id, kind, state, request, created_at) VALUES (?, ?, ?, ?, ?) RETURNING key"
            )
            job = int(db.execute(sql, row).fetchone()[0])
            db.executemany(
                "INSERT INTO items (job, ordinal, uri, size, state, payload) "
                "VALUES (?, ?, ?, ?, 'pending', ?)",
                [(job, n, item.uri, len(item.payload or b""), item.payload) for n, item in enumerate(items)],
            )
            _count(db, job, {"pending": len(items)})
        return id_

    def start(self, job: Job) -> None:
        """Mark a job as started or restarted: its folders are listed from the start."""
        with self._database.write() as db:
            db.execute(
                "UPDATE jobs SET started_at = ?, first_chunk = "
                "COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0) "
                "WHERE key = ? AND started_at IS NULL",
                (time.time(), job.key),
            )
            if job.state in {"queued", "listing"}:
                db.execute("DELETE FROM items WHERE job = ?", (job.key,))
                db.execute("DELETE FROM job_counts WHERE job = ?", (job.key,))
                db.execute(
                    "UPDATE jobs SET state = 'listing' WHERE key = ? AND state IN ('queued', 'listing')",
                    (job.key,),
                )

    def append(self, job: Job, found: Sequence[ListedDocument], *, unchanged: int = 0) -> None:
        """Add documents that the file listing found, unless the job is over.

        Args:
            job: the job.
            found: documents, each of which becomes an item.
            unchanged: number of further documents that need no work.
        """
        with self._database.write() as db:
            if not self.is_open(job):
                return
            row = db.execute("SELECT MAX(ordinal) FROM items WHERE job = ?", (job.key,)).fetchone()
            first = 0 if row[0] is None else row[0] + 1
            db.executemany(
                "INSERT INTO items (job, ordinal, uri, size, state, reason) VALUES (?, ?, ?, ?, ?, ?)",
                [(job.key, first + n, f.uri, f.size, f.state, f.reason) for n, f in enumerate(found)],
            )
            counts: dict[ItemState, int] = {"unchanged": unchanged} if unchanged else {}
            for each in found:
                counts[each.state] = counts.get(each.state, 0) + 1
            _count(db, job.key, counts)

    def finish_listing(self, job: Job) -> None:
        """Mark the file listing of a job as complete."""
        with self._database.write() as db:
            db.execute("UPDATE jobs SET state = 'running' WHERE key = ? AND state = 'listing'", (job.key,))

    def settle(self, job: Job, item: JobItem, state: ItemState, *, reason: str = "", chunks: int = 0) -> None:
        """Record the outcome of a document; see `settle_all`."""
        self.settle_all(job, [(item, ItemOutcome(state, reason, chunks))])

    def settle_all(self, job: Job, settled: Sequence[tuple[JobItem, ItemOutcome]]) -> None:
        """Record the outcome of documents; part of the transaction that writes them.

        If the job was cancelled meanwhile, its open documents were counted as skipped; that is corrected.
        """
        with self._database.write() as db:
            is_open = self.is_open(job)
            db.executemany(
                "UPDATE items SET state = ?, reason = ?, chunks = ?, payload = NULL "
                "WHERE job = ? AND ordinal = ?",
                [(each.state, each.reason, each.chunks, job.key, item.ordinal) for item, each in settled],
            )
            counts: Counter[ItemState] = Counter(each.state for _, each in settled)
            chunks: Counter[ItemState] = Counter()
            for item, each in settled:
                counts[item.state if is_open else "skipped"] -= 1
                chunks[each.state] += each.chunks
            for state, change in counts.items():
                _count(db, job.key, {state: change}, chunks=chunks[state])

    def withdraw(self, uris: Sequence[str]) -> None:
        """Drop pending documents of open jobs at some addresses that were removed since."""
        with self._database.write() as db:
            rows = self._database.rows_in(
                "SELECT i.job, i.ordinal FROM jobs AS j CROSS JOIN items AS i INDEXED BY items_state "
                "WHERE i.uri IN ({}) AND i.job = j.key AND i.state = 'pending' AND j.finished_at IS NULL",
                uris,
            )
            db.executemany(
                "UPDATE items SET state = 'skipped', reason = 'removed before it was added', payload = NULL "
                "WHERE job = ? AND ordinal = ?",
                [(row["job"], row["ordinal"]) for row in rows],
            )
            for job, count in Counter(row["job"] for row in rows).items():
                _count(db, job, {"pending": -count, "skipped": count})

    def drop(self, job: Job, uri: str) -> None:
        """Drop a document from the removals of a job, as it moved to another address."""
        with self._database.write() as db:
            cursor = db.execute(
                "DELETE FROM items WHERE job = ? AND state = 'leaving' AND uri = ?", (job.key, uri)
            )
            _count(db, job.key, {"leaving": -cursor.rowcount})

    def finish(self, job: Job, state: JobState = "done", *, error: str = "") -> None:
        """Mark a job as finished, unless it is. The open documents of a cancelled one count as skipped."""
        with self._database.write() as db:
            cursor = db.execute(
                "UPDATE jobs SET state = ?, error = ?, finished_at = ?, "
                "last_chunk = (SELECT seq FROM sqlite_sequence WHERE name = 'chunks') "
                "WHERE key = ? AND finished_at IS NULL",
                (state, error, time.time(), job.key),
            )
            if cursor.rowcount and state == "cancelled":
                rest = db.execute(
                    "DELETE FROM job_counts WHERE job = ? AND state IN ('pending', 'leaving') "
                    "RETURNING documents",
                    (job.key,),
                ).fetchall()
                _count(db, job.key, {"skipped": sum(row["documents"] for row in rest)})

    def purge(self) -> bool:
        """Purge some rows that are no longer needed: items of finished jobs, and the oldest jobs.

        Returns:
            Whether there were any.
        """
        rests = self._database.rows(
            "SELECT i.job, i.ordinal FROM jobs AS j JOIN items AS i INDEXED BY items_state ON i.job = j.key "
            "WHERE j.state = 'cancelled' AND i.state IN ('pending', 'leaving') LIMIT ?",
            (_PURGE_LIMIT,),
        )
        if rests:
            with self._database.write() as db:
                db.executemany(
                    "UPDATE items SET state = 'skipped', reason = 'cancelled', payload = NULL "
                    "WHERE job = ? AND ordinal = ?",
                    [(row["job"], row["ordinal"]) for row in rests],
                )
            return True
        old = self._database.row(
            "SELECT key FROM jobs WHERE finished_at IS NOT NULL ORDER BY key DESC LIMIT 1 OFFSET ?",
            (self._keep,),
        )
        if old is None:
            return False
        with self._database.write() as db:
            cursor = db.execute(
                "DELETE FROM items WHERE (job, ordinal) IN "
                "(SELECT job, ordinal FROM items WHERE job = ? LIMIT ?)",
                (old["key"], _PURGE_LIMIT),
            )
            if cursor.rowcount < _PURGE_LIMIT:
                db.execute("DELETE FROM jobs WHERE key = ?", (old["key"],))
        return True


def new_job_id() -> str:
    """Return an id for a job."""
    return "job-" + secrets.token_hex(4)


def _count(db: SQLConnection, job: int, documents: Mapping[ItemState, int], *, chunks: int = 0) -> None:
    db.executemany(
        "INSERT INTO job_counts VALUES (?, ?, ?, ?) ON CONFLICT (job, state) "
        "DO UPDATE SET documents = job_counts.documents + excluded.documents, "
        "chunks = job_counts.chunks + excluded.chunks",
        [(job, state, n, chunks) for state, n in documents.items() if n],
    )


class JobProgress:
    """Records the throughput, usage and notes of a job; deleted with the job."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    def note_work(self, job: Job, *, seconds: float, documents: int, chunks: int) -> None:
        """Record how long a piece of a job's work took. Kept across restarts."""
        with self._database.write() as db:
            made = db.execute(
                "INSERT INTO job_paces (job, seconds, documents, chunks) SELECT key, ?, ?, ? FROM jobs "
                "WHERE key = ? RETURNING key",
                (seconds, documents, chunks, job.key),
            ).fetchone()
            if made is not None:
                db.execute("DELETE FROM job_paces WHERE key <= ?", (made[0] - _PIECES,))

    def add_llm_usage(self, job: Job, usage: Usage) -> None:
        """Add the usage of a language model to a job, while the job exists."""
        with self._database.write() as db:
            db.execute(
                "INSERT INTO job_spendings AS s SELECT key, ?, ?, CAST(? AS DOUBLE PRECISION) FROM jobs "
                "WHERE key = ? ON CONFLICT (job) DO UPDATE "
                "SET input_tokens = s.input_tokens + excluded.input_tokens, "
                "output_tokens = s.output_tokens + excluded.output_tokens, cost = s.cost + excluded.cost",
                (usage.input_tokens, usage.output_tokens, usage.cost, job.key),
            )

    def note(self, job: Job, notes: Sequence[str]) -> None:
        """Record notes about stored documents of a job."""
        with self._database.write() as db:
            db.executemany(
                "INSERT INTO job_notes (job, note) VALUES (?, ?)", [(job.key, note) for note in notes]
            )
