"""Chunkers by size alone: adjacent windows of a text (`simple`) or overlapping ones (`sliding`)."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.boundaries import find_split
from loom_core.knowledge.ingest.chunking.outline import Outline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.model import Chunk, DocumentDraft

__all__ = ["SimpleChunker", "SlidingWindowChunker", "windows"]

_NOT_BLANK = re.compile(r"\S")


def windows(text: str, *, size: int, overlap: int = 0) -> Iterator[tuple[int, int]]:
    """Yield offsets (start, end) of windows that cover all non-blank text, in order.

    Args:
        text: any text.
        size: maximum length of a window in characters (a longer character sequence stays whole)
            and, except for the last, at least half.
        overlap: maximum number of characters that a window repeats of the one before; about half of it for
            the sake of a better boundary; less than `size`.
    """
    start = end = 0
    while ink := _NOT_BLANK.search(text, end):
        fresh = ink.start()
        start = _first_nonblank(text, start) if fresh < start + size else fresh
        if len(text) - start <= size:
            yield start, len(text)
            return
        # A window always adds text, even if most of it repeats the one before.
        end = find_split(text, max(start + size // 2, fresh), start + size)
        yield start, end
        start = _resume(text, start, end, overlap)


def _first_nonblank(text: str, start: int) -> int:
    ink = _NOT_BLANK.search(text, start)
    return ink.start() if ink else len(text)


def _resume(text: str, start: int, end: int, overlap: int) -> int:
    if not overlap or end == len(text):
        return end
    floor = max(start, end - overlap - 1)
    return min(end, find_split(text, floor, max(floor + 1, end - overlap // 2)))


@dataclass(frozen=True, slots=True)
class SimpleChunker:
    """Splits a text about every `chunk_size` characters, at the best boundary near by.

    Preferred is the end of a paragraph, then of a sentence, line, clause or word, in the second half
    of the size. Structure is ignored, except for the headings and the page of each passage.

    Attributes:
        chunk_size: maximum characters of a passage.

    Raises:
        ConfigError: a size below 1.
    """

    chunk_size: int = 1000

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ConfigError(
                f"A chunk size of {self.chunk_size} characters is not possible.",
                advice="Set chunk_size to 1 or more; 1000 is usual.",
            )

    def chunk(self, document: DocumentDraft) -> list[Chunk]:
        """Return passages in order, without overlap, that cover the whole text."""
        outline = Outline(document)
        spans = windows(document.text, size=self.chunk_size)
        return [outline.chunk(start, end) for start, end in spans]


@dataclass(frozen=True, slots=True)
class SlidingWindowChunker:
    """Splits a text into overlapping windows, so that text at a boundary is also whole in one window.

    Attributes:
        chunk_size: maximum characters of a passage.
        overlap: maximum characters shared with the passage before; at a good boundary about half.

    Raises:
        ConfigError: a size below 1, or an overlap below 0 or not smaller than the size.
    """

    chunk_size: int = 1000
    _: KW_ONLY
    overlap: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.chunk_size:
            raise ConfigError(
                f"An overlap of {self.overlap} in {self.chunk_size} characters is not possible.",
                advice="Set overlap to 0 or more and chunk_size above it; 200 of 1000 is usual.",
            )

    def chunk(self, document: DocumentDraft) -> list[Chunk]:
        """Return passages by start, each ending after the one before, that cover the whole text."""
        outline = Outline(document)
        spans = windows(document.text, size=self.chunk_size, overlap=self.overlap)
        return [outline.chunk(start, end) for start, end in spans]
