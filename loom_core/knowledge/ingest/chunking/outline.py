"""Outline of a document: the headings, page and kind of each span."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from loom_core.knowledge.model import Block, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import BlockKind, DocumentDraft

__all__ = ["Outline"]

_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")


class Outline:
    """Structure of a document's text, which gives passages their headings and page.

    Attributes:
        text: the document's text.
        blocks: its non-blank blocks; paragraphs if the document has no structure.
        paths: for each block the headings above its text, outermost first. The path of a heading includes the
            heading itself, and that of a class's head includes the class.
    """

    __slots__ = ("_document", "_starts", "blocks", "paths", "text")

    def __init__(self, document: DocumentDraft) -> None:
        self._document = document
        self.text = document.text
        given = document.blocks or _paragraphs(document.text)
        self.blocks: Sequence[Block] = [b for b in given if not _is_blank(document.text, b.start, b.end)]
        self.paths = [_path(self.text, self.blocks, index) for index in range(len(self.blocks))]
        self._starts = [block.start for block in self.blocks]

    def chunk(self, start: int, end: int) -> Chunk:
        """Return the passage `text[start:end]`, which is not blank, stripped of white space.

        Where it spans several sections, its heading path is what they have in common; headings at
        its end whose own text is elsewhere do not count.
        """
        text = self.text[start:end]
        start += len(text) - len(text.lstrip())
        text = text.strip()
        end = start + len(text)
        inside = self._inside(start, end)
        body = [i for i in inside if self.blocks[i].kind != "heading"] or inside
        return Chunk(
            text=text,
            start=start,
            end=end,
            title=self._document.title,
            title_source=self._document.title_source,
            heading_path=self._below_title(_common_prefix([self.paths[i] for i in body])),
            page=self.blocks[inside[0]].page if inside else None,
            kind=_kind({self.blocks[i].kind for i in body}),
            name=_name({block.name for i in body if (block := self.blocks[i]).kind == "code" and block.name}),
        )

    def _inside(self, start: int, end: int) -> range:
        """Return the indexes of the blocks that a span touches, or of the block before it."""
        first = bisect_right(self._starts, start) - 1
        after = bisect_left(self._starts, end)
        if 0 <= first < after - 1 and self.blocks[first].end <= start:
            first += 1
        return range(max(first, 0), after)

    def _below_title(self, path: tuple[str, ...]) -> tuple[str, ...]:
        if path and _fold(path[0]) == _fold(self._document.title):
            return path[1:]
        return path


def _paragraphs(text: str) -> Iterator[Block]:
    for match in _PARAGRAPH.finditer(text):
        yield Block("paragraph", match.start(), match.end())


def _is_blank(text: str, start: int, end: int) -> bool:
    # Usually the first character is not white space, which avoids copying the text.
    return start >= end or (text[start].isspace() and text[start:end].isspace())


def _path(text: str, blocks: Sequence[Block], index: int) -> tuple[str, ...]:
    block = blocks[index]
    depth = len(block.path)
    below = blocks[index + 1].path if index + 1 < len(blocks) else ()
    opens = len(below) > depth and below[:depth] == block.path
    if block.kind == "heading":
        # As in the path of the blocks below, without markup; else as written.
        name = below[depth] if opens else " ".join(text[block.start : block.end].split())
        return (*block.path, name)
    if opens and block.kind == "code" and block.name.rpartition(".")[2] == below[depth]:
        return below[: depth + 1]
    return block.path


def _common_prefix(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the longest common prefix of all paths."""
    if not paths:
        return ()
    # All paths lie between the least and the greatest, so what these two share, all share.
    least, greatest = min(paths), max(paths)
    length = 0
    while length < len(least) and least[length] == greatest[length]:
        length += 1
    return least[:length]


def _kind(kinds: set[BlockKind]) -> BlockKind:
    return kinds.pop() if len(kinds) == 1 else "paragraph"


def _name(names: set[str]) -> str:
    """Return the common name of units of code: `Record` for `Record.open` and `Record.close`."""
    return ".".join(_common_prefix([tuple(name.split(".")) for name in names]))


def _fold(heading: str) -> str:
    return " ".join(heading.split()).casefold()
