"""Duplicate and near-duplicate documents in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.storage.sql import SQLDatabase

__all__ = ["CopyOf", "DuplicateGroup", "DuplicateReader", "DuplicateTable", "SimilarText"]


class SimilarText(NamedTuple):
    """A near-duplicate text: its key, and its similarity."""

    text: int
    likeness: float


@dataclass(frozen=True, slots=True)
class CopyOf:
    """A document that is a duplicate or near-duplicate of another one.

    Attributes:
        likeness: share of the shingles of both texts that both have; 1 for the same text.
    """

    uri: str
    likeness: float


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Documents that are duplicates or near-duplicates of one another.

    Attributes:
        documents: id and URI of each, oldest first.
        likeness: lowest similarity of two directly linked texts; 1 if all texts are the same.
    """

    documents: tuple[tuple[str, str], ...]
    likeness: float


class DuplicateReader:
    """Reads the texts of documents, and which texts are near-duplicates."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    def pending_comparisons(self, limit: int) -> list[int]:
        """Return keys of documents whose text has yet to be compared with the others'."""
        rows = self._database.rows("SELECT document FROM uncompared ORDER BY document LIMIT ?", (limit,))
        return [row["document"] for row in rows]

    def text_with(self, hash_: bytes) -> int | None:
        """Return the key of a stored text by its hash, or None."""
        row = self._database.row("SELECT key FROM texts WHERE hash = ?", (hash_,))
        return None if row is None else int(row["key"])

    def candidates(self, bands: Sequence[int], *, limit: int) -> list[int]:
        """Return the texts that share some bands, those with most of them first."""
        marks = ",".join("?" * len(bands))
        rows = self._database.rows(
            f"SELECT text FROM bands WHERE band IN ({marks}) GROUP BY text "
            "ORDER BY COUNT(*) DESC, text LIMIT ?",
            (*bands, limit),
        )
        return [row["text"] for row in rows]

    def documents_with(self, text: int, *, limit: int = 8) -> tuple[bytes, list[int]]:
        """Return the hash of a text, and the keys of documents compared with this text, oldest first."""
        rows = self._database.rows(
            "SELECT t.hash, c.document FROM texts AS t JOIN copies AS c ON c.text = t.key WHERE t.key = ? "
            "ORDER BY c.document LIMIT ?",
            (text, limit),
        )
        return (rows[0]["hash"] if rows else b""), [row["document"] for row in rows]

    def of(self, document: int, *, limit: int = 3) -> list[CopyOf]:
        """Return the duplicates and near-duplicates of a document, nearest first, then oldest."""
        rows = self._database.rows(
            "WITH mine AS (SELECT text FROM copies WHERE document = ?1), near (text, likeness) AS ("
            "SELECT text, 1.0 FROM mine "
            "UNION ALL SELECT other, likeness FROM likenesses WHERE text IN (SELECT text FROM mine) "
            "UNION ALL SELECT text, likeness FROM likenesses WHERE other IN (SELECT text FROM mine)) "
            "SELECT d.uri, near.likeness FROM near JOIN copies AS c ON c.text = near.text "
            "JOIN documents AS d ON d.key = c.document WHERE d.key != ?1 "
            "ORDER BY near.likeness DESC, d.key LIMIT ?2",
            (document, limit),
        )
        return [CopyOf(row["uri"], row["likeness"]) for row in rows]

    def groups(self) -> list[DuplicateGroup]:
        """Return all groups of duplicate or near-duplicate documents, the largest first."""
        likenesses = self._database.rows("SELECT text, other, likeness FROM likenesses ORDER BY text, other")
        rows = self._database.rows(
            "SELECT c.text, d.id, d.uri FROM copies AS c JOIN documents AS d ON d.key = c.document "
            "WHERE c.text IN (SELECT text FROM copies GROUP BY text HAVING COUNT(*) > 1 "
            "UNION SELECT text FROM likenesses UNION SELECT other FROM likenesses) ORDER BY d.key"
        )
        roots = _find_components([(row["text"], row["other"]) for row in likenesses])
        documents: dict[int, list[tuple[str, str]]] = {}
        for row in rows:
            text: int = row["text"]
            documents.setdefault(roots.get(text, text), []).append((row["id"], row["uri"]))
        lowest: dict[int, float] = {}
        for row in likenesses:
            root = roots[row["text"]]
            lowest[root] = min(lowest.get(root, 1.0), row["likeness"])
        groups = [DuplicateGroup(tuple(each), lowest.get(root, 1.0)) for root, each in documents.items()]
        return sorted(groups, key=lambda group: -len(group.documents))

    def count(self) -> int:
        """Return how many documents have a duplicate or near-duplicate."""
        row = self._database.row(
            "SELECT COUNT(*) AS n FROM copies WHERE text IN (SELECT text FROM copies GROUP BY text "
            "HAVING COUNT(*) > 1 UNION SELECT text FROM likenesses UNION SELECT other FROM likenesses)"
        )
        return 0 if row is None else int(row["n"])


class DuplicateTable(DuplicateReader):
    """The texts of documents, and which texts are near-duplicates.

    Triggers delete the rows of a text when the last document with it is removed or changed.
    """

    def upsert(
        self, document: int, hash_: bytes, *, bands: Sequence[int] = (), alike: Iterable[SimilarText] = ()
    ) -> None:
        """Store the text of a document and its near-duplicates; part of a transaction.

        Args:
            document: its key; a deleted one is ignored.
            hash_: hash of its normalised text.
            bands: LSH bands of the text, used if it is new.
            alike: near-duplicates of the text, used if it is new.
        """
        with self._database.write() as db:
            if db.execute("DELETE FROM uncompared WHERE document = ?", (document,)).rowcount == 0:
                return
            text = self.text_with(hash_)
            if text is None:
                sql = "INSERT INTO texts (hash) VALUES (?) RETURNING key"
                text = int(db.execute(sql, (hash_,)).fetchone()[0])
                db.executemany(
                    "INSERT INTO bands (band, text) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    [(band, text) for band in bands],
                )
                db.executemany(
                    "INSERT INTO likenesses (text, other, likeness) VALUES (?, ?, ?) "
                    "ON CONFLICT (text, other) DO UPDATE SET likeness = excluded.likeness",
                    [(min(text, other), max(text, other), likeness) for other, likeness in alike],
                )
            db.execute(
                "INSERT INTO copies (document, text) VALUES (?, ?) "
                "ON CONFLICT (document) DO UPDATE SET text = excluded.text",
                (document, text),
            )


def _find_components(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Map each element of the pairs to the first one of its connected component."""
    parents: dict[int, int] = {}

    def root(thing: int) -> int:
        parents.setdefault(thing, thing)
        while parents[thing] != thing:
            parents[thing] = thing = parents[parents[thing]]
        return thing

    for one, other in pairs:
        a, b = sorted((root(one), root(other)))
        parents[b] = a
    return {thing: root(thing) for thing in list(parents)}
