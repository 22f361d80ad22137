"""Passages of one size in characters, each repeating the end of the one before."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.outline import Outline
from loom_core.knowledge.ingest.chunking.windows import windows

if TYPE_CHECKING:
    from loom_core.knowledge.model import Chunk, DocumentDraft

__all__ = ["SlidingWindowChunker"]


@dataclass(frozen=True, slots=True)
class SlidingWindowChunker:
    """Slides a window of `chunk_size` characters over a text, so that what a cut parts stays findable.

    Attributes:
        chunk_size: characters of a passage, at the most.
        overlap: characters shared with the passage before, at the most; at a good boundary about half.

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
        """Passages in order of their start, each ending after the one before, covering the whole text."""
        outline = Outline(document)
        spans = windows(document.text, size=self.chunk_size, overlap=self.overlap)
        return [outline.chunk(start, end) for start, end in spans]
