"""Documents and chunks in the record."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.chunk_keys import ChunkKeys
from loom_core.knowledge.record.document_writing import DocumentWriter
from loom_core.knowledge.record.fields import FIELD_NAMES, chunks_where

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from loom_core.knowledge.filters import Filters
    from loom_core.knowledge.record.changes import ChangeLog
    from loom_core.knowledge.record.document_writing import Outcome
    from loom_core.knowledge.record.graph import GraphTable
    from loom_core.knowledge.record.prepared import PreparedChunk, PreparedDocument
    from loom_core.storage import Database

__all__ = ["ChunkRow", "DocumentRow", "DocumentTable"]


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
        self._writer = DocumentWriter(database, graph, changes)

    def put(self, document: PreparedDocument) -> Outcome:
        """Add a document, or make the one with its URI equal to it; see `put_all`."""
        return self.put_all([document])[0]

    def put_all(self, documents: Sequence[PreparedDocument]) -> list[Outcome]:
        """Add documents, or make those with their URIs equal to them, with few statements for all.

        Chunks that did not change keep their keys, vectors, mentions and place in the indexes.

        Returns:
            What became of each, in order.
        """
        return self._writer.put(documents)

    def remove(self, key: int) -> None:
        """Remove a document with everything that only it supports; an unknown key is no error."""
        self._writer.remove([key])

    def remove_chunks(self, key: int) -> None:
        """Take a document's chunks out, and have it count as changed whatever is put for it next."""
        self._writer.remove_chunks(key)

    def same_chunks(self, chunks: Sequence[PreparedChunk]) -> set[str]:
        """Ids of those of some chunks that are there already, just as they are."""
        hashes = {chunk.id: chunk.hash for chunk in chunks}
        rows = self._database.rows_in("SELECT id, hash FROM chunks WHERE id IN ({})", list(hashes))
        return {row["id"] for row in rows if row["hash"] == hashes[row["id"]]}

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

    def readings(self, keys: Sequence[int]) -> dict[int, str]:
        """Texts of chunks by key, each below its title and headings; those that are gone are left out."""
        return {
            key: "\n".join([chunk.title, *chunk.heading_path, chunk.text])
            for key, chunk in self.chunks(keys).items()
        }

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

    def existing(self, keys: Sequence[int]) -> list[int]:
        """Those of the chunks that are there."""
        rows = self._database.rows_in("SELECT key FROM chunks WHERE key IN ({})", keys)
        return [row["key"] for row in rows]

    def keys_after(self, key: int) -> dict[str, int]:
        """Keys of the chunks that are newer than a key, by id."""
        rows = self._database.rows("SELECT id, key FROM chunks WHERE key > ?", (key,))
        return {row["id"]: row["key"] for row in rows}

    def hashes(self, uris: Sequence[str]) -> dict[str, bytes]:
        """Hashes of the documents at some URIs, by URI; those that are not there are left out."""
        rows = self._database.rows_in("SELECT uri, hash FROM documents WHERE uri IN ({})", uris)
        return {row["uri"]: row["hash"] for row in rows}

    def last_chunk(self) -> int:
        """Key of the newest chunk there ever was."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'")
        return 0 if row is None else int(row["seq"])

    def chunk_keys_where(self, filters: Filters) -> ChunkKeys:
        """Chunks of the documents that fulfil filters; all chunks where there are none."""
        sql, parameters = chunks_where(filters)
        with self._database.read() as db:
            cursor = db.cursor()
            cursor.row_factory = None  # plain tuples: there may be very many
            return ChunkKeys(key for (key,) in cursor.execute(sql, parameters))

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
