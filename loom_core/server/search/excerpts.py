"""Excerpts of documents within a token budget."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import url2pathname

from loom_core.knowledge.uris import uri_of
from loom_core.server.protocol.results import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

__all__ = ["Excerpt", "excerpt_bounds", "forms_of", "read"]

_PLACE = re.compile(r"#\d+-\d+$")
_MAX_CHARACTERS_EACH = 4  # maximum characters of a token: four in English, one in Chinese


@dataclass(frozen=True, slots=True)
class Excerpt:
    """An excerpt of a document.

    Attributes:
        document_id: id of the document.
        title: its title, or empty.
        uri: URI of the document.
        text: the characters from `start` up to `end`.
        start: offset of the first character in the document's text.
        end: offset after the last one.
        length: characters of the whole document.
        metadata: metadata of the document, as texts.
    """

    document_id: str
    title: str
    uri: str
    text: str
    start: int
    end: int
    length: int
    metadata: Mapping[str, str]


def forms_of(id_: str) -> list[str]:
    """Return the forms of an id: as given, and the address if it was copied from a citation."""
    address = _PLACE.sub("", id_)
    forms = [id_, address]
    if address.startswith("file://"):  # citations show it without percent-encoding of letters
        forms.append(uri_of(Path(url2pathname(address.removeprefix("file://")))))
    return list(dict.fromkeys(forms))


def read(
    knowledge_base: GraphRAGKnowledgeBase, id_: str, *, start: int | None, tokens: int
) -> Excerpt | None:
    """Read an excerpt of a document in one of Loom's knowledge bases. Blocks.

    Args:
        knowledge_base: the knowledge base.
        id_: id of a document or a passage, or a URI.
        start: offset to read from; None for the beginning of a document, or for a passage with its context.
        tokens: limit of the text's tokens.

    Returns:
        The excerpt, or None if there is nothing with this id.
    """
    documents = knowledge_base.documents
    chunk = documents.chunk(id_)
    document = documents.get(chunk.document_id if chunk else id_)
    if document is None:
        return None
    text = documents.text(document.key)
    if start is None:
        start = _start_around(text, chunk.start, chunk.end, tokens) if chunk else 0
    start, end = excerpt_bounds(text, start=start, tokens=tokens)
    return Excerpt(
        document_id=document.id,
        title=document.title,
        uri=document.uri,
        text=text[start:end],
        start=start,
        end=end,
        length=len(text),
        metadata={name: str(value) for name, value in document.metadata.items()},
    )


def excerpt_bounds(text: str, *, start: int, tokens: int) -> tuple[int, int]:
    """Return the start and end of an excerpt within a token budget."""
    start = min(max(start, 0), len(text))
    return start, start + _fitting(text[start : start + _MAX_CHARACTERS_EACH * tokens], tokens)


def _start_around(text: str, start: int, end: int, tokens: int) -> int:
    """Return the start of an excerpt that has a passage in its middle."""
    before = max(0, tokens - estimate_tokens(text[start:end])) // 2
    first = max(0, start - _MAX_CHARACTERS_EACH * before)
    return start - _fitting(text[first:start][::-1], before)


def _fitting(text: str, tokens: int) -> int:
    """Return how many leading characters fit into a token budget."""
    return bisect_right(range(1, len(text) + 1), tokens, key=lambda end: estimate_tokens(text[:end]))
