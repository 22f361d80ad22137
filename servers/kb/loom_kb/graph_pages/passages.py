"""Passages as a page shows them: long ones in stretches, as many as there is room for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.cjk import is_cjk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.store import DocumentReader
    from loom_core.knowledge.store.documents import ChunkRow

__all__ = ["Passages", "Place", "Span", "ViewPassage"]

_WHOLE = 1_200  # characters of a passage that are shown; of a longer one stretches of this length
_STRETCH = 1_000  # of which each begins so far after the one before
_AS_IT_IS = {"code", "table", "row"}  # kinds of passages in which every line stands for itself
_CLOSING, _OPENING = "，。、；：！？）》」』”", "（《「『“"  # of Chinese, beside which no space stands
# The end of a line within a paragraph.
_WRAP = re.compile(r"(?<=([^\s|]))\n(?=([^\s|>#*+\-\d]))")

Place = tuple[int, int, int]
"""A chunk's key, and offsets in its text."""

_Key = tuple[int, int]
"""A stretch of a passage: the chunk's key, and the number of the stretch."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a passage's text, by number of the passage and offsets in what is shown of it."""

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ViewPassage:
    """A passage, or a stretch of a long one.

    Attributes:
        id: the passage's, for `fetch`.
        text: what is shown of it.
        title: of its document.
        uri: likewise.
        heading: headings over it, from the outermost.
        before: whether text before this is left out.
        after: likewise.
    """

    id: str
    text: str
    title: str
    uri: str
    heading: tuple[str, ...]
    before: bool
    after: bool


class Passages:
    """The passages shown, as long as there is room for them."""

    def __init__(self, documents: DocumentReader, *, characters: int) -> None:
        self._documents = documents
        self._number: dict[_Key, int] = {}
        self._start: list[int] = []
        self._left = characters
        self.shown: list[ViewPassage] = []

    def add(self, places: Iterable[tuple[int, int]]) -> None:
        """Show the stretches in which places lie, given by chunk and offset."""
        wanted = list(places)
        chunks = self._documents.chunks(list({chunk for chunk, _ in wanted}))
        for chunk, start in wanted:
            row = chunks.get(chunk)
            if row is not None and self._left > 0:
                self._show(row, self._stretch(row, start))

    def place(self, place: Place | None) -> Span | None:
        """A place in what is shown, or None where it is not."""
        if place is None:
            return None
        chunk, start, end = place
        for key in ((chunk, 0), (chunk, start // _STRETCH)):
            number = self._number.get(key)
            if number is not None:
                begins, text = self._start[number], self.shown[number].text
                if begins <= start and start - begins <= len(text):
                    return Span(number, start - begins, min(end - begins, len(text)))
        return None

    @staticmethod
    def _stretch(row: ChunkRow, start: int) -> int:
        return start // _STRETCH if len(row.text) > _WHOLE else 0

    def _show(self, row: ChunkRow, stretch: int) -> None:
        key = row.key, stretch
        if key in self._number:
            return
        begins = stretch * _STRETCH
        text = row.text[begins : begins + _WHOLE]
        if row.kind not in _AS_IT_IS:
            text = _WRAP.sub(_unwrapped, text)
        self._number[key] = len(self.shown)
        self._start.append(begins)
        self._left -= len(text)
        self.shown.append(
            ViewPassage(
                id=row.id,
                text=text,
                title=row.title,
                uri=row.uri,
                heading=row.heading_path,
                before=begins > 0,
                after=begins + len(text) < len(row.text),
            )
        )


def _unwrapped(end: re.Match[str]) -> str:
    """A space of the same length, so that offsets stay: of no width where Chinese goes on."""
    before, after = end[1], end[2]
    chinese = (is_cjk(before) or before in _CLOSING) and (is_cjk(after) or after in _OPENING)
    return "\u200b" if chinese else " "
