"""How fast jobs go, what they take, how many passages have vectors, and notes about their documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.llm.interface import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.record.jobs import Job
    from loom_core.storage import Database

__all__ = ["JobProgress", "Pace"]

_PIECES = 30  # of a job's work by which its pace is judged: about as many seconds


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a job went in the last half minute that somebody worked on it.

    Attributes:
        documents: a second.
        chunks: a second.
        seconds_left: until it is done at this pace; None where that is not known.
    """

    documents: float
    chunks: float
    seconds_left: float | None


class JobProgress:
    """What is kept beside the jobs themselves; it goes when they go."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note_work(self, job: Job, *, seconds: float, documents: int, chunks: int) -> None:
        """Note how long a piece of a job's work took. Kept, so that a restart does not begin from nothing."""
        with self._database.write() as db:
            cursor = db.execute(
                "INSERT INTO job_paces (job, seconds, documents, chunks) SELECT key, ?, ?, ? FROM jobs "
                "WHERE key = ?",
                (seconds, documents, chunks, job.key),
            )
            db.execute("DELETE FROM job_paces WHERE key <= ?", ((cursor.lastrowid or 0) - _PIECES,))

    def pace(self, job: Job) -> Pace | None:
        """How fast a job goes; None where nothing is known yet, or any more."""
        row = self._database.row(
            "SELECT SUM(seconds) AS seconds, SUM(documents) AS documents, SUM(chunks) AS chunks "
            "FROM job_paces WHERE job = ?",
            (job.key,),
        )
        if row is None or not row["seconds"]:
            return None
        documents, chunks = row["documents"] / row["seconds"], row["chunks"] / row["seconds"]
        known = job.state == "running" and documents > 0
        return Pace(documents, chunks, (job.total - job.processed) / documents if known else None)

    def note_spent(self, job: Job, usage: Usage) -> None:
        """Add what a language model has just taken for a job, while the job is remembered."""
        with self._database.write() as db:
            db.execute(
                "INSERT INTO job_spendings SELECT key, ?, ?, ? FROM jobs WHERE key = ? "
                "ON CONFLICT (job) DO UPDATE SET input_tokens = input_tokens + excluded.input_tokens, "
                "output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost",
                (usage.input_tokens, usage.output_tokens, usage.cost, job.key),
            )

    def spent(self, job: Job) -> Usage | None:
        """What a language model has taken for a job so far; None if none was asked."""
        row = self._database.row(
            "SELECT input_tokens, output_tokens, cost FROM job_spendings WHERE job = ?", (job.key,)
        )
        return None if row is None else Usage(row["input_tokens"], row["output_tokens"], cost=row["cost"])

    def embedded(self, job: Job) -> int:
        """How many of a job's chunks have vectors; without an embedder, none. Costs as many look-ups."""
        if job.first_chunk is None:
            return 0
        last = job.last_chunk if job.last_chunk is not None else (1 << 62)
        row = self._database.row(
            "SELECT COUNT(*) AS missing FROM chunks AS c WHERE c.key > ? AND c.key <= ? "
            "AND NOT EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash)",
            (job.first_chunk, last),
        )
        return max(0, job.chunks - (0 if row is None else int(row["missing"])))

    def note(self, job: Job, notes: Sequence[str]) -> None:
        """Keep notes about documents of a job that are in."""
        with self._database.write() as db:
            db.executemany(
                "INSERT INTO job_notes (job, note) VALUES (?, ?)", [(job.key, note) for note in notes]
            )

    def notes(self, job: Job, *, limit: int = 50, after: int = 0) -> list[tuple[int, str]]:
        """The notes about a job after the one with a key, with their keys."""
        rows = self._database.rows(
            "SELECT key, note FROM job_notes WHERE job = ? AND key > ? ORDER BY key LIMIT ?",
            (job.key, after, limit),
        )
        return [(row["key"], row["note"]) for row in rows]

    def count_notes(self, job: Job) -> int:
        """How many notes there are about a job."""
        row = self._database.row("SELECT COUNT(*) AS n FROM job_notes WHERE job = ?", (job.key,))
        return 0 if row is None else int(row["n"])
