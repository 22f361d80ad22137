"""Shared parts of the rerankers: the text of a passage for a model, and the order by scores."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["heading", "logistic", "order_by_relevance", "text_with_headings"]


def order_by_relevance(
    items: Sequence[KnowledgeItem],
    relevance: Mapping[int, float],
    *,
    limit: int,
    own: Mapping[int, float] | None = None,
) -> list[KnowledgeItem]:
    """Order the best passages by a reranker's scores.

    The sort is stable. Passages without a score come after all others, in their order, with 0.

    Args:
        items: passages in the order they had.
        relevance: 0 to 1, by place in `items`.
        limit: maximum number of passages.
        own: the reranker's own scores, by place, where they differ from `relevance`.
    """
    own = relevance if own is None else own
    order = sorted(range(len(items)), key=lambda place: (place not in relevance, -relevance.get(place, 0.0)))
    return [
        _with_relevance(items[place], relevance.get(place, 0.0), own.get(place, 0.0))
        for place in order[: max(limit, 0)]
    ]


def logistic(logit: float) -> float:
    """Map a logit to a probability."""
    return 0.5 * (1.0 + math.tanh(0.5 * logit))


def heading(item: KnowledgeItem) -> str:
    """Return the document title and headings of a passage, outermost first; may be empty."""
    title, path = item.metadata.get("title"), item.metadata.get("heading_path")
    parts: list[object] = [title, *(cast("list[object]", path) if isinstance(path, list | tuple) else [])]
    return " › ".join(part for part in parts if isinstance(part, str) and part)


def text_with_headings(item: KnowledgeItem) -> str:
    """Return a passage for a model: title and headings, which its text may not repeat, and its text."""
    above = heading(item)
    return f"{above}\n{item.content}" if above else item.content


def _with_relevance(item: KnowledgeItem, relevance: float, own: float) -> KnowledgeItem:
    known = item.metadata.get("scores")
    others = cast("dict[str, float]", known) if isinstance(known, dict) else {}
    scores = {**others, "rerank": own}
    return replace(item, relevance=relevance, metadata={**item.metadata, "scores": scores})
