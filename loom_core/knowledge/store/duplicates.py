"""Duplicate and near-duplicate documents in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

    def texts_with(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Return the keys of stored texts by their hashes; others are left out."""
        rows = self._database.rows_in("SELECT hash, key FROM texts WHERE hash IN ({})", hashes)
        return {bytes(row["hash"]): row["key"] for row in rows}

    def were_compared(self, documents: Sequence[int]) -> set[int]:
        """Return those of some documents that were compared with others before, with this text or another."""
        rows = self._database.rows_in("SELECT document FROM copies WHERE document IN ({})", documents)
        return {row["document"] for row in rows}

    def candidates(self, texts: Mapping[int, Sequence[int]], *, limit: int) -> dict[int, list[int]]:
        """Return the earlier texts that share some bands with others, those with most of them first.

        Args:
            texts: bands of each of the others.
            limit: maximum number for each.
        """
        found: dict[int, list[int]] = {}
        for size in {len(bands) for bands in texts.values()} - {0}:
            keys = [text for text, bands in texts.items() if len(bands) == size]
            sql = (
                f"SELECT text FROM bands WHERE band IN ({','.join('?' * size)}) AND text < ? GROUP BY text "
                "ORDER BY COUNT(*) DESC, text LIMIT ?"
            )
            rows = self._database.rows_each(sql, [(*texts[key], key, limit) for key in keys])
            found |= {key: [row["text"] for row in each] for key, each in zip(keys, rows, strict=True)}
        return found

    def documents_with(self, text: int, *, limit: int = 8) -> tuple[bytes, list[int]]:
        """Return the hash of a text, and the keys of documents compared with this text, oldest first."""
        rows = self._database.rows(
            "SELECT t.hash, c.document FROM texts AS t JOIN copies AS c ON c.text = t.key WHERE t.key = ? "
            "ORDER BY c.document LIMIT ?",
            (text, limit),
        )
        return (rows[0]["hash"] if rows else b""), [row["document"] for row in rows]

    def of(self, documents: Sequence[int], *, limit: int = 3) -> dict[int, list[CopyOf]]:
        """Return the duplicates and near-duplicates of documents, nearest first, then oldest."""
        rows = self._database.rows_each(
            "WITH mine AS (SELECT text FROM copies WHERE document = ?1), near (text, likeness) AS ("
            "SELECT text, 1.0 FROM mine "
            "UNION ALL SELECT other, likeness FROM likenesses WHERE text IN (SELECT text FROM mine) "
            "UNION ALL SELECT text, likeness FROM likenesses WHERE other IN (SELECT text FROM mine)) "
            "SELECT d.uri, near.likeness FROM near JOIN copies AS c ON c.text = near.text "
            "JOIN documents AS d ON d.key = c.document WHERE d.key != ?1 "
            "ORDER BY near.likeness DESC, d.key LIMIT ?2",
            [(document, limit) for document in documents],
        )
        return {
            document: [CopyOf(row["uri"], row["likeness"]) for row in found]
            for document, found in zip(documents, rows, strict=True)
        }

    def groups_among(self, documents: Sequence[str]) -> dict[str, int]:
        """Return the group of each of some documents, by id: duplicates and near-duplicates have the same."""
        rows = self._database.rows_in(
            "SELECT d.id, c.text FROM documents AS d JOIN copies AS c ON c.document = d.key "
            "WHERE d.id IN ({})",
            documents,
        )
        texts: dict[str, int] = {row["id"]: row["text"] for row in rows}
        among = set(texts.values())
        likenesses = self._database.rows_in(
            "SELECT text, other FROM likenesses WHERE text IN ({})", sorted(among)
        )
        roots = _find_components([(row["text"], row["other"]) for row in likenesses if row["other"] in among])
        return {document: roots.get(text, text) for document, text in texts.items()}

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

    def upsert(self, texts: Mapping[int, bytes], bands: Mapping[bytes, Sequence[int]]) -> dict[bytes, int]:
        """Store the texts of documents; part of a transaction.

        Args:
            texts: hash of the normalised text by document; one that is not pending is ignored. Of several
                documents, none was compared before, or storing one could delete the text of another.
            bands: LSH bands of the texts, used if they are new.

        Returns:
            The keys of new texts by hash, to be compared with the `candidates`.
        """
        with self._database.write() as db:
            rows = self._database.rows_in(
                "SELECT document FROM uncompared WHERE document IN ({})", list(texts)
            )
            pending = sorted(row["document"] for row in rows)
            db.executemany("DELETE FROM uncompared WHERE document = ?", [(key,) for key in pending])
            hashes = list(dict.fromkeys(texts[document] for document in pending))
            known = self.texts_with(hashes)
            db.executemany(
                "INSERT INTO texts (hash) VALUES (?)", [(each,) for each in hashes if each not in known]
            )
            new = self.texts_with([each for each in hashes if each not in known])
            db.executemany(
                "INSERT INTO bands (band, text) VALUES (?, ?)",
                [(band, text) for hash_, text in new.items() for band in set(bands.get(hash_, ()))],
            )
            known |= new
            db.executemany(
                "INSERT INTO copies (document, text) VALUES (?, ?) "
                "ON CONFLICT (document) DO UPDATE SET text = excluded.text",
                [(document, known[texts[document]]) for document in pending],
            )
            return new

    def note_similar(self, alike: Mapping[int, Sequence[SimilarText]]) -> None:
        """Store the near-duplicates of new texts; part of a transaction."""
        rows = [
            (min(text, other), max(text, other), likeness)
            for text, others in alike.items()
            for other, likeness in others
        ]
        with self._database.write() as db:
            db.executemany("INSERT INTO likenesses (text, other, likeness) VALUES (?, ?, ?)", rows)


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
