"""Whether a record agrees with itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.pipeline import document_id
from loom_core.knowledge.ingest.stored_documents import stored_drafts
from loom_core.knowledge.maintenance.finding import CheckReport, Finding
from loom_core.knowledge.maintenance.row_checks import (
    check_changes,
    check_graph,
    check_jobs,
    check_references,
    check_vectors,
)
from loom_core.knowledge.store.fields import field_rows
from loom_core.knowledge.text.passage_text import embedding_text
from loom_core.knowledge.uris import shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.maintenance.finding import Repair
    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.store import Record

__all__ = ["DocumentCheck", "check_documents", "check_record"]

_ROWS = (check_references, check_graph, check_vectors, check_changes, check_jobs)


def check_record(record: Record, hash_: Callable[[DocumentDraft], bytes]) -> CheckReport:
    """Check a record as it is at one moment. Blocks; reads all of it.

    Args:
        record: the record.
        hash_: what a document is to the pipeline of today, see `Pipeline.hash`.
    """
    report = CheckReport()
    with record.database.snapshot():
        documents = check_documents(record, hash_)
        report.findings += documents.findings
        for check in _ROWS:
            report.findings += check(record)
        entities, relations, mentions = record.graph.counts()
        embedded, _ = record.vectors.coverage()
    report.checked += [
        f"record: {documents.documents:,} documents with {documents.chunks:,} passages",
        f"graph: {entities:,} entities, {relations:,} relations, {mentions:,} mentions",
        f"vectors: of {embedded:,} passages",
    ]
    if documents.others:
        report.notes.append(
            f"{documents.others:,} documents were cut into passages by other rules than today's; "
            "`loom-kb rebuild --all-from-text` does it anew"
        )
    return report


_NAMED = 3  # examples in a line

_Fields = dict[tuple[str, str], tuple[float | None, float | None, float | None]]
"""Number, local time and instant by name and value."""


@dataclass(slots=True)
class DocumentCheck:
    """What a pass over all documents found.

    Attributes:
        documents: how many there are.
        chunks: how many chunks they have.
        others: how many of them were cut or extracted from by other rules than today's.
        findings: what is wrong.
    """

    documents: int = 0
    chunks: int = 0
    others: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])


def check_documents(record: Record, hash_: Callable[[DocumentDraft], bytes]) -> DocumentCheck:
    """Read every document with its chunks and fields. Blocks; inside a snapshot it sees one moment.

    Args:
        record: what is checked.
        hash_: what a document is to the pipeline of today, see `Pipeline.hash`.
    """
    check = DocumentCheck()
    wrong: dict[tuple[str, Repair], list[tuple[int, str]]] = {}
    database = record.database
    for uri, draft in stored_drafts(database):
        row = database.row("SELECT key, id, language, hash FROM documents WHERE uri = ?", (uri,))
        if row is None:
            continue  # removed since, outside of a snapshot
        check.documents += 1
        if isinstance(draft, DocumentError):
            reason = "the text in the record is damaged"
            wrong.setdefault((reason, "lost_texts"), []).append((row["key"], uri))
            continue
        chunks = database.rows("SELECT * FROM chunks WHERE document = ? ORDER BY ordinal", (row["key"],))
        check.chunks += len(chunks)
        check.others += row["hash"] != hash_(draft)
        if reason := _wrong_in(draft, row["id"], chunks):
            wrong.setdefault((reason, "documents"), []).append((row["key"], uri))
        if _fields(record, row["key"]) != _fields_of(draft, row["language"]):
            reason = "what filters look at is not what the document says"
            wrong.setdefault((reason, "fields"), []).append((row["key"], uri))
    for (reason, repair), documents in wrong.items():
        text = f"{reason}: {_listed([uri for _, uri in documents])}"
        check.findings.append(Finding("documents", text, repair, tuple(key for key, _ in documents)))
    return check


def _wrong_in(draft: DocumentDraft, id_: str, chunks: Sequence[sqlite3.Row]) -> str:
    """The first thing that is wrong with a document's chunks, or an empty text."""
    if id_ != document_id(draft.uri):
        return "the document's id is not that of its address"
    if not chunks:
        return "the document has no passages"
    if [chunk["ordinal"] for chunk in chunks] != list(range(len(chunks))):
        return "passages are missing or out of order"
    for chunk in chunks:
        start, end = chunk["start"], chunk["end"]
        if not 0 <= start < end <= len(draft.text):
            return "a passage lies outside of the text"
        if draft.text[start:end] != chunk["text"]:
            return "a passage is not what the text has at its place"
        if chunk["id"].split(".")[:2] != [id_, chunk["hash"].hex()[:12]]:
            return "the id of a passage is not that of its content"
        try:
            headings = json.loads(chunk["heading_path"])
            json.loads(chunk["keywords"])
        except ValueError:
            return "the headings or keywords of a passage cannot be read"
        embedded = embedding_text(draft.title, headings, chunk["text"])
        if hashlib.sha256(embedded.encode()).digest()[:16] != chunk["vector_hash"]:
            return "what was embedded of a passage is not its text"
    return ""


def _fields(record: Record, document: int) -> _Fields:
    rows = record.database.rows(
        "SELECT name, value, number, local, instant FROM fields WHERE document = ?", (document,)
    )
    return {(name, value): (number, local, instant) for name, value, number, local, instant in rows}


def _fields_of(draft: DocumentDraft, language: str) -> _Fields:
    fields: _Fields = {}
    for name, value, number, local, instant in field_rows(draft, language=language):
        fields.setdefault((name, value), (number, local, instant))
    return fields


def _listed(uris: Sequence[str]) -> str:
    more = f" and {len(uris) - _NAMED:,} more" if len(uris) > _NAMED else ""
    return ", ".join(map(shown, uris[:_NAMED])) + more
