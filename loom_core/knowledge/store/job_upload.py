"""Upload of a job that is too large for one transaction: work on it starts once it is complete."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.store.jobs import new_job_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.storage.sql import SQLDatabase

__all__ = ["JobUpload", "discard_unacknowledged"]

_NODE = "uploaded_by"  # key in the request


class JobUpload:
    """A job whose documents are uploaded in parts; invisible to others until it is acknowledged.

    `discard_unacknowledged` removes what a killed process left behind.

    Args:
        database: the store.
        request: the request as JSON.
        node: the node that uploads it, where several machines share the store.
    """

    def __init__(self, database: SQLDatabase, request: dict[str, Any], *, node: str = "") -> None:
        self.id = new_job_id()
        self._database = database
        self._next = 0
        with database.write() as db:
            cursor = db.execute(
                "INSERT INTO jobs (id, kind, state, request, created_at) "
                "VALUES (?, 'add', 'receiving', ?, ?) RETURNING key",
                (self.id, json.dumps(request | {_NODE: node} if node else request), time.time()),
            )
            self._key = int(cursor.fetchone()[0])

    def append(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Store some documents: URI and payload."""
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
                "DO UPDATE SET documents = job_counts.documents + excluded.documents",
                (self._key, len(items)),
            )
        self._next += len(items)

    def acknowledge(self) -> str:
        """Turn it into an ordinary job: from here on it is durable.

        Returns:
            The job's id.
        """
        with self._database.write() as db:
            db.execute("UPDATE jobs SET state = 'running' WHERE key = ?", (self._key,))
        return self.id


def discard_unacknowledged(database: SQLDatabase, *, node: str = "") -> None:
    """Discard a node's jobs that were never acknowledged. Call it only while no process there uploads one."""
    with database.write() as db:
        found = db.execute("SELECT key, request FROM jobs WHERE state = 'receiving'").fetchall()
        remains = [(row["key"],) for row in found if json.loads(row["request"]).get(_NODE, "") == node]
        db.executemany("DELETE FROM jobs WHERE key = ?", remains)
