"""Boilerplate in the store: passages that many documents have alike at their beginning or end.

The table `edge_lines` is a function of the texts, and `boilerplate` one of `edge_lines` and the passages.
Triggers queue the documents whose passages have to be judged again: those with a line that enough documents
have by now, or no longer enough.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.knowledge.text.edge_lines import EdgeLine

if TYPE_CHECKING:
    from collections.abc import Collection

    from loom_core.knowledge.store.changes import ChangeLog
    from loom_core.storage.sql import SQLDatabase

__all__ = ["BoilerplateTable"]

_REPEATED = 10  # documents that have a line, from which on it is repeated; as in the triggers of schema.py

_WRITE = """
INSERT INTO edge_lines (line, document, length, edge) VALUES (?, ?, ?, ?)
ON CONFLICT (line, document) DO UPDATE SET length = excluded.length, edge = excluded.edge
"""
_FORGET = "DELETE FROM edge_lines WHERE document = ? AND line NOT IN (SELECT value FROM json_each(?))"
_IS_REPEATED = f"""
{_REPEATED} = (
    SELECT COUNT(*)
    FROM (SELECT 1 FROM edge_lines WHERE line = e.line ORDER BY document LIMIT {_REPEATED}) AS first
)
"""


class BoilerplateTable:
    """The lines at the edges of documents, and the passages that are boilerplate."""

    def __init__(self, database: SQLDatabase, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    def set_lines(self, document: int, lines: Collection[EdgeLine]) -> None:
        """Store a document's lines, and queue its passages to be judged; part of a transaction.

        Args:
            document: its key; a deleted one is ignored.
            lines: see `edge_lines`.
        """
        wanted = {each.line: each for each in lines}
        with self._database.write() as db:
            if db.execute("SELECT 1 FROM documents WHERE key = ?", (document,)).fetchone() is None:
                return
            db.execute(_FORGET, (document, json.dumps(list(wanted))))
            db.executemany(_WRITE, [(line, document, *rest) for line, *rest in wanted.values()])
            db.execute("INSERT INTO unjudged VALUES (?) ON CONFLICT DO NOTHING", (document,))

    def lines_of(self, document: int) -> list[EdgeLine]:
        """Return a document's lines."""
        rows = self._database.rows(
            "SELECT line, length, edge FROM edge_lines WHERE document = ?", (document,)
        )
        return [EdgeLine(row["line"], row["length"], bool(row["edge"])) for row in rows]

    def repeated_lines(self, document: int) -> set[int]:
        """Return the hashes of those lines of a document that enough documents have."""
        rows = self._database.rows(
            f"SELECT line FROM edge_lines AS e WHERE document = ? AND {_IS_REPEATED}", (document,)
        )
        return {row["line"] for row in rows}

    def pending(self, limit: int) -> list[int]:
        """Return keys of documents whose passages have to be judged."""
        rows = self._database.rows("SELECT document FROM unjudged ORDER BY document LIMIT ?", (limit,))
        return [row["document"] for row in rows]

    def is_pending(self, document: int) -> bool:
        """Whether a document's lines are still to be read, or its passages to be judged."""
        sql = "SELECT 1 FROM {} WHERE document = ?"
        return any(self._database.row(sql.format(table), (document,)) for table in ("uncompared", "unjudged"))

    def texts_of(self, document: int) -> list[tuple[int, str]]:
        """Return the passages of a document with their texts."""
        rows = self._database.rows("SELECT key, text FROM chunks WHERE document = ?", (document,))
        return [(row["key"], row["text"]) for row in rows]

    def passages_of(self, document: int) -> set[int]:
        """Return the passages of a document that are boilerplate."""
        rows = self._database.rows(
            "SELECT key FROM chunks CROSS JOIN boilerplate WHERE chunk = key AND document = ?", (document,)
        )
        return {row["key"] for row in rows}

    def count(self) -> int:
        """Return how many passages are boilerplate."""
        row = self._database.row("SELECT COUNT(*) AS n FROM boilerplate")
        return 0 if row is None else int(row["n"])

    def judge(self, document: int, chunks: Collection[int]) -> None:
        """Store which passages of a document are boilerplate; part of a transaction."""
        before, now = self.passages_of(document), set(chunks)
        with self._database.write() as db:
            db.execute("DELETE FROM unjudged WHERE document = ?", (document,))
            if before == now:
                return
            db.executemany("DELETE FROM boilerplate WHERE chunk = ?", [(key,) for key in before - now])
            db.executemany("INSERT INTO boilerplate VALUES (?)", [(key,) for key in now - before])
            self._changes.note("document", [document])  # topics follow the log

    def read_again(self, documents: Collection[int]) -> None:
        """Queue documents whose lines are to be read, and passages judged, again."""
        with self._database.write() as db:
            db.executemany(
                "INSERT INTO uncompared VALUES (?) ON CONFLICT DO NOTHING", [(key,) for key in documents]
            )
