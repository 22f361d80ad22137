"""Passages of one size in characters, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.knowledge.ingest.chunking.outline import Outline
from loom_core.knowledge.ingest.chunking.windows import windows

if TYPE_CHECKING:
    from loom_core.knowledge.model import Chunk, DocumentDraft

__all__ = ["SimpleChunker"]


@dataclass(frozen=True, slots=True)
class SimpleChunker:
    """Cuts a text about every `chunk_size` characters, at the best boundary near by.

    Preferred is the end of a paragraph, then of a sentence, line, clause or word, in the second half
    of the size. Structure is not looked at, except to tell headings and page of each passage.

    Attributes:
        chunk_size: characters of a passage, at the most.

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
        """Passages in order, without overlap, that cover the whole text."""
        outline = Outline(document)
        spans = windows(document.text, size=self.chunk_size)
        return [outline.chunk(start, end) for start, end in spans]
