"""Memory in a SQLite file that several processes may share, alone or together with the run journal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, overload

from loom_core.llm.message_json import message_from_json, message_to_json
from loom_core.plugin_registry import register
from loom_core.runs.journal.rows.json_column import check_text, from_column, to_column
from loom_core.runs.journal.rows.runs import MAX_ROWS
from loom_core.runs.journal.search import MESSAGE_INDEX, index_messages
from loom_core.runs.journal.store import JournalStore
from loom_core.runs.memory.interface import Memory, MemoryHit, MemorySession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message
    from loom_core.runs.journal import Journal
    from loom_core.storage.sql import SQLConnection

__all__ = ["SQLiteMemory"]


@register("memory", "sqlite")
class SQLiteMemory(Memory):
    """Memory in a SQLite file: data that a method has written survives a kill at any moment.

    Args:
        path: the file, created if absent; the file of a journal is possible.
        journal: use the file and connections of this journal; close the journal after the memory.
    """

    @overload
    def __init__(self, path: Path | str) -> None: ...
    @overload
    def __init__(self, *, journal: Journal) -> None: ...
    def __init__(self, path: Path | str = "", *, journal: Journal | None = None) -> None:
        self._own = journal is None
        self._store = JournalStore(Path(path)) if journal is None else journal.store

    async def messages(self, session_id: str, *, limit: int | None = None) -> list[Message]:
        """See `Memory.messages`."""

        def read(db: SQLConnection) -> list[str]:
            rows = db.execute(
                "SELECT body FROM messages WHERE conversation = (SELECT key FROM conversations WHERE id = ?)"
                " ORDER BY position DESC LIMIT ?",
                (check_text("session_id", session_id), MAX_ROWS if limit is None else max(0, limit)),
            )
            return [row["body"] for row in rows]

        return [message_from_json(from_column(body)) for body in reversed(await self._store.read(read))]

    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        """See `Memory.replace`."""
        bodies = [to_column(message_to_json(message)) for message in messages]

        def write(db: SQLConnection) -> None:
            key = _conversation(db, session_id)
            rows = db.execute(
                "SELECT body FROM messages WHERE conversation = ? ORDER BY position", (key,)
            ).fetchall()
            same = 0
            for row, body in zip(rows, bodies, strict=False):
                if row["body"] != body:
                    break
                same += 1
            if same < max(len(rows), len(bodies)):
                _delete_from(db, key, same)
                _write(db, key, same, bodies[same:])

        await self._store.write(write)

    async def add(self, session_id: str, message: Message) -> None:
        """See `Memory.add`."""
        body = to_column(message_to_json(message))

        def write(db: SQLConnection) -> None:
            key = _conversation(db, session_id)
            sql = "SELECT COALESCE(MAX(position) + 1, 0) FROM messages WHERE conversation = ?"
            (position,) = db.execute(sql, (key,)).fetchone()
            _write(db, key, position, [body])

        await self._store.write(write)

    async def clear(self, session_id: str) -> None:
        """See `Memory.clear`."""

        def write(db: SQLConnection) -> None:
            row = db.execute(
                "SELECT key FROM conversations WHERE id = ?", (check_text("session_id", session_id),)
            ).fetchone()
            if row is not None:
                _delete_from(db, row["key"], 0)
                db.execute("DELETE FROM conversations WHERE key = ?", (row["key"],))

        await self._store.write(write)

    async def sessions(self) -> list[MemorySession]:
        """See `Memory.sessions`."""

        def read(db: SQLConnection) -> list[MemorySession]:
            rows = db.execute(
                "SELECT id, updated, (SELECT COUNT(*) FROM messages WHERE conversation = c.key) AS count"
                " FROM conversations AS c ORDER BY updated DESC, key DESC"
            )
            return [MemorySession(row["id"], row["count"], row["updated"]) for row in rows]

        return await self._store.read(read)

    async def search(self, query: str, *, limit: int = 10, session_id: str = "") -> list[MemoryHit]:
        """See `Memory.search`."""
        while await self._store.write(index_messages):
            pass

        def read(db: SQLConnection) -> list[MemoryHit]:
            hits: list[MemoryHit] = []
            for key in MESSAGE_INDEX.search(db, query):
                if len(hits) >= limit:
                    break
                row = db.execute(
                    "SELECT c.id, position, body FROM messages AS m"
                    " JOIN conversations AS c ON c.key = m.conversation WHERE m.key = ?",
                    (key,),
                ).fetchone()
                if session_id in {"", row["id"]}:
                    message = message_from_json(from_column(row["body"]))
                    hits.append(MemoryHit(row["id"], row["position"], message))
            return hits

        return await self._store.read(read)

    async def aclose(self) -> None:
        """Close the file; the journal closes its own."""
        if self._own:
            await self._store.aclose()


def _conversation(db: SQLConnection, session_id: str) -> int:
    """Return the key of a session's conversation, created if absent."""
    row = db.execute(
        "SELECT key FROM conversations WHERE id = ?", (check_text("session_id", session_id),)
    ).fetchone()
    if row is not None:
        return row["key"]
    sql = "INSERT INTO conversations (id, updated) VALUES (?, ?) RETURNING key"
    (key,) = db.execute(sql, (session_id, time.time())).fetchone()
    return key


def _delete_from(db: SQLConnection, key: int, position: int) -> None:
    """Delete the messages of a conversation from a position on."""
    rows = db.execute("SELECT key FROM messages WHERE conversation = ? AND position >= ?", (key, position))
    for row in rows.fetchall():
        MESSAGE_INDEX.remove(db, row["key"])
        db.execute("DELETE FROM messages WHERE key = ?", (row["key"],))


def _write(db: SQLConnection, key: int, position: int, bodies: Sequence[str]) -> None:
    db.executemany(
        "INSERT INTO messages (conversation, position, body) VALUES (?, ?, ?)",
        [(key, at, body) for at, body in enumerate(bodies, start=position)],
    )
    db.execute("UPDATE conversations SET updated = ? WHERE key = ?", (time.time(), key))
