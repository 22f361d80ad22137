"""From what was found to what is told: passages with their place, scores and the path of evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.confidence import Match
from loom_core.knowledge.retrieval.config import Strategy
from loom_core.observability.tracing import AttributeValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import Channel
    from loom_core.knowledge.retrieval.strategies import Found
    from loom_core.knowledge.store import ChunkRow, DocumentRow, Record

__all__ = ["Answer", "Searched", "channel_items", "item", "items"]

_WORDS = "shares words with the question"
_MEANING = "is close to the question in meaning"
_CHANNELS: dict[Channel, tuple[str, str]] = {
    "dense": ("vector", _MEANING),
    "bm25": ("bm25", _WORDS),
    "keyword": ("keyword", "holds keywords of the question"),
    "graph": ("graph", "is connected with what the question names"),
}
"""What a channel's score is called in an item, and why it found what it found."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with how it came about.

    Attributes:
        items: the passages, best first.
        strategy: how they were found.
        embedded: how many chunks had a vector, of `chunks`.
        chunks: how many chunks there were.
        match: how well the passages fit the question; `items` is empty where its verdict is `none`.
        notes: what the reader should know: a channel that was left out, and why.
        embed_ms: time for embedding the question, in milliseconds.
        retrieve_ms: the rest of the time; while the question was embedded, words were searched.
    """

    items: list[KnowledgeItem]
    match: Match
    strategy: Strategy
    embedded: int
    chunks: int
    notes: tuple[str, ...]
    embed_ms: float
    retrieve_ms: float


@dataclass(frozen=True, slots=True)
class Searched:
    """An answer, with what the span of the search says of it."""

    answer: Answer
    told: dict[str, AttributeValue]


def items(record: Record, found: Sequence[Found]) -> dict[int, KnowledgeItem]:
    """What was found as items by key, in the same order; those that have gone by now are left out."""
    keys = {hit.key for hit in found} | {
        key for hit in found for link in hit.links for key in (link.seed, link.chunk)
    }
    rows = record.documents.chunks(sorted(keys))
    documents = record.documents.by_key(sorted({row.document for row in rows.values()}))
    names = record.graph.names_of(sorted({hit.named for hit in found if hit.named}))
    return {
        hit.key: item(
            rows[hit.key],
            documents[rows[hit.key].document],
            relevance=round(hit.score, 4),
            scores=hit.scores,
            why=_why(hit, rows, names),
        )
        for hit in found
        if hit.key in rows and rows[hit.key].document in documents
    }


def channel_items(
    record: Record, scores: Sequence[tuple[int, float]], channel: Channel | None
) -> list[KnowledgeItem]:
    """What one channel found, or a list of chunks that nothing was asked of, as items.

    Args:
        record: has the chunks; those that have gone are left out.
        scores: keys and the channel's raw scores, in the order that the items are to have.
        channel: which it was, or None.
    """
    rows = record.documents.chunks([key for key, _ in scores])
    documents = record.documents.by_key(sorted({row.document for row in rows.values()}))
    name, why = _CHANNELS[channel] if channel else ("", "")
    return [
        item(
            rows[key],
            documents[rows[key].document],
            relevance=score,
            scores={name: score} if channel else {},
            why=[why] if channel else [],
        )
        for key, score in scores
        if key in rows and rows[key].document in documents
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
        relevance=relevance,
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
        elif link.kind == "back":
            reasons.append(f"{target} mentions “{link.name}”, which {seed} is about")
        else:
            reasons.append(f"{seed} mentions “{link.name}”, and so does {target}")
    if hit.named and hit.named in names:
        reasons.append(f"the question names “{names[hit.named]}”, which it is about")
    if "bm25" in hit.scores:
        reasons.append(_WORDS)
    if "vector" in hit.scores:
        reasons.append(_MEANING)
    if not reasons:
        reasons.append("is connected with several of the best passages")
    return reasons


def _place(row: ChunkRow) -> str:
    parts = [part for part in (row.title, *row.heading_path) if part]
    return " › ".join(parts) if parts else row.text[:40].strip() + "…"
