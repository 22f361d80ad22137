"""Whether a record agrees with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.maintenance.document_checks import check_documents
from loom_core.knowledge.maintenance.finding import CheckReport
from loom_core.knowledge.maintenance.row_checks import (
    check_changes,
    check_graph,
    check_jobs,
    check_references,
    check_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.knowledge.model import DocumentDraft
    from loom_core.knowledge.store import Record

__all__ = ["check_record"]

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
