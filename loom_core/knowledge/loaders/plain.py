"""Plain text: paragraphs as they are laid out, headings where they are unmistakable."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.files.encoding import decode
from loom_core.knowledge.loaders.cleaning import clean_line, clean_text
from loom_core.knowledge.loaders.content import Content, HeadingStack
from loom_core.knowledge.loaders.headings import Line, find_headings, is_rule
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from loom_core.knowledge.loaders.source import Source

__all__ = ["load_plain", "read_plain"]

_LINE = re.compile(r"[^\n]*\n?")
_UNWRAPPED = 160
"""Length in columns of a line that nobody wrapped: where there is one, every line is a paragraph."""


def load_plain(source: Source) -> Content:
    """Read plain text; the text stays as it is."""
    return read_plain(decode(source.data, hint=source.charset)[0])


def read_plain(text: str) -> Content:
    """Find the paragraphs and headings of a text.

    A paragraph ends at a blank line, at a line that is indented where the one before is not, and, in text
    whose lines are not wrapped, at each line's end. An underlined first heading is taken for the title.
    """
    text = clean_text(text)
    lines = _lines(text)
    levels = find_headings(lines)
    headings = HeadingStack()
    blocks: list[Block] = []
    paragraph: list[Line] = []

    def end_paragraph() -> None:
        blocks.extend(
            Block("paragraph", piece[0].start, piece[-1].end, headings.path)
            for piece in _paragraphs(text, paragraph)
        )
        paragraph.clear()

    for index, line in enumerate(lines):
        level = levels.get(index)
        if level is None and line.text and not is_rule(line.text):
            paragraph.append(line)
            continue
        end_paragraph()
        if level is not None:
            path = headings.enter(clean_line(line.text), level=level)
            blocks.append(Block("heading", line.start, line.end, path, level))
    end_paragraph()
    first = blocks[0] if blocks else None
    return Content(text, tuple(blocks)) if first is None else _titled(text, blocks, first)


def _titled(text: str, blocks: list[Block], first: Block) -> Content:
    """Only an underlined heading at the very top is a title; `第一部` and `1. Scope` are not."""
    underlined = first.kind == "heading" and is_rule(text[first.end :].lstrip().split("\n", 1)[0].strip())
    title = clean_line(text[first.start : first.end]) if underlined else ""
    return Content(text, tuple(blocks), title, "heading" if underlined else "none")


def _lines(text: str) -> list[Line]:
    lines: list[Line] = []
    for match in _LINE.finditer(text):
        stripped = match[0].strip()
        start = match.start() + (len(match[0]) - len(match[0].lstrip()) if stripped else 0)
        lines.append(Line(start, start + len(stripped), stripped))
    return lines


def _paragraphs(text: str, lines: list[Line]) -> list[list[Line]]:
    """Cut lines without a blank one between them into paragraphs."""
    if not lines:
        return []
    if any(_is_unwrapped(line.text) for line in lines):
        return [[line] for line in lines]
    pieces: list[list[Line]] = [[lines[0]]]
    for before, line in pairwise(lines):
        if _indented(text, line) and not _indented(text, before):
            pieces.append([line])
        elif _indented(text, line) and line.text and text[line.start - 1] == "\u3000":
            pieces.append([line])  # Chinese paragraphs open with two full-width spaces, one-liners too
        else:
            pieces[-1].append(line)
    return pieces


def _indented(text: str, line: Line) -> bool:
    return line.start > 0 and text[line.start - 1] in " \t\u3000"


def _is_unwrapped(line: str) -> bool:
    if len(line) > _UNWRAPPED or line.isascii():
        return len(line) > _UNWRAPPED
    return sum(2 if char >= "\u2e80" else 1 for char in line) > _UNWRAPPED
