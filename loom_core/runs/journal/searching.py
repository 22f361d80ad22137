"""What runs and messages are found by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.llm.message_json import message_from_json
from loom_core.runs.journal.rows.json_column import from_column
from loom_core.runs.journal.rows.runs import run_rows
from loom_core.runs.journal.words import WordTable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from loom_core.runs.journal.rows.runs import StoredRun
    from loom_core.runs.run import Run

__all__ = ["MESSAGE_WORDS", "RUN_WORDS", "found_runs", "read_messages", "read_runs", "read_some"]

RUN_WORDS = WordTable("run_words", "runs")
MESSAGE_WORDS = WordTable("message_words", "messages")

_PORTION = 8  # so few that nobody waits long for the writer


def read_some(db: sqlite3.Connection) -> bool:
    """Make a few things that are at their end ready to be found: whether there may be more of them."""
    more = read_runs(db, where="status IN ('completed', 'failed', 'aborted')")
    return read_messages(db) or more


def read_runs(db: sqlite3.Connection, *, where: str = "TRUE") -> bool:
    """Write the words of some runs that have none: whether there may be more of them."""
    keys = RUN_WORDS.unread(db, limit=_PORTION, where=where)
    for key in keys:
        (stored,) = run_rows(db, "runs.key = ?", (key,))
        RUN_WORDS.read(db, key, _said(stored.run))
    return len(keys) == _PORTION


def read_messages(db: sqlite3.Connection) -> bool:
    """Write the words of some messages that have none: whether there may be more of them."""
    keys = MESSAGE_WORDS.unread(db, limit=_PORTION)
    for key in keys:
        row = db.execute("SELECT body FROM messages WHERE key = ?", (key,)).fetchone()
        MESSAGE_WORDS.read(db, key, message_from_json(from_column(row["body"])).text)
    return len(keys) == _PORTION


def found_runs(
    db: sqlite3.Connection, query: str, *, wanted: tuple[str, Sequence[str]], limit: int
) -> list[StoredRun]:
    """The runs that fit best, those first, of those that a condition (see there) picks."""
    where, parameters = wanted
    found: list[StoredRun] = []
    for key in RUN_WORDS.best(db, query):
        if len(found) == limit:
            break
        found += run_rows(db, f"runs.key = ? AND {where}", (key, *parameters))
    return found


def _said(run: Run) -> str:
    return f"{run.request.goal}\n{run.output}"
