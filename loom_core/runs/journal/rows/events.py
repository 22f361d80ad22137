"""Rows of events and blobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loom_core.errors import NotFoundError
from loom_core.runs.events import StreamEvent
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import MAX_ROWS, event_keys, row_limit
from loom_core.runs.journal.rows.schema import SEQ_BITS

if TYPE_CHECKING:
    from loom_core.runs.journal.rows.runs import StoredRun
    from loom_core.runs.run import Attachment, Run
    from loom_core.storage.sql import SQLConnection, SQLRow

__all__ = ["Step", "attachments_of", "blob_of", "events_of", "steps_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """An event with the internal state that the executor resumes from: JSON, with whole messages."""

    event: StreamEvent
    state: Any


def events_of(
    db: SQLConnection, run_id: str, run: int, *, after: int = 0, limit: int = MAX_ROWS
) -> list[StreamEvent]:
    """Return the events of a run after a seq, oldest first."""
    rows = db.execute(
        "SELECT key, at, type, payload FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (*event_keys(run, after=after), row_limit(limit)),
    )
    return [_event(row, run_id) for row in rows]


def steps_of(db: SQLConnection, run_id: str, run: int) -> list[Step]:
    """Return the events of a run that have a state, oldest first."""
    rows = db.execute(
        "SELECT * FROM events WHERE key BETWEEN ? AND ? AND state IS NOT NULL ORDER BY key", event_keys(run)
    )
    return [Step(_event(row, run_id), from_column(row["state"])) for row in rows]


def _event(row: SQLRow, run_id: str) -> StreamEvent:
    seq = row["key"] & (1 << SEQ_BITS) - 1
    return StreamEvent(row["type"], from_column(row["payload"]), run_id=run_id, seq=seq, at=row["at"])


def attachments_of(db: SQLConnection, run: Run, key: int) -> tuple[Attachment, ...]:
    """Return the attachments of a run with their bytes."""
    sql = "SELECT content FROM blobs WHERE run = ? AND number <= ? ORDER BY number"
    rows = db.execute(sql, (key, len(run.request.attachments)))
    return tuple(
        replace(each, data=row["content"]) for each, row in zip(run.request.attachments, rows, strict=True)
    )


def blob_of(db: SQLConnection, stored: StoredRun, number: int) -> tuple[bytes, str]:
    """Return a blob of a run, and its media type.

    Raises:
        NotFoundError: it has none of this number.
    """
    sql = "SELECT content, media_type FROM blobs WHERE run = ? AND number = ?"
    row = db.execute(sql, (stored.key, number)).fetchone() if 0 <= number <= MAX_ROWS else None
    if row is None:
        raise NotFoundError(f"Run {stored.run.id} has no blob {number}.")
    return row["content"], row["media_type"]
