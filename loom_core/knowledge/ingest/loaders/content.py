"""Content that a loader returns, and the writer that builds it block by block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders.source import Source
    from loom_core.knowledge.model import BlockKind, TitleSource

__all__ = ["ContentWriter", "HeadingStack", "LoadedContent"]

_TIGHT = frozenset({"row", "list"})


@dataclass(frozen=True, slots=True)
class LoadedContent:
    """A document's text and structure, as a loader returns it, without a URI."""

    text: str
    blocks: tuple[Block, ...] = ()
    title: str = ""
    title_source: TitleSource = "none"
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class HeadingStack:
    """Stack of the open headings at a point of a document."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    @property
    def path(self) -> tuple[str, ...]:
        """The texts of the open headings, outermost first."""
        return tuple(text for _, text in self._open)

    def enter(self, text: str, *, level: int) -> tuple[str, ...]:
        """Open a heading, closing those of its level and deeper; return the path above it."""
        self.leave(level=level)
        above = self.path
        self._open.append((level, text))
        return above

    def leave(self, *, level: int) -> None:
        """Close the headings of a level and deeper."""
        while self._open and self._open[-1][0] >= level:
            self._open.pop()


class ContentWriter:
    """Builds the text of a source that is not plain text (HTML, Office, tables), block by block.

    Blocks are separated by a blank line, rows of a table and items of a list by a line end only.
    Every piece is cleaned when it is added, so that offsets refer to the final text.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []
        self._headings = HeadingStack()
        self.depth = 0
        """Number of levels that headings are deeper than given: those of a document within another."""

    @property
    def count(self) -> int:
        """Number of blocks written so far."""
        return len(self._blocks)

    def heading(self, text: str, *, level: int, page: int | None = None) -> None:
        """Open a section; a heading of white space only is left out."""
        if text := clean_line(text):
            self._append("heading", text, level=min(max(level, 1) + self.depth, 6), page=page, name="")

    def leave(self, *, level: int) -> None:
        """Close the sections of a level and deeper; the next block is outside of them."""
        self._headings.leave(level=level)

    def write(self, kind: BlockKind, text: str, *, page: int | None = None, name: str = "") -> None:
        """Add a block under the open headings; one of white space only is left out.

        Raises:
            DocumentError: the text grows beyond `LoadLimits.max_text_chars`.
        """
        text = clean_text(text).strip("\n").rstrip()
        if kind != "code":
            text = text.lstrip()
        if text.strip():
            self._append(kind, text, level=0, page=page, name=name)

    def finish(
        self, *, title: str = "", title_source: TitleSource = "none", metadata: dict[str, Any] | None = None
    ) -> LoadedContent:
        """Return everything written so far."""
        return LoadedContent("".join(self._parts), tuple(self._blocks), title, title_source, metadata or {})

    def _append(self, kind: BlockKind, text: str, *, level: int, page: int | None, name: str) -> None:
        if self._blocks:
            tight = kind in _TIGHT and self._blocks[-1].kind == kind
            gap = "\n" if tight else "\n\n"
            self._parts.append(gap)
            self._length += len(gap)
        start, end = self._length, self._length + len(text)
        if end > self._source.limits.max_text_chars:
            raise self._source.length_error()
        self._parts.append(text)
        self._length = end
        path = self._headings.enter(text, level=level) if kind == "heading" else self._headings.path
        self._blocks.append(Block(kind, start, end, path, level, page, name))
