"""Boilerplate in the store: passages that many documents have alike at their beginning or end.

The table `edge_lines` is a function of the texts, and `boilerplate` one of `edge_lines` and the passages.
Triggers queue the documents whose passages have to be judged again: those with a line that enough documents
have by now, or no longer enough.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from loom_core.knowledge.text.edge_lines import EdgeLine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from loom_core.knowledge.store.changes import ChangeLog
    from loom_core.storage.sql import SQLDatabase

__all__ = ["BoilerplateTable"]

_REPEATED = 10  # documents that have a line, from which on it is repeated; as in the triggers of schema.py

_WRITE = """
INSERT INTO edge_lines (line, document, length, edge) VALUES (?, ?, ?, ?)
ON CONFLICT (line, document) DO UPDATE SET length = excluded.length, edge = excluded.edge
"""
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

    def set_lines(self, documents: Mapping[int, Iterable[EdgeLine]]) -> None:
        """Store the lines of documents, and queue their passages to be judged; part of a transaction.

        Args:
            documents: their lines, see `edge_lines`; a deleted document is ignored.
        """
        with self._database.write() as db:
            rows = self._database.rows_in("SELECT key FROM documents WHERE key IN ({})", sorted(documents))
            keys = sorted(row["key"] for row in rows)
            wanted = {(each.line, key): each for key in keys for each in documents[key]}
            held = self._database.rows_in(
                "SELECT line, document FROM edge_lines WHERE document IN ({})", keys
            )
            db.executemany(
                "DELETE FROM edge_lines WHERE line = ? AND document = ?",
                [row for row in map(tuple, held) if row not in wanted],
            )
            db.executemany(_WRITE, [(*row, each.length, each.edge) for row, each in wanted.items()])
            db.executemany("INSERT INTO unjudged VALUES (?) ON CONFLICT DO NOTHING", [(key,) for key in keys])

    def lines_of(self, documents: Sequence[int]) -> dict[int, list[EdgeLine]]:
        """Return the lines of documents by key; those without any are left out."""
        rows = self._database.rows_in(
            "SELECT document, line, length, edge FROM edge_lines WHERE document IN ({})", documents
        )
        found: defaultdict[int, list[EdgeLine]] = defaultdict(list)
        for row in rows:
            found[row["document"]].append(EdgeLine(row["line"], row["length"], bool(row["edge"])))
        return dict(found)

    def repeated_lines(self, documents: Sequence[int]) -> dict[int, set[int]]:
        """Return by document the hashes of those of its lines that enough documents have, if any."""
        rows = self._database.rows_in(
            f"SELECT document, line FROM edge_lines AS e WHERE document IN ({{}}) AND {_IS_REPEATED}",
            documents,
        )
        found: defaultdict[int, set[int]] = defaultdict(set)
        for row in rows:
            found[row["document"]].add(row["line"])
        return dict(found)

    def pending(self, limit: int) -> list[int]:
        """Return keys of documents whose passages have to be judged."""
        rows = self._database.rows("SELECT document FROM unjudged ORDER BY document LIMIT ?", (limit,))
        return [row["document"] for row in rows]

    def is_pending(self, document: int) -> bool:
        """Whether a document's lines are still to be read, or its passages to be judged."""
        sql = "SELECT 1 FROM {} WHERE document = ?"
        return any(self._database.row(sql.format(table), (document,)) for table in ("uncompared", "unjudged"))

    def texts_of(self, documents: Sequence[int]) -> dict[int, list[tuple[int, str]]]:
        """Return the passages of documents with their texts."""
        rows = self._database.rows_in(
            "SELECT document, key, text FROM chunks WHERE document IN ({})", documents
        )
        found: dict[int, list[tuple[int, str]]] = {document: [] for document in documents}
        for row in rows:
            found[row["document"]].append((row["key"], row["text"]))
        return found

    def passages_of(self, documents: Sequence[int]) -> dict[int, set[int]]:
        """Return the passages of documents that are boilerplate."""
        rows = self._database.rows_in(
            "SELECT document, key FROM chunks CROSS JOIN boilerplate WHERE document IN ({}) AND chunk = key",
            documents,
        )
        found: dict[int, set[int]] = {document: set() for document in documents}
        for row in rows:
            found[row["document"]].add(row["key"])
        return found

    def count(self) -> int:
        """Return how many passages are boilerplate."""
        row = self._database.row("SELECT COUNT(*) AS n FROM boilerplate")
        return 0 if row is None else int(row["n"])

    def judge(self, passages: Mapping[int, Collection[int]]) -> None:
        """Store which passages of documents are boilerplate; part of a transaction."""
        before = self.passages_of(list(passages))
        changed = {document: set(now) for document, now in passages.items() if before[document] != set(now)}
        with self._database.write() as db:
            db.executemany("DELETE FROM unjudged WHERE document = ?", [(document,) for document in passages])
            db.executemany(
                "DELETE FROM boilerplate WHERE chunk = ?",
                [(key,) for document, now in changed.items() for key in before[document] - now],
            )
            db.executemany(
                "INSERT INTO boilerplate VALUES (?)",
                [(key,) for document, now in changed.items() for key in now - before[document]],
            )
            if changed:
                self._changes.note("document", sorted(changed))  # topics follow the log

    def read_again(self, documents: Collection[int]) -> None:
        """Queue documents whose lines are to be read, and passages judged, again."""
        with self._database.write() as db:
            db.executemany(
                "INSERT INTO uncompared VALUES (?) ON CONFLICT DO NOTHING", [(key,) for key in documents]
            )
