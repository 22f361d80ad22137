"""From lines on pages to paragraphs and headings.

A PDF knows glyphs at positions, nothing more. The rules here are about the lines' geometry, all of them
relative to the type size, so that they hold for any page size and scale.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.loaders.cleaning import clean_line, join_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Hyphens", "PdfLine", "PdfParagraph", "find_paragraphs"]

_SOFT_HYPHEN = "\u00ad"
_EDGE = 0.12
"""Part of a page's height, at the top and at the bottom, where running heads and feet stand."""
_EDGE_LINES = 3
_LARGER = 1.15
_MAX_HEADING = 150
_LEVELS = 4
_BULLET = re.compile(r"[•◦▪■●○‣∙·–—*-]\s+\S")
_TERMINAL = re.compile(r"[.!?:。！？：…][\"'”’」』)）\]]*$")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class PdfLine:
    """A line of text where it stands, in points, y upwards, on the page as it is shown.

    `size` is that of its type: it stands in the file, while the height of glyphs depends on the fonts that a
    machine has, where the file brings none.
    """

    text: str
    page: int
    left: float
    bottom: float
    right: float
    size: float
    page_height: float

    def hyphenated(self) -> PdfLine:
        """The same line, ending in the first half of a word."""
        return replace(self, text=self.text + _SOFT_HYPHEN)


@dataclass(frozen=True, slots=True)
class PdfParagraph:
    """Lines that belong together, one below the other.

    Attributes:
        text: the lines.
        page: page of the first one, from 1.
        size: height of its type in points.
        level: 1 to 6 for a heading, else 0.
        is_item: whether it begins with a bullet.
    """

    text: str
    page: int
    size: float
    level: int = 0
    is_item: bool = False


def find_paragraphs(
    pages: Sequence[Sequence[PdfLine]], bookmarks: Mapping[tuple[int, str], int]
) -> list[PdfParagraph]:
    """Paragraphs in reading order, headings marked.

    Args:
        pages: lines by page, in the order in which pdfium reads them.
        bookmarks: outline entries: page and text to level. Where any is found in the text, the outline alone
            decides what is a heading; else the type size does.
    """
    repeated = _repeated(pages)
    lines = [
        line
        for page in pages
        for index, line in enumerate(page)
        if not (_at_edge(page, index) and _shape(line) in repeated)
    ]
    paragraphs = _group(_merge_rows(lines))
    return _by_outline(paragraphs, bookmarks) or _by_size(paragraphs)


def _shape(line: PdfLine) -> str:
    """What a running head has in common from page to page: its text, whatever the numbers."""
    return re.sub(r"\d+|\b[ivxlc]+\b", "#", line.text.lower())


def _at_edge(page: Sequence[PdfLine], index: int) -> bool:
    line = page[index]
    outermost = index < _EDGE_LINES or index >= len(page) - _EDGE_LINES
    return outermost and not _EDGE < (line.bottom + line.size / 2) / line.page_height < 1 - _EDGE


def _repeated(pages: Sequence[Sequence[PdfLine]]) -> set[str]:
    """Shapes of lines that stand at the edge of at least half of the pages (of both, if there are two)."""
    counts = Counter(
        shape
        for page in pages
        for shape in {_shape(line) for index, line in enumerate(page) if _at_edge(page, index)}
    )
    needed = max(2, (len(pages) + 1) // 2)
    return {shape for shape, count in counts.items() if count >= needed}


def _merge_rows(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Put pieces that stand side by side on one line, such as cells of a table, back together."""
    merged: list[PdfLine] = []
    for line in lines:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.page == line.page
            and abs(last.bottom - line.bottom) < 0.3 * line.size
            and line.left >= last.right - 0.3 * line.size
        ):
            merged[-1] = replace(last, text=f"{last.text} {line.text}", right=line.right)
        else:
            merged.append(line)
    return merged


def _group(lines: Sequence[PdfLine]) -> list[PdfParagraph]:
    if not lines:
        return []
    leading = _leading(lines)
    edges: dict[int, float] = {}
    for line in lines:
        edges[line.page] = max(edges.get(line.page, line.right), line.right)
    groups: list[list[PdfLine]] = [[lines[0]]]
    for line in lines[1:]:
        last = groups[-1][-1]
        if _begins_paragraph(groups[-1], line, leading, edges[last.page]):
            groups.append([line])
        else:
            groups[-1].append(line)
    return [_paragraph(group) for group in groups]


def _paragraph(group: Sequence[PdfLine]) -> PdfParagraph:
    return PdfParagraph(
        text="\n".join(line.text for line in group),
        page=group[0].page,
        size=median(line.size for line in group),
        is_item=_BULLET.match(group[0].text) is not None,
    )


def _leading(lines: Sequence[PdfLine]) -> float:
    """The usual distance between two lines, as a multiple of the type size."""
    steps = [
        (last.bottom - line.bottom) / line.size
        for last, line in pairwise(lines)
        if last.page == line.page and 0 < last.bottom - line.bottom < 3 * line.size
    ]
    return median(steps) if steps else 1.2


def _begins_paragraph(group: Sequence[PdfLine], line: PdfLine, leading: float, edge: float) -> bool:
    last = group[-1]
    if last.text.endswith(_SOFT_HYPHEN):
        return False
    if not 0.92 < line.size / last.size < 1.08 or _BULLET.match(line.text):
        return True
    step = last.bottom - line.bottom
    if last.page != line.page or step < 0:  # the next page, or the next column
        return not _runs_on(last.text, line.text)
    if step > 1.35 * leading * line.size:
        return True
    indented = line.left - last.left > 0.8 * line.size
    if indented and not _BULLET.match(group[0].text) and (len(group) > 1 or _TERMINAL.search(last.text)):
        return True
    short = last.right < edge - 0.15 * (edge - last.left)
    return short and _TERMINAL.search(last.text) is not None


def _runs_on(before: str, after: str) -> bool:
    """Whether a sentence is cut between two lines: nothing ends the first, nothing begins the second."""
    if _TERMINAL.search(before):
        return False
    return after[0].islower() or (_CJK.match(before[-1]) is not None and _CJK.match(after[0]) is not None)


def _by_outline(
    paragraphs: list[PdfParagraph], bookmarks: Mapping[tuple[int, str], int]
) -> list[PdfParagraph]:
    """Mark what the outline names; empty if it names nothing that is there."""
    marked = [
        replace(paragraph, level=bookmarks.get((paragraph.page, clean_line(join_lines(paragraph.text))), 0))
        for paragraph in paragraphs
    ]
    return marked if any(paragraph.level for paragraph in marked) else []


def _by_size(paragraphs: list[PdfParagraph]) -> list[PdfParagraph]:
    """Mark short paragraphs in larger type than the text's, the largest as level 1."""
    weights: Counter[float] = Counter()
    for paragraph in paragraphs:
        weights[_rounded(paragraph.size)] += len(paragraph.text)
    body = max(weights, key=lambda size: (weights[size], -size), default=0.0)
    headings = [paragraph for paragraph in paragraphs if _is_heading(paragraph, body)]
    sizes = sorted({_rounded(paragraph.size) for paragraph in headings}, reverse=True)
    if 2 * sum(len(paragraph.text) for paragraph in headings) > weights.total():
        return paragraphs  # a poster or a form: size says nothing here
    return [
        replace(paragraph, level=min(sizes.index(_rounded(paragraph.size)) + 1, _LEVELS))
        if _is_heading(paragraph, body)
        else paragraph
        for paragraph in paragraphs
    ]


def _is_heading(paragraph: PdfParagraph, body: float) -> bool:
    return (
        _rounded(paragraph.size) >= _LARGER * body
        and len(paragraph.text) <= _MAX_HEADING
        and not paragraph.is_item
        and re.search(r"[^\W\d_]", paragraph.text) is not None
        and not re.search(r"[.,;。，；]$", paragraph.text)
    )


def _rounded(size: float) -> float:
    return round(2 * size) / 2


_HYPHEN = "[-\u00ad\u2010]"
_LETTER = r"[^\W\d_]"
# Begins where a word does and never goes back, so that a run of letters without an end costs no time.
_BREAK = re.compile(
    rf"(?<!{_LETTER})(?<![-\u2010])({_LETTER}++(?:[-\u2010]{_LETTER}++)*){_HYPHEN}\n([a-zß-öø-ÿ]\w*)"
)
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")
_AND = frozenset("and or to und oder bis sowie noch et ou y o e en of".split())
"""After these a hyphen stands for the rest of a word: `Haupt-` + `und Nebensatz`."""

_SHORTEST = 3
"""Length from which both halves of a word, being words, speak for a hyphen: `error-prone`, not `the-ory`."""


class Hyphens:
    """Decide for each hyphen at a line end of a document whether it stays.

    Args:
        texts: the document's, with line feeds where lines end.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: set[str] = set()
        for text in texts:
            whole = _BREAK.sub(" ", text).replace("\u2010", "-").casefold()
            for word in _WORD.findall(whole):
                self._words.add(word)
                if "-" in word:
                    self._words.update(word.split("-"))

    def joined(self, text: str) -> str:
        """A text without hyphens that only a line's end brought about."""
        if "-\n" in text or "\u00ad\n" in text or "\u2010\n" in text:
            text = _BREAK.sub(self._join, text)
        return text.replace("\u00ad\n", "-")

    def _join(self, match: re.Match[str]) -> str:
        before, after = match[1], match[2]
        left = re.split("[-\u2010]", before.casefold())[-1]
        right = after.casefold()
        if left + right in self._words:
            return before + after
        if f"{left}-{right}" in self._words or f"{before.casefold()}-{right}" in self._words:
            return f"{before}-{after}"
        if right in _AND:
            return f"{before}- {after}"
        if min(len(left), len(right)) >= _SHORTEST and {left, right} <= self._words:
            return f"{before}-{after}"
        return before + after
