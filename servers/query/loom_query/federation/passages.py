"""Conversion of sources' items to the tools' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from loom_query.models import FetchResult, Passage

if TYPE_CHECKING:
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.server.search.excerpts import Excerpt

__all__ = ["address_of", "passage_of", "to_fetch_result"]


def passage_of(number: int, item: KnowledgeItem) -> Passage:
    """Convert an item to a passage of an answer; metadata of an unexpected type is ignored.

    Args:
        number: its citation number.
        item: an item of the answer of `Federation.query`.
    """
    metadata = item.metadata
    return Passage(
        number=number,
        id=item.id,
        source=str(metadata.get("knowledge_base", "")),
        title=_text(metadata.get("title")),
        heading_path=_texts(metadata.get("heading_path")),
        uri=address_of(item),
        start=_number(metadata.get("start")),
        end=_number(metadata.get("end")),
        page=_number(metadata.get("page")),
        text=item.content,
        relevance=min(max(item.relevance, 0.0), 1.0),
        scores=_scores(metadata.get("scores")),
        why=_texts(metadata.get("why")),
        answer_sentence=_text(metadata.get("answer_sentence")),
        also_in=_texts(metadata.get("also_in")),
    )


def address_of(item: KnowledgeItem) -> str:
    """Return the address of an item's document; empty if its source has only a name for it."""
    named = (item.metadata.get("title"), item.metadata.get("knowledge_base"))
    return "" if item.source in named else item.source


def to_fetch_result(id_: str, source: str, stretch: Excerpt) -> FetchResult:
    """Convert an excerpt of a document to the answer of `fetch`."""
    return FetchResult(
        id=id_,
        source=source,
        title=stretch.title,
        uri=stretch.uri,
        text=stretch.text,
        start=stretch.start,
        end=stretch.end,
        length=stretch.length,
        metadata=dict(stretch.metadata),
    )


def _texts(value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        return []
    return [each for each in cast("list[object]", value) if isinstance(each, str)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _scores(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    members = cast("dict[object, object]", value).items()
    return {str(name): float(score) for name, score in members if isinstance(score, int | float)}
