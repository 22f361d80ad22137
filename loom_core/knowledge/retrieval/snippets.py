"""The stretch of a long text that fits a question best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.knowledge.ingest.chunking.boundaries import cut_near
from loom_core.knowledge.model import KnowledgeItem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["best_stretch"]

_LENGTH = 1600  # characters: what a passage usually has
_SHORTEST = 800
_MAX_READ = 200_000


async def best_stretch(query: str, text: str, *, above: str = "") -> tuple[str, int]:
    """The stretch of a text in which most of a question's words stand, and where it begins.

    Args:
        query: the question.
        text: the text; only its first 200,000 characters are read.
        above: its title.
    """
    from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker

    stretches = await to_thread.run_sync(lambda: list(_stretches(text[:_MAX_READ])))
    if not stretches:
        return "", 0
    items = [
        KnowledgeItem(id=str(start), content=stretch, source="", metadata={"title": above})
        for stretch, start in stretches
    ]
    best = await FeatureReranker(weight=1.0).rerank(query, items, limit=1)
    return best[0].content, int(best[0].id)


def _stretches(text: str) -> Iterator[tuple[str, int]]:
    """A text in pieces that end where sentences do, each with its place; none is only white space."""
    start = 0
    while start < len(text):
        limit = start + _LENGTH
        end = len(text) if limit >= len(text) else cut_near(text, start + _SHORTEST, limit)
        if text[start:end].strip():
            yield text[start:end].strip(), start + len(text[start:end]) - len(text[start:end].lstrip())
        start = end
