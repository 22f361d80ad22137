"""Answers to global questions: passages from all topics of a knowledge base, see `global_questions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.overview.overview import summarise, topic_lines
from loom_core.knowledge.retrieval.strategies import ChunkHit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.overview.overview import KnowledgeOverview
    from loom_core.knowledge.overview.topics import TopicMap
    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["overview_hits", "overview_note", "spread_by_topic", "spread_note"]

_TOPICS = 12  # that the note on an overview lists


def overview_hits(
    store: KnowledgeStore, topics: TopicMap, *, limit: int, among: AbstractSet[int] | None
) -> tuple[list[ChunkHit], KnowledgeOverview]:
    """Return passages that represent the largest topics, and the overview itself. Blocks.

    Args:
        store: the store.
        topics: its topics.
        limit: how many passages; with fewer topics than that, some topics have several.
        among: the passages that filters allow, or None for all.
    """
    each = -(-limit // max(1, min(len(topics.topics), _TOPICS)))
    overview = summarise(store, topics, limit=_TOPICS, sentences=each, among=among)
    # Passages with a chosen sentence first, as the note quotes them.
    ids = [
        list(dict.fromkeys([*(excerpt.passage_id for excerpt in topic.excerpts), *topic.passage_ids]))
        for topic in overview.topics
    ]
    largest = max((topic.passages for topic in overview.topics), default=1)
    scores = {
        id_: 0.5 + 0.5 * topic.passages / largest
        for place in range(each)
        for topic, known in zip(overview.topics, ids, strict=True)
        for id_ in known[place : place + 1]
    }
    rows = ((store.documents.chunk(id_), score) for id_, score in list(scores.items())[:limit])
    return [ChunkHit(key=row.key, score=score) for row, score in rows if row is not None], overview


def overview_note(overview: KnowledgeOverview) -> str:
    """Describe an overview in a few lines for the reader of an answer."""
    return "\n".join(
        [
            f"This question is about all {overview.passages:,} passages of {overview.documents:,} documents. "
            "The passages represent the largest of these topics:",
            *topic_lines(overview),
        ]
    )


def spread_by_topic(
    found: Mapping[int, KnowledgeItem], topics: TopicMap, *, limit: int
) -> dict[int, KnowledgeItem]:
    """Return the best passages of as many topics and documents as possible.

    Each is the best of those that are new in topic and document, or in one of them.

    Args:
        found: passages by key, best first.
        topics: the topics of all passages.
        limit: how many to return.
    """
    seen_topics: set[int | None] = set()
    seen_documents: set[str] = set()
    chosen: dict[int, KnowledgeItem] = {}
    left = dict(found)
    while left and len(chosen) < limit:
        key = min(
            left,
            key=lambda each: (
                (topics.topic_of.get(each) in seen_topics) + (left[each].source in seen_documents)
            ),
        )
        chosen[key] = left.pop(key)
        seen_topics.add(topics.topic_of.get(key))
        seen_documents.add(chosen[key].source)
    return chosen


def spread_note(passages: Sequence[KnowledgeItem]) -> str:
    """Tell the reader how passages were chosen for a global question with a focus."""
    documents = len({item.source for item in passages})
    return (
        f"This question is about the documents as a whole: {len(passages)} passages from {documents} "
        "documents, of different topics where possible. Ask for more passages (`limit`) to see more of them."
    )
