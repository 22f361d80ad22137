"""Documents and chunks in the record."""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loom_core.knowledge.record.fields import FIELD_NAMES, chunks_where, field_rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from loom_core.knowledge.filters import Filters
    from loom_core.knowledge.model import Chunk, DocumentDraft, Extraction
    from loom_core.knowledge.record.changes import ChangeLog
    from loom_core.knowledge.record.graph import GraphTable
    from loom_core.storage import Database

__all__ = ["ChunkRow", "DocumentRow", "DocumentTable", "Outcome", "PreparedChunk", "PreparedDocument"]

Outcome = Literal["added", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk ready to be written.

    Attributes:
        id: public id, unique in the knowledge base.
        hash: of all that is indexed of the chunk; a chunk with the same hash is the same chunk.
        vector_hash: of the text that is embedded.
    """

    id: str
    chunk: Chunk
    extraction: Extraction
    hash: bytes
    vector_hash: bytes


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be written: all thinking is done, only the transaction is left.

    Attributes:
        id: public id, a function of the URI.
        hash: of the document and of the pipeline's settings; the same hash means nothing to do.
    """

    id: str
    draft: DocumentDraft
    language: str
    hash: bytes
    chunks: tuple[PreparedChunk, ...]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as the record holds it, without its text."""

    key: int
    id: str
    uri: str
    title: str
    title_source: str
    mime: str
    language: str
    length: int
    metadata: dict[str, Any]
    added_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk as the record holds it, with what its document says of it."""

    key: int
    id: str
    document: int
    document_id: str
    uri: str
    title: str
    ordinal: int
    start: int
    end: int
    page: int | None
    kind: str
    name: str
    heading_path: tuple[str, ...]
    language: str
    keywords: tuple[str, ...]
    text: str


_DOCUMENT = "key, id, uri, title, title_source, mime, language, length, metadata, added_at, updated_at"
_CHUNK = (
    "SELECT c.key, c.id, c.document, d.id AS document_id, d.uri, d.title, c.ordinal, c.start, c.end, c.page, "
    "c.kind, c.name, c.heading_path, c.language, c.keywords, c.text "
    "FROM chunks AS c JOIN documents AS d ON d.key = c.document "
)


class DocumentTable:
    """Documents, their chunks, and the fields that filters look at."""

    def __init__(self, database: Database, graph: GraphTable, changes: ChangeLog) -> None:
        self._database = database
        self._graph = graph
        self._changes = changes

    def put(self, document: PreparedDocument) -> Outcome:
        """Add a document, or make the one with its URI equal to it.

        Chunks that did not change keep their keys, vectors, mentions and place in the indexes.
        """
        with self._database.write() as db:
            old = db.execute(
                "SELECT key, hash FROM documents WHERE uri = ?", (document.draft.uri,)
            ).fetchone()
            if old is not None and old["hash"] == document.hash:
                return "unchanged"
            key = self._put_row(db, document, None if old is None else old["key"])
            self._put_chunks(db, key, document.chunks)
            return "added" if old is None else "updated"

    def remove(self, key: int) -> None:
        """Remove a document with everything that only it supports; an unknown key is no error."""
        with self._database.write() as db:
            chunks = [row["key"] for row in db.execute("SELECT key FROM chunks WHERE document = ?", (key,))]
            self._remove_chunks(db, chunks)
            db.execute("DELETE FROM documents WHERE key = ?", (key,))

    def is_current(self, uri: str, hash_: bytes) -> bool:
        """Whether a document is there with exactly this content."""
        row = self._database.row("SELECT 1 FROM documents WHERE uri = ? AND hash = ?", (uri, hash_))
        return row is not None

    def get(self, id_or_uri: str) -> DocumentRow | None:
        """A document by its id or its URI."""
        given = _encodable(id_or_uri)
        row = self._database.row(f"SELECT {_DOCUMENT} FROM documents WHERE id = ? OR uri = ?", (given, given))
        return None if row is None else _document(row)

    def by_key(self, keys: Sequence[int]) -> dict[int, DocumentRow]:
        """Documents by key; those that are gone are left out."""
        rows = self._database.rows_in(f"SELECT {_DOCUMENT} FROM documents WHERE key IN ({{}})", keys)
        return {row["key"]: _document(row) for row in rows}

    def list(self, *, after: int = 0, limit: int = 50, uri_prefix: str = "") -> list[DocumentRow]:
        """Documents in the order they were added, after a key, whose URI begins with a prefix."""
        rows = self._database.rows(
            f"SELECT {_DOCUMENT} FROM documents WHERE key > ? AND substr(uri, 1, ?) = ? ORDER BY key LIMIT ?",
            (after, len(uri_prefix), uri_prefix, limit),
        )
        return [_document(row) for row in rows]

    def text(self, key: int) -> str:
        """The whole text of a document, or an empty one if it is gone."""
        row = self._database.row("SELECT text FROM documents WHERE key = ?", (key,))
        return "" if row is None else zlib.decompress(row["text"]).decode()

    def chunks(self, keys: Sequence[int]) -> dict[int, ChunkRow]:
        """Chunks by key; those that are gone are left out."""
        rows = self._database.rows_in(_CHUNK + "WHERE c.key IN ({})", keys)
        return {row["key"]: _chunk(row) for row in rows}

    def chunk(self, id_: str) -> ChunkRow | None:
        """A chunk by its public id."""
        row = self._database.row(_CHUNK + "WHERE c.id = ?", (_encodable(id_),))
        return None if row is None else _chunk(row)

    def chunks_of(self, document: int) -> list[ChunkRow]:
        """Chunks of a document in order."""
        return [
            _chunk(row)
            for row in self._database.rows(_CHUNK + "WHERE c.document = ? ORDER BY c.ordinal", (document,))
        ]

    def chunk_keys(self, *, after: int = 0, limit: int = 1000) -> list[int]:
        """Keys of chunks, ascending."""
        rows = self._database.rows(
            "SELECT key FROM chunks WHERE key > ? ORDER BY key LIMIT ?", (after, limit)
        )
        return [row["key"] for row in rows]

    def last_chunk(self) -> int:
        """Key of the newest chunk there ever was."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'")
        return 0 if row is None else int(row["seq"])

    def chunk_keys_where(self, filters: Filters) -> frozenset[int]:
        """Chunks of the documents that fulfil filters; all chunks where there are none."""
        sql, parameters = chunks_where(filters)
        with self._database.read() as db:
            cursor = db.cursor()
            cursor.row_factory = None  # plain tuples: there may be very many
            return frozenset(key for (key,) in cursor.execute(sql, parameters))

    def field_names(self) -> list[str]:
        """Names that the documents' fields have, sorted."""
        rows = self._database.rows(FIELD_NAMES)
        return [row["name"] for row in rows]

    def counts(self) -> tuple[int, int, int]:
        """How many documents, chunks and characters there are."""
        row = self._database.row(
            "SELECT (SELECT COUNT(*) FROM documents), (SELECT COUNT(*) FROM chunks), "
            "(SELECT COALESCE(SUM(length), 0) FROM documents)"
        )
        return (0, 0, 0) if row is None else (row[0], row[1], row[2])

    def languages(self) -> dict[str, int]:
        """How many chunks there are in each language, most first."""
        rows = self._database.rows(
            "SELECT language, COUNT(*) AS n FROM chunks GROUP BY language ORDER BY n DESC, language"
        )
        return {row["language"]: row["n"] for row in rows}

    def languages_of(self, keys: Sequence[int]) -> dict[int, str]:
        """Language of chunks by key; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, language FROM chunks WHERE key IN ({})", keys)
        return {row["key"]: row["language"] for row in rows}

    def _put_row(self, db: sqlite3.Connection, document: PreparedDocument, key: int | None) -> int:
        draft, now = document.draft, time.time()
        values = (
            draft.title,
            draft.title_source,
            draft.mime,
            document.language,
            zlib.compress(draft.text.encode(), 1),
            len(draft.text),
            document.hash,
            json.dumps(draft.metadata, ensure_ascii=False, sort_keys=True, default=str),
            now,
        )
        if key is None:
            cursor = db.execute(
                "INSERT INTO documents (title, title_source, mime, language, text, length, hash, metadata, "
                "updated_at, added_at, id, uri) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
                (*values, now, document.id, draft.uri),
            )
            key = int(cursor.fetchone()["key"])
        else:
            db.execute(
                "UPDATE documents SET title = ?, title_source = ?, mime = ?, language = ?, text = ?, "
                "length = ?, hash = ?, metadata = ?, updated_at = ? WHERE key = ?",
                (*values, key),
            )
            db.execute("DELETE FROM fields WHERE document = ?", (key,))
            self._changes.note("document", [key])
        db.executemany(
            "INSERT OR IGNORE INTO fields (document, name, value, number, local, instant) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [(key, *row) for row in field_rows(draft, language=document.language)],
        )
        return key

    def _put_chunks(self, db: sqlite3.Connection, document: int, chunks: Sequence[PreparedChunk]) -> None:
        there: dict[bytes, list[int]] = defaultdict(list)
        for row in db.execute(
            "SELECT key, hash FROM chunks WHERE document = ? ORDER BY ordinal DESC", (document,)
        ):
            there[row["hash"]].append(row["key"])
        kept: list[tuple[int, PreparedChunk, int]] = []
        fresh: list[tuple[int, PreparedChunk]] = []
        for ordinal, prepared in enumerate(chunks):
            if there.get(prepared.hash):
                kept.append((ordinal, prepared, there[prepared.hash].pop()))
            else:
                fresh.append((ordinal, prepared))
        self._remove_chunks(db, sorted(key for keys in there.values() for key in keys))
        for ordinal, prepared, key in kept:
            c = prepared.chunk
            db.execute(
                "UPDATE chunks SET ordinal = ?, start = ?, end = ?, page = ?, id = ? WHERE key = ?",
                (ordinal, c.start, c.end, c.page, prepared.id, key),
            )
        keys = [self._insert_chunk(db, document, ordinal, prepared) for ordinal, prepared in fresh]
        touched = self._graph.add([(key, p.extraction) for key, (_, p) in zip(keys, fresh, strict=True)])
        self._changes.note("chunk+", keys)
        self._changes.note("entity", sorted(touched))
        # A vector may be there already, from the same text elsewhere or before.
        rows = self._database.rows_in(
            "SELECT key FROM chunks WHERE key IN ({}) AND EXISTS "
            "(SELECT 1 FROM vectors WHERE hash = vector_hash)",
            keys,
        )
        self._changes.note("vector+", [row["key"] for row in rows])

    def _insert_chunk(
        self, db: sqlite3.Connection, document: int, ordinal: int, prepared: PreparedChunk
    ) -> int:
        c = prepared.chunk
        cursor = db.execute(
            "INSERT INTO chunks (id, document, ordinal, start, end, page, kind, name, heading_path, "
            "language, keywords, hash, vector_hash, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                prepared.id,
                document,
                ordinal,
                c.start,
                c.end,
                c.page,
                c.kind,
                c.name,
                json.dumps(c.heading_path, ensure_ascii=False),
                c.language,
                json.dumps(c.keywords, ensure_ascii=False),
                prepared.hash,
                prepared.vector_hash,
                c.text,
            ),
        )
        return int(cursor.lastrowid or 0)

    def _remove_chunks(self, db: sqlite3.Connection, keys: Sequence[int]) -> None:
        if not keys:
            return
        touched = self._graph.remove(keys)
        rows = self._database.rows_in("SELECT DISTINCT vector_hash FROM chunks WHERE key IN ({})", keys)
        db.executemany("DELETE FROM chunks WHERE key = ?", [(key,) for key in keys])
        db.executemany(
            "DELETE FROM vectors WHERE hash = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_hash = ?1)",
            [(row["vector_hash"],) for row in rows],
        )
        self._changes.note("chunk-", keys)
        self._changes.note("entity", sorted(touched))


def _encodable(id_: str) -> str:
    """An id without halves of surrogate pairs, which SQLite cannot take and no id holds."""
    return id_.encode("utf-8", "replace").decode()


def _document(row: sqlite3.Row) -> DocumentRow:
    values = dict(row)
    values["metadata"] = json.loads(values["metadata"])
    return DocumentRow(**values)


def _chunk(row: sqlite3.Row) -> ChunkRow:
    values = dict(row)
    values["heading_path"] = tuple(json.loads(values["heading_path"]))
    values["keywords"] = tuple(json.loads(values["keywords"]))
    return ChunkRow(**values)
