"""Conversion between passages of retrievers and knowledge items."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loom_core.errors import LoomError
from loom_core.knowledge.model import KnowledgeItem, RetrievedPassage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loom_core.knowledge.interface import Reranker

__all__ = [
    "PassageKey",
    "passage_key",
    "rerank_passages",
    "sort_by_score",
    "to_item",
    "to_passage",
    "with_scores",
]

_log = logging.getLogger(__name__)

PassageKey = tuple[str, str]
"""Identity of a passage: knowledge base and chunk id. A document has the same ids in each of them."""

_HOME = "knowledge_base_id"


def passage_key(passage: RetrievedPassage) -> PassageKey:
    """Return the key of a passage."""
    return passage["knowledge_base_id"], passage["chunk_id"]


def to_passage(item: KnowledgeItem, *, knowledge_base: str, retriever: str) -> RetrievedPassage:
    """Convert an item to a retrieved passage; its relevance is the score."""
    document = item.metadata.get("document_id")
    return RetrievedPassage(
        chunk_id=item.id,
        text=item.content,
        score=item.relevance,
        metadata={**item.metadata, "uri": item.source},
        knowledge_base_id=knowledge_base,
        document_id=None if document is None else str(document),
        source=retriever,
    )


def to_item(passage: RetrievedPassage) -> KnowledgeItem:
    """Convert a passage to an item, for a reranker or an answer; `metadata` keeps its `knowledge_base_id`."""
    return KnowledgeItem(
        id=passage["chunk_id"],
        content=passage["text"],
        source=str(passage["metadata"].get("uri", "")),
        relevance=passage["score"],
        metadata={**passage["metadata"], _HOME: passage["knowledge_base_id"]},
    )


def with_scores(item: KnowledgeItem, relevance: float, scores: Mapping[str, float]) -> KnowledgeItem:
    """Return an item with another relevance, and more scores in `metadata["scores"]`."""
    metadata = {**item.metadata, "scores": {**item.metadata.get("scores", {}), **scores}}
    return replace(item, relevance=relevance, metadata=metadata)


def sort_by_score(passages: Iterable[RetrievedPassage]) -> list[RetrievedPassage]:
    """Sort passages by score, best first, each once; ties by knowledge base and chunk id."""
    best: dict[PassageKey, RetrievedPassage] = {}
    for passage in passages:
        key = passage_key(passage)
        if key not in best or passage["score"] > best[key]["score"]:
            best[key] = passage
    return [best[key] for key in sorted(best, key=lambda key: (-best[key]["score"], key))]


async def rerank_passages(
    query: str, passages: Sequence[RetrievedPassage], reranker: Reranker, *, limit: int
) -> list[RetrievedPassage]:
    """Rerank passages, and return the best.

    If the reranker fails, the order stays and a warning is logged.

    Args:
        query: the question.
        passages: the candidates, best first.
        reranker: puts them in order.
        limit: maximum number of passages.
    """
    try:
        items = await reranker.rerank(query, [to_item(passage) for passage in passages], limit=limit)
    except LoomError as error:
        _log.warning("The passages keep their order, because the reranker failed: %s", error)
        return list(passages[:limit])
    known = {passage_key(passage): passage for passage in passages}
    return [_with_item_scores(known[item.metadata[_HOME], item.id], item) for item in items]


def _with_item_scores(passage: RetrievedPassage, item: KnowledgeItem) -> RetrievedPassage:
    metadata: dict[str, Any] = {**passage["metadata"], "scores": item.metadata.get("scores", {})}
    return {**passage, "score": item.relevance, "metadata": metadata}
