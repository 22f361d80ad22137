"""From what was found to what is told: passages with their place, scores and the path of evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.model import KnowledgeItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.rag.config import Strategy
    from loom_core.knowledge.rag.strategies import Found
    from loom_core.knowledge.record import ChunkRow, DocumentRow, Record

__all__ = ["Answer", "item", "items"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with how it came about.

    Attributes:
        items: the passages, best first.
        strategy: how they were found.
        embedded: how many chunks had a vector, of `chunks`.
        chunks: how many chunks there were.
        notes: what the reader should know: a channel that was left out, and why.
        embed_ms: time for embedding the question, in milliseconds.
        retrieve_ms: time for all else.
    """

    items: list[KnowledgeItem]
    strategy: Strategy
    embedded: int
    chunks: int
    notes: tuple[str, ...]
    embed_ms: float
    retrieve_ms: float


def items(record: Record, found: Sequence[Found]) -> list[KnowledgeItem]:
    """What was found as items, those that have gone in the meantime left out."""
    keys = {hit.key for hit in found} | {
        key for hit in found for link in hit.links for key in (link.seed, link.chunk)
    }
    rows = record.documents.chunks(sorted(keys))
    documents = record.documents.by_key(sorted({row.document for row in rows.values()}))
    names = record.graph.names_of(sorted({hit.named for hit in found if hit.named}))
    return [
        item(
            rows[hit.key],
            documents[rows[hit.key].document],
            relevance=hit.score,
            scores=hit.scores,
            why=_why(hit, rows, names),
        )
        for hit in found
        if hit.key in rows and rows[hit.key].document in documents
    ]


def item(
    row: ChunkRow,
    document: DocumentRow,
    *,
    relevance: float = 0.0,
    scores: dict[str, float] | None = None,
    why: Sequence[str] = (),
) -> KnowledgeItem:
    """A chunk as an item."""
    own = {
        "title": row.title,
        "heading_path": list(row.heading_path),
        "start": row.start,
        "end": row.end,
        "page": row.page,
        "kind": row.kind,
        "document_id": row.document_id,
        "language": row.language,
        "keywords": list(row.keywords),
        "scores": {name: round(value, 4) for name, value in (scores or {}).items()},
        "why": list(why),
    }
    return KnowledgeItem(
        id=row.id,
        content=row.text,
        source=row.uri,
        relevance=round(relevance, 4),
        metadata={**document.metadata, **own},
    )


def _why(hit: Found, rows: dict[int, ChunkRow], names: dict[int, str]) -> list[str]:
    reasons: list[str] = []
    for link in hit.links:
        if link.seed not in rows or link.chunk not in rows:
            continue
        seed, target = f"“{_place(rows[link.seed])}”", f"“{_place(rows[link.chunk])}”"
        if link.chunk == hit.key:
            target = "this passage"
        if link.kind == "forward":
            reasons.append(f"{seed} mentions “{link.name}”, which {target} is about")
        else:
            reasons.append(f"{target} mentions “{link.name}”, which {seed} is about")
    if hit.named and hit.named in names:
        reasons.append(f"the question names “{names[hit.named]}”, which it is about")
    if "bm25" in hit.scores:
        reasons.append("shares words with the question")
    if "vector" in hit.scores:
        reasons.append("is close to the question in meaning")
    if not reasons:
        reasons.append("is connected with several of the best passages")
    return reasons


def _place(row: ChunkRow) -> str:
    parts = [part for part in (row.title, *row.heading_path) if part]
    return " › ".join(parts) if parts else row.text[:40].strip() + "…"
