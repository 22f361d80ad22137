"""Taking in a job that is too large for one transaction: nothing is done of it before all of it is here."""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.storage import Database

__all__ = ["JobUpload", "discard_unacknowledged"]


class JobUpload:
    """A job whose documents are handed over in portions; it exists for others once it is acknowledged.

    What a process leaves behind that is killed meanwhile is cleared away by `abandon_received`.

    Args:
        database: the record.
        request: what is asked for, JSON.
    """

    def __init__(self, database: Database, request: dict[str, Any]) -> None:
        self.id = "job-" + secrets.token_hex(4)
        self._database = database
        self._next = 0
        with database.write() as db:
            cursor = db.execute(
                "INSERT INTO jobs (id, kind, state, request, created_at) "
                "VALUES (?, 'add', 'receiving', ?, ?)",
                (self.id, json.dumps(request), time.time()),
            )
            self._key = int(cursor.lastrowid or 0)

    def append(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Write down some documents: URI and payload."""
        with self._database.write() as db:
            db.executemany(
                "INSERT INTO items (job, ordinal, uri, size, state, payload) "
                "VALUES (?, ?, ?, ?, 'pending', ?)",
                [
                    (self._key, self._next + n, uri, len(payload), payload)
                    for n, (uri, payload) in enumerate(items)
                ],
            )
            db.execute(
                "INSERT INTO job_counts VALUES (?, 'pending', ?, 0) ON CONFLICT (job, state) "
                "DO UPDATE SET documents = documents + excluded.documents",
                (self._key, len(items)),
            )
        self._next += len(items)

    def acknowledge(self) -> str:
        """Make it a job like any other: from here on it is done even if the process dies.

        Returns:
            The job's id.
        """
        with self._database.write() as db:
            db.execute("UPDATE jobs SET state = 'running' WHERE key = ?", (self._key,))
        return self.id


def discard_unacknowledged(database: Database) -> int:
    """Forget all jobs that were never acknowledged; only while no process hands over any.

    Returns:
        How many there were.
    """
    with database.write() as db:
        return db.execute("DELETE FROM jobs WHERE state = 'receiving'").rowcount
