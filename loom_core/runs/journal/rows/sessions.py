"""Rows of sessions, and of the session state that lasts across runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.errors import NotFoundError
from loom_core.runs.journal.rows.json_column import check_text, from_column, to_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.storage.sql import SQLConnection

__all__ = ["SessionState", "begin_session", "find_session", "save_state", "session_state"]


@dataclass(frozen=True, slots=True)
class SessionState:
    """State of a session in addition to its runs.

    Attributes:
        content: JSON; empty if nothing was saved.
        version: number of times it was saved.
    """

    content: Mapping[str, Any]
    version: int


def begin_session(db: SQLConnection, session_id: str, caller: str) -> int:
    """Insert a session that has no run yet, if absent; return the key of its row."""
    sql = "INSERT INTO sessions (id, caller, created) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    db.execute(sql, (session_id, caller, time.time()))
    return find_session(db, session_id, caller)


def find_session(db: SQLConnection, session_id: str, caller: str) -> int:
    """Find a session; return the key of its row.

    Raises:
        InvalidInputError: the id or the caller is not valid text.
        NotFoundError: there is no such session of this caller.
    """
    check_text("session_id", f"{session_id}{caller}")
    sql = "SELECT key FROM sessions WHERE id = ? AND caller = ?"
    row = db.execute(sql, (session_id, caller)).fetchone()
    if row is None:
        raise NotFoundError(
            f"There is no session {session_id[:200]!r}.", advice="Leave it out to begin a new one."
        )
    key: int = row["key"]
    return key


def session_state(db: SQLConnection, session_id: str, caller: str) -> SessionState:
    """Return the state of a session.

    Raises:
        NotFoundError: there is no such session of this caller.
    """
    key = find_session(db, session_id, caller)
    row = db.execute("SELECT state, version FROM sessions WHERE key = ?", (key,)).fetchone()
    return SessionState({} if row["state"] is None else from_column(row["state"]), row["version"])


def save_state(
    db: SQLConnection, session_id: str, caller: str, content: Mapping[str, Any], *, version: int
) -> bool:
    """Replace the session state of a version; return whether that version was still the latest.

    Raises:
        InvalidInputError: JSON cannot hold it.
        NotFoundError: there is no such session of this caller.
    """
    key, body = find_session(db, session_id, caller), to_column(content)
    sql = "UPDATE sessions SET state = ?, version = version + 1 WHERE key = ? AND version = ?"
    return db.execute(sql, (body, key, version)).rowcount == 1
