"""Reading a stretch of a document that costs no more tokens than asked for."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from loom_core.server.results import estimate_tokens
from loom_kb.models import FetchResult

if TYPE_CHECKING:
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

__all__ = ["read"]

_MAX_CHARACTERS_EACH = 4  # of a token: that many in English, one in Chinese


def read(
    knowledge_base: GraphRAGKnowledgeBase, id_: str, *, start: int | None, tokens: int
) -> FetchResult | None:
    """A stretch of a document. Blocks.

    Args:
        knowledge_base: where to look.
        id_: id of a document or a passage, or a URI.
        start: offset to read from; None begins where the document does, or so far before a passage that it
            is shown amid what is around it.
        tokens: what the text costs at the most.

    Returns:
        The text with its place, or None if there is nothing with this id.
    """
    documents = knowledge_base.record.documents
    chunk = documents.chunk(id_)
    document = documents.get(chunk.document_id if chunk else id_)
    if document is None:
        return None
    text = documents.text(document.key)
    if start is None:
        start = _start_around(text, chunk.start, chunk.end, tokens) if chunk else 0
    start = min(max(start, 0), len(text))
    end = start + _fitting(text[start : start + _MAX_CHARACTERS_EACH * tokens], tokens)
    return FetchResult(
        document_id=document.id,
        source=knowledge_base.name,
        title=document.title,
        uri=document.uri,
        text=text[start:end],
        start=start,
        end=end,
        length=len(text),
        metadata={name: str(value) for name, value in document.metadata.items()},
    )


def _start_around(text: str, start: int, end: int, tokens: int) -> int:
    """Where to begin so that a passage has as much before it as after it."""
    before = max(0, tokens - estimate_tokens(text[start:end])) // 2
    first = max(0, start - _MAX_CHARACTERS_EACH * before)
    return start - _fitting(text[first:start][::-1], before)


def _fitting(text: str, tokens: int) -> int:
    """How many characters from the beginning cost no more than so many tokens."""
    return bisect_right(range(1, len(text) + 1), tokens, key=lambda end: estimate_tokens(text[:end]))
