"""Documents and chunks in the store."""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loom_core.knowledge.store.chunk_keys import ChunkKeys
from loom_core.knowledge.store.fields import FIELD_NAMES, chunks_where
from loom_core.knowledge.text.control_characters import UNSTORABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loom_core.knowledge.filters import Filters
    from loom_core.knowledge.store.changes import ChangeLog
    from loom_core.knowledge.store.graph import GraphTable
    from loom_core.knowledge.store.prepared_documents import PreparedChunk, PreparedDocument
    from loom_core.storage.sql import SQLConnection, SQLDatabase, SQLRow

__all__ = ["ChunkRow", "DocumentReader", "DocumentRow", "DocumentTable", "DocumentWriter", "UpsertOutcome"]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as the store holds it, without its text."""

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
    """A chunk as the store holds it, with its document's id, URI, title and metadata."""

    key: int
    id: str
    document: int
    document_id: str
    uri: str
    title: str
    metadata: dict[str, Any]
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
    "SELECT c.key, c.id, c.document, d.id AS document_id, d.uri, d.title, d.metadata, c.ordinal, c.start, "
    'c."end", c.page, c.kind, c.name, c.heading_path, c.language, c.keywords, c.text '
    "FROM chunks AS c JOIN documents AS d ON d.key = c.document "
)


class DocumentReader:
    """Reads documents, their chunks, and the fields that filters use."""

    def __init__(self, database: SQLDatabase) -> None:
        self._database = database

    def same_chunks(self, chunks: Sequence[PreparedChunk]) -> set[str]:
        """Return the ids of the chunks that are already stored with the same hash."""
        hashes = {chunk.id: chunk.hash for chunk in chunks}
        rows = self._database.rows_in("SELECT id, hash FROM chunks WHERE id IN ({})", list(hashes))
        return {row["id"] for row in rows if row["hash"] == hashes[row["id"]]}

    def is_current(self, uri: str, hash_: bytes) -> bool:
        """Whether a document is stored with exactly this content."""
        row = self._database.row("SELECT 1 FROM documents WHERE uri = ? AND hash = ?", (uri, hash_))
        return row is not None

    def get(self, id_or_uri: str) -> DocumentRow | None:
        """Return a document by its id or its URI."""
        given = _encodable(id_or_uri)
        row = self._database.row(f"SELECT {_DOCUMENT} FROM documents WHERE id = ? OR uri = ?", (given, given))
        return None if row is None else _document(row)

    def by_key(self, keys: Sequence[int]) -> dict[int, DocumentRow]:
        """Return documents by key; those that are gone are left out."""
        rows = self._database.rows_in(f"SELECT {_DOCUMENT} FROM documents WHERE key IN ({{}})", keys)
        return {row["key"]: _document(row) for row in rows}

    def list(self, *, after: int = 0, limit: int = 50, uri_prefix: str = "") -> list[DocumentRow]:
        """Return documents in the order they were added, after a key, whose URI begins with a prefix."""
        rows = self._database.rows(
            f"SELECT {_DOCUMENT} FROM documents WHERE key > ? AND substr(uri, 1, ?) = ? ORDER BY key LIMIT ?",
            (after, len(uri_prefix), _encodable(uri_prefix), limit),
        )
        return [_document(row) for row in rows]

    def text(self, key: int) -> str:
        """Return the whole text of a document, or an empty one if it is gone."""
        row = self._database.row("SELECT text FROM documents WHERE key = ?", (key,))
        return "" if row is None else zlib.decompress(row["text"]).decode()

    def texts(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the whole texts of documents by key; deleted ones are left out."""
        rows = self._database.rows_in("SELECT key, text FROM documents WHERE key IN ({})", keys)
        return {row["key"]: zlib.decompress(row["text"]).decode() for row in rows}

    def texts_with_headings(self, keys: Sequence[int]) -> dict[int, str]:
        """Return texts of chunks by key, each below its title and headings; deleted ones are left out."""
        return {
            key: "\n".join([chunk.title, *chunk.heading_path, chunk.text])
            for key, chunk in self.chunks(keys).items()
        }

    def chunk_documents(self) -> list[tuple[int, int]]:
        """Return the keys of all chunks and of their documents, by chunk."""
        # In the order of the index that has both: the table is a hundred times as large, with all texts.
        rows = self._database.rows("SELECT key, document FROM chunks ORDER BY document, ordinal")
        return sorted((row[0], row[1]) for row in rows)

    def chunk_places(self, *, after: tuple[int, int], limit: int) -> list[tuple[int, int, int]]:
        """Return document, place in it and key of the next chunks after a document and a place in it."""
        rows = self._database.rows(
            "SELECT document, ordinal, key FROM chunks WHERE (document, ordinal) > (?, ?) "
            "ORDER BY document, ordinal LIMIT ?",
            (*after, limit),
        )
        return list(map(tuple, rows))

    def document_counts(self, groups: Sequence[Sequence[int]]) -> list[list[tuple[int, int]]]:
        """Return, for each group of chunks, the documents of its chunks and how many each has, most first."""
        document = dict(self.chunk_documents())
        counted = [Counter(document[key] for key in keys if key in document) for keys in groups]
        return [sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])) for counts in counted]

    def chunks(self, keys: Sequence[int]) -> dict[int, ChunkRow]:
        """Return chunks by key; those that are gone are left out."""
        rows = self._database.rows_in(_CHUNK + "WHERE c.key IN ({})", keys)
        return {row["key"]: _chunk(row) for row in rows}

    def chunk(self, id_: str) -> ChunkRow | None:
        """Return a chunk by its public id."""
        row = self._database.row(_CHUNK + "WHERE c.id = ?", (_encodable(id_),))
        return None if row is None else _chunk(row)

    def chunks_of(self, document: int) -> list[ChunkRow]:
        """Return chunks of a document in order."""
        return [
            _chunk(row)
            for row in self._database.rows(_CHUNK + "WHERE c.document = ? ORDER BY c.ordinal", (document,))
        ]

    def chunk_keys(self, *, after: int = 0, limit: int = 1000) -> list[int]:
        """Return keys of chunks, ascending."""
        rows = self._database.rows(
            "SELECT key FROM chunks WHERE key > ? ORDER BY key LIMIT ?", (after, limit)
        )
        return [row["key"] for row in rows]

    def existing(self, keys: Sequence[int]) -> list[int]:
        """Return the keys of those chunks that still exist."""
        rows = self._database.rows_in("SELECT key FROM chunks WHERE key IN ({})", keys)
        return [row["key"] for row in rows]

    def keys_after(self, key: int) -> dict[str, int]:
        """Return keys of the chunks that are newer than a key, by id."""
        rows = self._database.rows("SELECT id, key FROM chunks WHERE key > ?", (key,))
        return {row["id"]: row["key"] for row in rows}

    def hashes(self, uris: Sequence[str]) -> dict[str, bytes]:
        """Return hashes of the documents at some URIs, by URI; unknown URIs are left out."""
        rows = self._database.rows_in("SELECT uri, hash FROM documents WHERE uri IN ({})", uris)
        return {row["uri"]: row["hash"] for row in rows}

    def last_chunk(self) -> int:
        """Return the highest key a chunk ever had."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'")
        return 0 if row is None else int(row["seq"])

    def chunk_keys_where(self, filters: Filters) -> ChunkKeys:
        """Return the chunks of the documents that match filters; all chunks without filters."""
        sql, parameters = chunks_where(filters)
        row = self._database.row(sql, parameters)
        return ChunkKeys(() if row is None else json.loads(row[0]))

    def field_names(self) -> list[str]:
        """Return names that the documents' fields have, sorted."""
        rows = self._database.rows(FIELD_NAMES)
        return [row["name"] for row in rows]

    def counts(self) -> tuple[int, int, int]:
        """Return how many documents, chunks and characters there are."""
        row = self._database.row(
            "SELECT (SELECT COUNT(*) FROM documents), (SELECT COUNT(*) FROM chunks), "
            "(SELECT CAST(COALESCE(SUM(length), 0) AS BIGINT) FROM documents)"
        )
        return (0, 0, 0) if row is None else (row[0], row[1], row[2])

    def languages(self) -> dict[str, int]:
        """Return how many chunks there are in each language, most first."""
        rows = self._database.rows(
            "SELECT language, COUNT(*) AS n FROM chunks GROUP BY language ORDER BY n DESC, language"
        )
        return {row["language"]: row["n"] for row in rows}

    def languages_of(self, keys: Sequence[int]) -> dict[int, str]:
        """Return the language of chunks by key; those that are gone are left out."""
        rows = self._database.rows_in("SELECT key, language FROM chunks WHERE key IN ({})", keys)
        return {row["key"]: row["language"] for row in rows}

    def places_of(self, keys: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Return the language of chunks and the key of their document, by key; those gone are left out."""
        rows = self._database.rows_in("SELECT key, language, document FROM chunks WHERE key IN ({})", keys)
        return {row["key"]: (row["language"], row["document"]) for row in rows}

    def documents_of(self, keys: ChunkKeys) -> list[int]:
        """Return the keys of the documents that chunks belong to, sorted."""
        rows = self._database.rows_in(
            "SELECT DISTINCT document FROM chunks WHERE key IN ({})", keys.array.tolist()
        )
        return sorted({row["document"] for row in rows})


class DocumentTable(DocumentReader):
    """Reads and writes documents in the store."""

    def __init__(self, database: SQLDatabase, graph: GraphTable, changes: ChangeLog) -> None:
        super().__init__(database)
        self._writer = DocumentWriter(database, graph, changes)

    def upsert(self, document: PreparedDocument) -> UpsertOutcome:
        """Insert or update a document by its URI; see `upsert_all`."""
        return self.upsert_all([document])[0]

    def upsert_all(self, documents: Sequence[PreparedDocument]) -> list[UpsertOutcome]:
        """Insert or update documents by their URIs, with few statements for all.

        Chunks that did not change keep their keys, vectors, mentions and place in the indexes.

        Returns:
            The outcome of each, in order.
        """
        return self._writer.upsert(documents)

    def remove(self, key: int) -> None:
        """Remove a document with everything that only it supports; an unknown key is no error."""
        self._writer.remove([key])

    def remove_chunks(self, key: int) -> None:
        """Remove a document's chunks, and clear its hash so that the next upsert writes it in any case."""
        self._writer.remove_chunks(key)


def _encodable(id_: str) -> str:
    """Return an id without lone surrogates and U+0000, which no database can hold, and no id does."""
    return UNSTORABLE.sub("?", id_)


def _document(row: SQLRow) -> DocumentRow:
    values = dict(row)
    values["metadata"] = json.loads(values["metadata"])
    return DocumentRow(**values)


def _chunk(row: SQLRow) -> ChunkRow:
    values = dict(row)
    # One call for all three, as questions read many rows.
    written = f"[{values['heading_path']},{values['keywords']},{values['metadata']}]"
    headings, keywords, values["metadata"] = json.loads(written)
    values["heading_path"], values["keywords"] = tuple(headings), tuple(keywords)
    return ChunkRow(**values)


UpsertOutcome = Literal["added", "updated", "unchanged"]

_Placed = tuple[int, int, "PreparedChunk"]  # key of the document, place in it, chunk


class DocumentWriter:
    """Writes and removes documents with all that depends on them.

    Keys are assigned here rather than by the database, in the order of the documents, so that all rows of a
    table are inserted by one statement.
    """

    def __init__(self, database: SQLDatabase, graph: GraphTable, changes: ChangeLog) -> None:
        self._database = database
        self._graph = graph
        self._changes = changes

    def upsert(self, documents: Sequence[PreparedDocument]) -> list[UpsertOutcome]:
        """Insert or update documents by their URIs.

        Chunks that did not change keep their keys, vectors, mentions and place in the indexes.

        Returns:
            The outcome of each, in order.
        """
        with self._database.write() as db:
            return [outcome for part in _apart(documents) for outcome in self._upsert(db, part)]

    def remove(self, keys: Sequence[int]) -> None:
        """Remove documents with everything that only they support; an unknown key is no error."""
        with self._database.write() as db:
            rows = self._database.rows_in("SELECT key FROM chunks WHERE document IN ({})", keys)
            self._drop_vectors(db, self._remove_chunks(db, sorted(row["key"] for row in rows)))
            db.executemany("DELETE FROM documents WHERE key = ?", [(key,) for key in keys])

    def remove_chunks(self, document: int) -> None:
        """Remove a document's chunks, and clear its hash so that the next upsert writes it in any case."""
        with self._database.write() as db:
            rows = db.execute("SELECT key FROM chunks WHERE document = ?", (document,)).fetchall()
            self._drop_vectors(db, self._remove_chunks(db, sorted(row["key"] for row in rows)))
            db.execute("UPDATE documents SET hash = ? WHERE key = ?", (b"", document))

    def _upsert(self, db: SQLConnection, documents: Sequence[PreparedDocument]) -> list[UpsertOutcome]:
        """Insert or update documents that all have different URIs."""
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
        # Last, because a text that one document lost may be in another one.
        self._drop_vectors(db, left)
        outcomes: dict[str, UpsertOutcome] = dict.fromkeys(there, "unchanged")
        outcomes |= dict.fromkeys((document.uri for document in added), "added")
        outcomes |= dict.fromkeys((document.uri for document in updated.values()), "updated")
        return [outcomes[document.uri] for document in documents]

    def _add(self, db: SQLConnection, documents: Sequence[PreparedDocument]) -> list[_Placed]:
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
        self, db: SQLConnection, documents: Mapping[int, PreparedDocument]
    ) -> tuple[list[_Placed], set[bytes]]:
        """Update existing documents, and remove the chunks that they no longer have.

        Returns:
            The chunks still to be written, and the hashes of vectors that may be unused now.
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
            'UPDATE chunks SET ordinal = ?, start = ?, "end" = ?, page = ?, id = ? WHERE key = ?', kept
        )
        return fresh, left

    def _add_chunks(self, db: SQLConnection, chunks: Sequence[_Placed]) -> None:
        if not chunks:
            return
        keyed = list(enumerate(chunks, start=self._next_key("chunks")))
        db.executemany(
            'INSERT INTO chunks (key, document, ordinal, id, start, "end", page, kind, name, heading_path, '
            "language, keywords, hash, vector_hash, text) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_chunk_values(key, document, ordinal, chunk) for key, (document, ordinal, chunk) in keyed],
        )
        regrouped = self._graph.add_columns([(key, chunk.found) for key, (_, _, chunk) in keyed])
        keys = [key for key, _ in keyed]
        self._changes.note("chunk+", keys)
        self._changes.note("entity", sorted(regrouped))
        # The vector may exist already, from the same text in another or an earlier chunk.
        rows = self._database.rows_in(
            "SELECT key FROM chunks WHERE key IN ({}) AND EXISTS "
            "(SELECT 1 FROM vectors WHERE hash = vector_hash)",
            keys,
        )
        self._changes.note("vector+", [row["key"] for row in rows])

    def _remove_chunks(self, db: SQLConnection, keys: Sequence[int]) -> set[bytes]:
        """Remove chunks with their graph rows.

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

    def _drop_vectors(self, db: SQLConnection, hashes: Iterable[bytes]) -> None:
        """Drop those of the vectors that no chunk has any more."""
        db.executemany(
            "DELETE FROM vectors WHERE hash = ? "
            "AND NOT EXISTS (SELECT 1 FROM chunks WHERE vector_hash = vectors.hash)",
            [(hash_,) for hash_ in hashes],
        )

    def _next_key(self, table: Literal["documents", "chunks"]) -> int:
        """Return the next key that was never used; stable until the transaction ends."""
        row = self._database.row("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return 1 if row is None else int(row["seq"]) + 1


def _apart(documents: Sequence[PreparedDocument]) -> Iterator[list[PreparedDocument]]:
    """Split documents, in order, into parts in which no URI occurs twice."""
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


def _add_fields(db: SQLConnection, documents: Iterable[tuple[int, PreparedDocument]]) -> None:
    db.executemany(
        "INSERT INTO fields (document, name, value, number, local, instant) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(key, *row) for key, document in documents for row in document.fields],
    )
