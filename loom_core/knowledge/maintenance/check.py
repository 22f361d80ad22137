"""Checks of the store: documents against their texts, and rows against those they depend on."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, get_args

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.boilerplate import find_boilerplate
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.ingest.stored_documents import iterate_drafts
from loom_core.knowledge.maintenance.finding import CheckFinding, CheckReport
from loom_core.knowledge.store.changes import IndexName
from loom_core.knowledge.store.fields import field_rows
from loom_core.knowledge.store.graph import ABOUT_TYPE, COMMON
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.knowledge.text.edge_lines import edge_lines
from loom_core.knowledge.text.passage_text import embedding_text
from loom_core.knowledge.uris import display_uri
from loom_core.storage import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom_core.knowledge.maintenance.finding import Repair
    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.storage.sql import SQLRow

__all__ = ["COUNTED_NAMES", "MISJUDGED", "UNEMBEDDED", "UNSUPPORTED", "check_record", "references"]


def check_record(store: KnowledgeStore, hash_: Callable[[DocumentDraft], bytes]) -> CheckReport:
    """Check a store as it is at one moment. Blocks; reads all of it.

    Args:
        store: the store.
        hash_: hash of a document in the current pipeline, see `Pipeline.hash`.
    """
    report = CheckReport()
    with store.database.snapshot():
        documents = check_documents(store, hash_)
        report.findings += documents.findings
        for check in (check_references, check_graph, check_vectors, check_changes, check_jobs):
            report.findings += check(store)
        entities, relations, mentions = store.graph.counts()
        embedded, _ = store.vectors.coverage()
    report.checked += [
        f"store: {documents.documents:,} documents with {documents.chunks:,} passages",
        f"graph: {entities:,} entities, {relations:,} relations, {mentions:,} mentions",
        f"vectors: of {embedded:,} passages",
    ]
    if documents.others:
        report.notes.append(
            f"{documents.others:,} documents were chunked by other rules than the current ones; "
            "`loom-kb rebuild --all-from-text` does it again"
        )
    return report


_NAMED = 3  # examples in a line

_Fields = dict[tuple[str, str], tuple[float | None, float | None, float | None]]
"""Number, local time and instant by name and value."""


@dataclass(slots=True)
class DocumentCheck:
    """Result of a pass over all documents.

    Attributes:
        documents: how many there are.
        chunks: how many chunks they have.
        others: how many documents were chunked or extracted from by other rules than the current ones.
        findings: the defects.
    """

    documents: int = 0
    chunks: int = 0
    others: int = 0
    findings: list[CheckFinding] = field(default_factory=list[CheckFinding])


def check_documents(store: KnowledgeStore, hash_: Callable[[DocumentDraft], bytes]) -> DocumentCheck:
    """Read every document with its chunks and fields. Blocks; inside a snapshot it sees one moment.

    Args:
        store: the store.
        hash_: hash of a document in the current pipeline, see `Pipeline.hash`.
    """
    check = DocumentCheck()
    wrong: dict[tuple[str, Repair], list[tuple[int, str]]] = {}
    database = store.database
    for uri, draft in iterate_drafts(database):
        row = database.row("SELECT key, id, language, hash FROM documents WHERE uri = ?", (uri,))
        if row is None:
            continue  # removed since, outside of a snapshot
        check.documents += 1
        if isinstance(draft, DocumentError):
            reason = "the text in the store is damaged"
            wrong.setdefault((reason, "lost_texts"), []).append((row["key"], uri))
            continue
        chunks = database.rows("SELECT * FROM chunks WHERE document = ? ORDER BY ordinal", (row["key"],))
        check.chunks += len(chunks)
        check.others += row["hash"] != hash_(draft)
        if reason := _wrong_in(draft, row["id"], chunks):
            wrong.setdefault((reason, "documents"), []).append((row["key"], uri))
        if _fields(store, row["key"]) != _fields_of(draft, row["language"]):
            reason = "the fields for filters do not match the document"
            wrong.setdefault((reason, "fields"), []).append((row["key"], uri))
        if _is_misjudged(store, row["key"], draft.text):
            reason = "it is wrong which passages are boilerplate"
            wrong.setdefault((reason, "boilerplate"), []).append((row["key"], uri))
    for (reason, repair), documents in wrong.items():
        text = f"{reason}: {_format_uris([uri for _, uri in documents])}"
        check.findings.append(CheckFinding("documents", text, repair, tuple(key for key, _ in documents)))
    return check


def _wrong_in(draft: DocumentDraft, id_: str, chunks: Sequence[SQLRow]) -> str:
    """Return the first problem of a document's chunks, or an empty text."""
    if id_ != document_id(draft.uri):
        return "the document's id does not match its address"
    if not chunks:
        return "the document has no passages"
    if [chunk["ordinal"] for chunk in chunks] != list(range(len(chunks))):
        return "passages are missing or out of order"
    for chunk in chunks:
        start, end = chunk["start"], chunk["end"]
        if not 0 <= start < end <= len(draft.text):
            return "a passage lies outside of the text"
        if draft.text[start:end] != chunk["text"]:
            return "a passage does not match the text at its position"
        if chunk["id"].split(".")[:2] != [id_, chunk["hash"].hex()[:12]]:
            return "the id of a passage does not match its content"
        try:
            headings = json.loads(chunk["heading_path"])
            json.loads(chunk["keywords"])
        except ValueError:
            return "the headings or keywords of a passage cannot be read"
        embedded = embedding_text(draft.title, headings, chunk["text"])
        if hashlib.sha256(embedded.encode()).digest()[:16] != chunk["vector_hash"]:
            return "the vector of a passage does not match its text"
    return ""


def _is_misjudged(store: KnowledgeStore, document: int, text: str) -> bool:
    """Whether the stored lines of a document or its boilerplate are wrong, and not only still to be found."""
    boilerplate = store.boilerplate
    if boilerplate.is_pending(document):
        return False
    if set(boilerplate.lines_of([document]).get(document, ())) != set(edge_lines(text)):
        return True
    return boilerplate.passages_of([document]) != find_boilerplate(store, [document])


def _fields(store: KnowledgeStore, document: int) -> _Fields:
    rows = store.database.rows(
        "SELECT name, value, number, local, instant FROM fields WHERE document = ?", (document,)
    )
    return {(name, value): (number, local, instant) for name, value, number, local, instant in rows}


def _fields_of(draft: DocumentDraft, language: str) -> _Fields:
    fields: _Fields = {}
    for name, value, number, local, instant in field_rows(draft, language=language):
        fields.setdefault((name, value), (number, local, instant))
    return fields


def _format_uris(uris: Sequence[str]) -> str:
    more = f" and {len(uris) - _NAMED:,} more" if len(uris) > _NAMED else ""
    return ", ".join(map(display_uri, uris[:_NAMED])) + more


COUNTED_NAMES = (
    "SELECT entity, name, type, COUNT(*) AS uses FROM (SELECT entity, name, type FROM mentions "
    f"UNION ALL SELECT entity, name, '{ABOUT_TYPE}' FROM abouts) AS named GROUP BY entity, name, type"
)
"""Statement for the rows that the table `names` should hold."""

UNSUPPORTED = (
    "SELECT key FROM entities WHERE NOT EXISTS (SELECT 1 FROM mentions WHERE entity = entities.key) "
    "AND NOT EXISTS (SELECT 1 FROM abouts WHERE entity = entities.key) "
    "AND NOT EXISTS (SELECT 1 FROM relations WHERE subject = entities.key OR object = entities.key) "
    "AND NOT EXISTS (SELECT 1 FROM alias_statements WHERE entity = entities.key OR other = entities.key)"
)
"""Statement for the entities that no chunk refers to."""

MISJUDGED = f"SELECT key FROM entities AS e WHERE common != ({COMMON})"
"""Statement for the entities whose names are wrongly taken for common words, or not."""

UNEMBEDDED = "SELECT key FROM chunks AS c WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash)"
"""Statement for the chunks without a vector, which the table `unembedded` should hold."""

_REFERENCES = (  # without foreign keys, which would be too slow for so many rows
    ("mentions", "chunk", "chunks", "key"),
    ("mentions", "entity", "entities", "key"),
    ("abouts", "chunk", "chunks", "key"),
    ("abouts", "entity", "entities", "key"),
    ("relations", "chunk", "chunks", "key"),
    ("relations", "subject", "entities", "key"),
    ("relations", "object", "entities", "key"),
    ("boilerplate", "chunk", "chunks", "key"),
)
_BATCH = 20_000
_LENGTHS = (0.9, 1.1)  # tolerance for the length of a unit vector after rounding to 16 bits


def check_references(store: KnowledgeStore) -> Iterator[CheckFinding]:
    """Find dangling references: rows that refer to rows that are gone."""
    for table, column, parent, key in references():
        (count,) = store.database.rows(_dangling("COUNT(*) AS n", table, column, parent, key))
        if not count["n"]:
            continue
        if (table, parent) == ("chunks", "documents"):
            gone = store.database.rows(_dangling(f"DISTINCT {column} AS key", table, column, parent, key))
            keys = tuple(row["key"] for row in gone)
            text = f"{count['n']:,} passages belong to documents that are gone"
            yield CheckFinding("references", text, "stray_chunks", keys)
        else:
            text = f"{count['n']:,} rows of {table!r} refer to rows of {parent!r} that are gone"
            yield CheckFinding("references", text, "rows", (table,))
            yield from _torn(store, table, column, parent, key)


@cache
def references() -> Sequence[tuple[str, str, str, str]]:
    """Return every reference between tables: table, column, the referenced table and column."""
    found = dict.fromkeys(_REFERENCES)
    with closing(Database(None, schema=SCHEMA)) as database:
        for (table,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
            for reference in database.rows(f"PRAGMA foreign_key_list({table})"):
                found[table, reference["from"], reference["table"], reference["to"] or "key"] = None
    return list(found)


def _dangling(what: str, table: str, column: str, parent: str, key: str) -> str:
    return (
        f"SELECT {what} FROM {table} WHERE {column} IS NOT NULL AND NOT EXISTS "
        f"(SELECT 1 FROM {parent} WHERE {parent}.{key} = {table}.{column})"
    )


def _torn(store: KnowledgeStore, table: str, column: str, parent: str, key: str) -> Iterator[CheckFinding]:
    """Find documents with incomplete extraction, whose remaining rows are useless."""
    if (table, "chunk", "chunks", "key") not in references():
        return
    rows = store.database.rows(
        "SELECT DISTINCT document FROM chunks WHERE key IN "
        f"(SELECT chunk FROM ({_dangling('chunk', table, column, parent, key)}))"
    )
    if rows:
        text = f"the extraction from {len(rows):,} documents is incomplete ({table})"
        yield CheckFinding("references", text, "documents", tuple(row["document"] for row in rows))


def check_graph(store: KnowledgeStore) -> Iterator[CheckFinding]:
    """Check places of mentions and relations, use counts of names, and unsupported entities."""
    for table, what in (("mentions", "mentions of entities"), ("relations", "relations")):
        rows = store.database.rows(
            f"SELECT DISTINCT c.document FROM {table} AS m JOIN chunks AS c ON c.key = m.chunk "
            "WHERE m.start < 0 OR m.end <= m.start OR m.end > length(c.text)"
        )
        if rows:
            text = f"{what} in {len(rows):,} documents lie outside of their passages"
            yield CheckFinding("graph", text, "documents", tuple(row["document"] for row in rows))
    rows = store.database.rows(
        "SELECT DISTINCT c.document FROM relations AS r JOIN chunks AS c ON c.key = r.chunk WHERE EXISTS "
        "(SELECT 1 FROM (SELECT r.subject AS entity UNION ALL SELECT r.object) AS e WHERE NOT EXISTS "
        "(SELECT 1 FROM mentions WHERE chunk = r.chunk AND entity = e.entity) AND NOT EXISTS "
        "(SELECT 1 FROM abouts WHERE chunk = r.chunk AND entity = e.entity))"
    )
    if rows:
        text = f"relations in {len(rows):,} documents are between entities that are not mentioned there"
        yield CheckFinding("graph", text, "documents", tuple(row["document"] for row in rows))
    (wrong,) = store.database.rows(
        f"SELECT (SELECT COUNT(*) FROM (SELECT * FROM names EXCEPT {COUNTED_NAMES}) AS more) + "
        f"(SELECT COUNT(*) FROM ({COUNTED_NAMES} EXCEPT SELECT * FROM names) AS less) AS n"
    )
    if wrong["n"]:
        yield CheckFinding("graph", f"{wrong['n']:,} counts of how often a name is used are wrong", "graph")
    (misjudged,) = store.database.rows(f"SELECT COUNT(*) AS n FROM ({MISJUDGED}) AS found")
    if misjudged["n"]:
        text = f"of {misjudged['n']:,} names it is wrong whether they are common words"
        yield CheckFinding("graph", text, "graph")
    if misgrouped := store.aliases.find_misgrouped():
        text = f"{len(misgrouped):,} entities are in the wrong group of aliases"
        yield CheckFinding("graph", text, "graph")
    (unsupported,) = store.database.rows(f"SELECT COUNT(*) AS n FROM ({UNSUPPORTED}) AS found")
    if unsupported["n"]:
        yield CheckFinding("graph", f"{unsupported['n']:,} entities are in no passage", "graph")
    if not 0 <= store.graph.link_watermark() <= store.documents.last_chunk():
        yield CheckFinding("graph", "the watermark of entity linking is beyond the last passage", "links")


def check_vectors(store: KnowledgeStore) -> Iterator[CheckFinding]:
    """Find vectors without a chunk, or with another dimension than the embedder's."""
    orphans = store.database.rows(
        "SELECT hash FROM vectors WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE vector_hash = vectors.hash)"
    )
    if orphans:
        keys = tuple(row["hash"].hex() for row in orphans)
        yield CheckFinding("vectors", f"{len(orphans):,} vectors belong to no passage", "vectors", keys)
    dimension = int(store.get("dimension") or 0)
    if bad := list(_broken(store, dimension)):
        text = f"{len(bad):,} vectors do not have length {dimension}, or are not numbers"
        yield CheckFinding("vectors", text, "vectors", tuple(bad))
    if _queue_is_wrong(store):
        yield CheckFinding("vectors", "the queue of passages to embed is wrong", "queue")


def _queue_is_wrong(store: KnowledgeStore) -> bool:
    """Whether the queue of chunks to embed, or its count, contradicts the vectors."""
    (row,) = store.database.rows(
        f"SELECT EXISTS (SELECT * FROM ({UNEMBEDDED}) AS missing EXCEPT SELECT chunk FROM unembedded) "
        f"OR EXISTS (SELECT chunk FROM unembedded EXCEPT SELECT * FROM ({UNEMBEDDED}) AS missing) "
        "OR NOT EXISTS (SELECT 1 FROM coverage WHERE chunks = (SELECT COUNT(*) FROM chunks) "
        "AND unembedded = (SELECT COUNT(*) FROM unembedded)) AS wrong"
    )
    return bool(row["wrong"])


def _broken(store: KnowledgeStore, dimension: int) -> Iterator[str]:
    import numpy as np

    after = b""
    while rows := store.database.rows(
        "SELECT hash, vector FROM vectors WHERE hash > ? ORDER BY hash LIMIT ?", (after, _BATCH)
    ):
        after = rows[-1]["hash"]
        whole = [
            row for row in rows if isinstance(row["vector"], bytes) and len(row["vector"]) == 2 * dimension
        ]
        yield from {row["hash"].hex() for row in rows} - {row["hash"].hex() for row in whole}
        if whole and dimension:
            packed = np.frombuffer(b"".join(row["vector"] for row in whole), dtype=np.float16)
            lengths = np.linalg.norm(packed.reshape(len(whole), -1).astype(np.float32), axis=1)
            sound = (lengths == 0) | ((lengths > _LENGTHS[0]) & (lengths < _LENGTHS[1]))
            yield from (whole[int(row)]["hash"].hex() for row in np.flatnonzero(~sound))


def check_changes(store: KnowledgeStore) -> Iterator[CheckFinding]:
    """Check that the change log still holds what the indexes have to apply."""
    head = store.changes.head()
    for name in get_args(IndexName):
        state = store.changes.state(name)
        if state.built and state.watermark > head:
            text = f"the watermark of the index {name!r} is beyond the last change"
        elif state.built and state.watermark < head and not store.changes.is_complete_since(state.watermark):
            text = f"changes that the index {name!r} has still to apply are missing"
        else:
            continue
        yield CheckFinding("changes", text, "index", (name,))


def check_jobs(store: KnowledgeStore) -> Iterator[CheckFinding]:
    """Find jobs that count as done, but have unprocessed documents."""
    rows = store.database.rows(
        "SELECT key FROM jobs WHERE state = 'done' AND EXISTS "
        "(SELECT 1 FROM items WHERE job = jobs.key AND items.state = 'pending')"
    )
    if rows:
        text = f"{len(rows):,} jobs count as done, but have unprocessed documents"
        yield CheckFinding("jobs", text, "jobs", tuple(row["key"] for row in rows))
