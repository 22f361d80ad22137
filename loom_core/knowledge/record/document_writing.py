"""Writing documents into the record, many with few statements."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loom_core.knowledge.record.changes import ChangeLog
    from loom_core.knowledge.record.graph import GraphTable
    from loom_core.knowledge.record.prepared import PreparedChunk, PreparedDocument
    from loom_core.storage import Database

__all__ = ["DocumentWriter", "Outcome"]

Outcome = Literal["added", "updated", "unchanged"]

_Placed = tuple[int, int, "PreparedChunk"]  # key of the document, place in it, chunk


class DocumentWriter:
    """Puts documents and takes them out, with all that hangs on them.

    Keys are given here rather than by SQLite, in the order of the documents, so that all rows of a table
    go in at once.
    """

    def __init__(self, database: Database, graph: GraphTable, changes: ChangeLog) -> None:
        self._database = database
        self._graph = graph
        self._changes = changes

    def put(self, documents: Sequence[PreparedDocument]) -> list[Outcome]:
        """Add documents, or make those with their URIs equal to them.

        Chunks that did not change keep their keys, vectors, mentions and place in the indexes.

        Returns:
            What became of each, in order.
        """
        with self._database.write() as db:
            return [outcome for part in _apart(documents) for outcome in self._put(db, part)]

    def remove(self, keys: Sequence[int]) -> None:
        """Remove documents with everything that only they support; an unknown key is no error."""
        with self._database.write() as db:
            rows = self._database.rows_in("SELECT key FROM chunks WHERE document IN ({})", keys)
            self._drop_vectors(db, self._remove_chunks(db, [row["key"] for row in rows]))
            db.executemany("DELETE FROM documents WHERE key = ?", [(key,) for key in keys])

    def remove_chunks(self, document: int) -> None:
        """Take a document's chunks out, and have it count as changed whatever is put for it next."""
        with self._database.write() as db:
            rows = db.execute("SELECT key FROM chunks WHERE document = ?", (document,)).fetchall()
            self._drop_vectors(db, self._remove_chunks(db, [row["key"] for row in rows]))
            db.execute("UPDATE documents SET hash = x'' WHERE key = ?", (document,))

    def _put(self, db: sqlite3.Connection, documents: Sequence[PreparedDocument]) -> list[Outcome]:
        """Put documents that all have different URIs."""
        sql = "SELECT uri, key, hash FROM documents WHERE uri IN ({})"
        there = {row["uri"]: row for row in self._database.rows_in(sql, [d.uri for d in documents])}
        added = [document for document in documents if document.uri not in there]
        updated = {
            there[document.uri]["key"]: document
            for document in documents
            if document.uri in there and there[document.uri]["hash"] != document.hash
        }
        fresh, left = self._update(db, updated)
        fresh += self._add(db, added)
        self._add_chunks(db, fresh)
        # Only now: a text that left one document may have come with another.
        self._drop_vectors(db, left)
        outcomes: dict[str, Outcome] = dict.fromkeys(there, "unchanged")
        outcomes |= dict.fromkeys((document.uri for document in added), "added")
        outcomes |= dict.fromkeys((document.uri for document in updated.values()), "updated")
        return [outcomes[document.uri] for document in documents]

    def _add(self, db: sqlite3.Connection, documents: Sequence[PreparedDocument]) -> list[_Placed]:
        """Write new documents; the chunks are still to be written."""
        now = time.time()
        keyed = list(enumerate(documents, start=self._next_key("documents")))
        db.executemany(
            "INSERT INTO documents (title, title_source, mime, language, text, length, hash, metadata, "
            "blocks, updated_at, added_at, id, uri, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*_values(document), now, now, document.id, document.uri, key) for key, document in keyed],
        )
        _add_fields(db, keyed)
        return [(key, n, chunk) for key, document in keyed for n, chunk in enumerate(document.chunks)]

    def _update(
        self, db: sqlite3.Connection, documents: Mapping[int, PreparedDocument]
    ) -> tuple[list[_Placed], set[bytes]]:
        """Write what is new of documents that are there, and take out what is gone.

        Returns:
            The chunks still to be written, and the hashes of the vectors that may have to go.
        """
        if not documents:
            return [], set()
        now = time.time()
        db.executemany(
            "UPDATE documents SET title = ?, title_source = ?, mime = ?, language = ?, text = ?, "
            "length = ?, hash = ?, metadata = ?, blocks = ?, updated_at = ? WHERE key = ?",
            [(*_values(document), now, key) for key, document in documents.items()],
        )
        db.executemany("DELETE FROM fields WHERE document = ?", [(key,) for key in documents])
        _add_fields(db, documents.items())
        self._changes.note("document", documents)
        there: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for row in self._database.rows_in(
            "SELECT document, key, hash FROM chunks WHERE document IN ({}) ORDER BY ordinal DESC",
            list(documents),
        ):
            there[row["document"], row["hash"]].append(row["key"])
        kept: list[tuple[Any, ...]] = []
        fresh: list[_Placed] = []
        for document, prepared in documents.items():
            for ordinal, chunk in enumerate(prepared.chunks):
                if keys := there.get((document, chunk.hash)):
                    c = chunk.chunk
                    kept.append((ordinal, c.start, c.end, c.page, chunk.id, keys.pop()))
                else:
                    fresh.append((document, ordinal, chunk))
        left = self._remove_chunks(db, sorted(key for keys in there.values() for key in keys))
        db.executemany(
            "UPDATE chunks SET ordinal = ?, start = ?, end = ?, page = ?, id = ? WHERE key = ?", kept
        )
        return fresh, left

    def _add_chunks(self, db: sqlite3.Connection, chunks: Sequence[_Placed]) -> None:
        if not chunks:
            return
        keyed = list(enumerate(chunks, start=self._next_key("chunks")))
        db.executemany(
            "INSERT INTO chunks (key, document, ordinal, id, start, end, page, kind, name, heading_path, "
            "language, keywords, hash, vector_hash, text) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_chunk_values(key, document, ordinal, chunk) for key, (document, ordinal, chunk) in keyed],
        )
        regrouped = self._graph.add_columns([(key, chunk.found) for key, (_, _, chunk) in keyed])
        keys = [key for key, _ in keyed]
        self._changes.note("chunk+", keys)
        self._changes.note("entity", sorted(regrouped))
        # A vector may be there already, from the same text elsewhere or before.
        rows = self._database.rows_in(
            "SELECT key FROM chunks WHERE key IN ({}) AND EXISTS "
            "(SELECT 1 FROM vectors WHERE hash = vector_hash)",
            keys,
        )
        self._changes.note("vector+", [row["key"] for row in rows])

    def _remove_chunks(self, db: sqlite3.Connection, keys: Sequence[int]) -> set[bytes]:
        """Take chunks out.

        Returns:
            The hashes of their vectors.
        """
        if not keys:
            return set()
        touched = self._graph.remove(keys)
        rows = self._database.rows_in("SELECT DISTINCT vector_hash FROM chunks WHERE key IN ({})", keys)
        db.executemany("DELETE FROM chunks WHERE key = ?", [(key,) for key in keys])
        self._changes.note("chunk-", keys)
        self._changes.note("entity", sorted(touched))
        return {row["vector_hash"] for row in rows}

    def _drop_vectors(self, db: sqlite3.Connection, hashes: Iterable[bytes]) -> None:
        """Drop those of the vectors that no chunk has any more."""
        db.executemany(
            "DELETE FROM vectors WHERE hash = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_hash = ?1)",
            [(hash_,) for hash_ in hashes],
        )

    def _next_key(self, table: Literal["documents", "chunks"]) -> int:
        """The key that SQLite would give next; nobody else gives one until the transaction ends."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return 1 if row is None else int(row["seq"]) + 1


def _apart(documents: Sequence[PreparedDocument]) -> Iterator[list[PreparedDocument]]:
    """The documents in order, in parts in which no URI is there twice."""
    part: dict[str, PreparedDocument] = {}
    for document in documents:
        if document.uri in part:
            yield list(part.values())
            part = {}
        part[document.uri] = document
    yield list(part.values())


def _values(document: PreparedDocument) -> tuple[Any, ...]:
    return (
        document.title,
        document.title_source,
        document.mime,
        document.language,
        document.text,
        document.length,
        document.hash,
        document.metadata,
        document.blocks,
    )


def _chunk_values(key: int, document: int, ordinal: int, prepared: PreparedChunk) -> tuple[Any, ...]:
    c = prepared.chunk
    return (
        key,
        document,
        ordinal,
        prepared.id,
        c.start,
        c.end,
        c.page,
        c.kind,
        c.name,
        json.dumps(c.heading_path, ensure_ascii=False) if c.heading_path else "[]",
        c.language,
        json.dumps(c.keywords, ensure_ascii=False) if c.keywords else "[]",
        prepared.hash,
        prepared.vector_hash,
        c.text,
    )


def _add_fields(db: sqlite3.Connection, documents: Iterable[tuple[int, PreparedDocument]]) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO fields (document, name, value, number, local, instant) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [(key, *row) for key, document in documents for row in document.fields],
    )
