"""PDF: text by pdfium; paragraphs and headings by layout and type size.

A PDF has only glyphs at positions. The rules for paragraphs use the lines' geometry, all of
them relative to the type size, so that they hold for any page size and scale.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["Dehyphenator", "PdfLine", "find_paragraphs", "load_pdf"]

_PDFIUM = threading.Lock()
"""pdfium keeps global state: one thread in it at a time, in the whole process."""

_HYPHEN = "\ufffe"
"""Character that pdfium uses for a hyphen and the line break after it."""

_ANGLES = 50
"""Number of characters of a page whose angle is sampled."""

_MARK = re.compile(r"(\d{1,3}|[*†‡§])\s*(?=\S)")
_MAX_BOOKMARKS = 10_000
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?")
_PLACEHOLDERS = frozenset({"anonymous", "unknown", "unspecified", "user", "admin", "administrator"})


def load_pdf(source: Source) -> LoadedContent:
    """Read a PDF's text layer: paragraphs and headings with the page they begin on.

    Words hyphenated at a line's end are joined (see `Dehyphenator`), running heads and feet are dropped, a
    paragraph that runs over a page's end stays one. Headings come from the outline, else from the size of
    the type.

    Raises:
        DocumentError: it is encrypted or broken, has too many pages, or only pictures (there is no OCR).
    """
    with _PDFIUM:
        pages, bookmarks, metadata = _extract(source)
    writer = ContentWriter(source)
    paragraphs = find_paragraphs(pages, bookmarks)
    hyphens = Dehyphenator(paragraph.text for paragraph in paragraphs)
    for paragraph in paragraphs:
        text = _LEADERS.sub(" … ", join_lines(hyphens.dehyphenate(paragraph.text)))
        if paragraph.level:
            writer.heading(text, level=paragraph.level, page=paragraph.page)
        else:
            writer.write("list" if paragraph.is_item else "paragraph", text, page=paragraph.page)
    if not writer.count:
        raise source.error(
            f"has no text on its {len(pages)} page{'s' if len(pages) != 1 else ''}: it is probably a scan.",
            advice="Loom does no OCR: recognise its text first, for example with ocrmypdf.",
        )
    title = usable_title(metadata.pop("title", ""))
    return writer.finish(title=title, title_source="metadata" if title else "none", metadata=metadata)


def _extract(source: Source) -> tuple[list[list[PdfLine]], dict[tuple[int, str], int], dict[str, Any]]:
    """Return lines by page, outline entries as (page, text) → level, and properties. Locks pdfium."""
    from pypdfium2 import PdfDocument, PdfiumError
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = PdfDocument(source.data)
    except PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise source.encryption_error() from error
        raise source.damage_error("a PDF", str(error)) from error
    with document:
        if len(document) > source.limits.max_pages:
            raise source.error(
                f"has {len(document):,} pages, more than are read ({source.limits.max_pages:,}).",
                advice="Split it into smaller files.",
            )
        pages: list[list[PdfLine]] = []
        length = 0
        try:
            for number in range(len(document)):
                with closing(document[number]) as page:
                    pages.append(_lines(page, number + 1))
                length += sum(len(line.text) for line in pages[-1])
                if length > source.limits.max_text_chars:
                    raise source.length_error()
            return pages, _bookmarks(document), _metadata(document)
        except PdfiumError as error:
            raise source.damage_error("a PDF", f"page {len(pages) + 1}: {error}") from error


def _lines(page: PdfPage, number: int) -> list[PdfLine]:
    lines: list[PdfLine] = []
    with closing(_upright(page)) as text_page:
        width, height = page.get_size()
        position = 0  # in UTF-16 units, as pdfium counts
        for raw in re.findall(rf"[^\r\n{_HYPHEN}]+|[\r\n]+|{_HYPHEN}", text_page.get_text_range()):
            units = len(raw) + sum(1 for char in raw if char > "\uffff")
            text = clean_text(raw).strip()
            if raw == _HYPHEN and lines:
                lines[-1] = lines[-1].with_hyphen()
            elif text:
                first = position + len(raw) - len(raw.lstrip())
                last = position + units - 1 - (len(raw) - len(raw.rstrip()))
                box = _rotate(_box(text_page, first, last), page.get_rotation(), width, height)
                left, bottom, right, top = box
                size = _type_size(text_page, first) or max(top - bottom, 0.1)
                if mark := _MARK.match(text):
                    after = _type_size(text_page, first + mark.end())
                    if after > _LARGER * size:  # a raised number of a footnote
                        text, size = f"{mark[1]} {text[mark.end() :]}", after
                lines.append(PdfLine(text, number, left, bottom, right, size, page_height=height))
            position += units
    return lines


def _upright(page: PdfPage) -> PdfTextPage:
    """Return the text of a page, turned upright: else pdfium may read it from its end.

    Scanners store pages sideways, with the recognised text rotated likewise.
    """
    from pypdfium2.raw import FPDFText_CountChars, FPDFText_GetCharAngle

    text_page = page.get_textpage()
    count = FPDFText_CountChars(text_page)
    angles = Counter(
        round(FPDFText_GetCharAngle(text_page, index) / (math.pi / 2)) % 4
        for index in range(0, count, max(1, count // _ANGLES))
    )
    rotation = -90 * max(angles, key=lambda quarter: angles[quarter], default=0) % 360
    if not angles or page.get_rotation() == rotation:
        return text_page
    text_page.close()
    page.set_rotation(rotation)
    return page.get_textpage()


def _box(text_page: PdfTextPage, first: int, last: int) -> tuple[float, float, float, float]:
    """Return left, bottom, right and top of the span between two positions of one line."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex

    boxes = [
        text_page.get_charbox(max(FPDFText_GetCharIndexFromTextIndex(text_page, position), 0), loose=True)
        for position in (first, last)
    ]
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return min(lefts), min(bottoms), max(rights), max(tops)


def _type_size(text_page: PdfTextPage, position: int) -> float:
    """Return the size of the type at a position, in points of the page; 0 if the file does not say."""
    from pypdfium2.raw import (
        FS_MATRIX,
        FPDFText_GetCharIndexFromTextIndex,
        FPDFText_GetFontSize,
        FPDFText_GetMatrix,
    )

    matrix, index = FS_MATRIX(), max(FPDFText_GetCharIndexFromTextIndex(text_page, position), 0)
    if not FPDFText_GetMatrix(text_page, index, matrix):
        return 0.0
    return FPDFText_GetFontSize(text_page, index) * abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5


def _rotate(
    box: tuple[float, float, float, float], rotation: int, width: float, height: float
) -> tuple[float, float, float, float]:
    """Rotate a box to the shown page; `width` and `height` are those of the shown page."""
    left, bottom, right, top = box
    if rotation == 90:
        return bottom, height - right, top, height - left
    if rotation == 180:
        return width - right, height - top, width - left, height - bottom
    if rotation == 270:
        return width - top, left, width - bottom, right
    return box


def _bookmarks(document: PdfDocument) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for bookmark in islice(document.get_toc(), _MAX_BOOKMARKS):
        target = bookmark.get_dest()
        page = target.get_index() if target is not None else None
        if page is not None and (text := clean_line(bookmark.get_title())):
            found.setdefault((page + 1, text), min(bookmark.level + 1, 6))
    return found


def _metadata(document: PdfDocument) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, name in (("Title", "title"), ("Author", "author"), ("Subject", "subject")):
        value = clean_line(document.get_metadata_value(key))
        if value and value.lower() not in _PLACEHOLDERS:
            fields[name] = value
    keywords = re.split("[,;，；、]", document.get_metadata_value("Keywords"))
    if tags := [tag for piece in keywords if (tag := clean_line(piece))]:
        fields["tags"] = tags
    dated = document.get_metadata_value("ModDate") or document.get_metadata_value("CreationDate")
    if match := _DATE.match(dated):
        fields["date"] = "-".join(part for part in match.groups() if part)
    return fields


_SOFT_HYPHEN = "\u00ad"
_EDGE = 0.12
"""Share of a page's height, at top and bottom, that may hold running heads and feet."""
_WIDE_EDGE = 0.2
"""The same for a line with the page's number above or below all others."""
_EDGE_LINES = 3
_LARGER = 1.15
_MAX_HEADING = 150
_LEVELS = 4
_BULLET = re.compile(r"[•◦▪■●○‣∙·–—*-]\s+\S")
# Begins where a run of dots does and never goes back, so that a long one costs no time.
_LEADERS = re.compile(r"(?<![\s.·…])\s*+(?:(?:[.·] ){4,}+[.·]?+|[.·…]{8,}+)\s*+(?=\w)")
"""Dots between an entry of a table of contents and its page, or between a row of a table and its numbers."""
_TERMINAL = re.compile(r"[.!?:。！？：…][\"'”’」』)）\]]*$")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class PdfLine:
    """A line of text with its position, in points, y upwards, on the page as it is shown.

    `size` is that of its type: the file gives it, while the height of glyphs depends on the fonts that a
    machine has, where the file brings none.
    """

    text: str
    page: int
    left: float
    bottom: float
    right: float
    size: float
    page_height: float

    def with_hyphen(self) -> PdfLine:
        """Return the same line, marked as ending in the first half of a word."""
        return replace(self, text=self.text + _SOFT_HYPHEN)


@dataclass(frozen=True, slots=True)
class PdfParagraph:
    """Lines that belong together, one below the other.

    Attributes:
        text: the lines.
        page: page of the first one, from 1.
        size: height of its type in points.
        level: 1 to 6 for a heading, else 0.
        is_item: whether it begins with a bullet, or is a line with leaders.
    """

    text: str
    page: int
    size: float
    level: int = 0
    is_item: bool = False


def find_paragraphs(
    pages: Sequence[Sequence[PdfLine]], bookmarks: Mapping[tuple[int, str], int]
) -> list[PdfParagraph]:
    """Return paragraphs in reading order, headings marked.

    Args:
        pages: lines by page, in the order in which pdfium reads them.
        bookmarks: outline entries: page and text to level. Where any is found in the text, the outline alone
            decides what is a heading; else the type size does.
    """
    paragraphs = _group([line for page in _drop_running_heads(pages) for line in page])
    return _by_outline(paragraphs, bookmarks) or _by_size(paragraphs)


def _drop_running_heads(pages: Sequence[Sequence[PdfLine]]) -> list[list[PdfLine]]:
    """Drop heads and feet: those of half of the pages, those with the page's number, those of chapters."""
    repeated = _find_running_heads(pages)
    merged = [
        _merge_rows(
            [
                line
                for index, line in enumerate(page)
                if not (_at_edge(page, index) and _shape(line) in repeated)
            ]
        )
        for page in pages
    ]
    places, shapes = _find_page_numbers(merged), _find_chapter_heads(merged)
    return [
        [
            line
            for index, line in enumerate(page)
            if not (
                (_is_outermost(page, index) and _places(line) & places)
                or (index == 0 and _shape(line) in shapes and _stands_apart(page))
            )
        ]
        for page in merged
    ]


def _shape(line: PdfLine) -> str:
    """Return the part of a running head that is the same on each page: its text, whatever the numbers."""
    return re.sub(r"\d+|\b[ivxlc]+\b", "#", line.text.lower())


def _at_edge(page: Sequence[PdfLine], index: int) -> bool:
    line = page[index]
    outermost = index < _EDGE_LINES or index >= len(page) - _EDGE_LINES
    return outermost and not _EDGE < (line.bottom + line.size / 2) / line.page_height < 1 - _EDGE


def _find_running_heads(pages: Sequence[Sequence[PdfLine]]) -> set[str]:
    """Return the shapes of running heads: lines at the edge of at least half of the pages (of two: both)."""
    counts = Counter(
        shape
        for page in pages
        for shape in {_shape(line) for index, line in enumerate(page) if _at_edge(page, index)}
    )
    needed = max(2, (len(pages) + 1) // 2)
    return {shape for shape, count in counts.items() if count >= needed}


def _is_outermost(page: Sequence[PdfLine], index: int) -> bool:
    line = page[index]
    return index in {0, len(page) - 1} and not _WIDE_EDGE < line.bottom / line.page_height < 1 - _WIDE_EDGE


def _places(line: PdfLine) -> set[tuple[int, int]]:
    """Return where a page's number would be: its distance to the page's index, and its height, about."""
    words = line.text.split()
    numbers = {int(word) for word in (words[0], words[-1]) if word.isdecimal() and len(word) < 5}
    return {(number - line.page, round(line.bottom) + near) for number in numbers for near in (-1, 0, 1)}


def _find_page_numbers(pages: Sequence[Sequence[PdfLine]]) -> set[tuple[int, int]]:
    """Return the places of page numbers: where a third of the pages have theirs, with any other words."""
    counts = Counter(
        place
        for page in pages
        for place in {
            place for index, line in enumerate(page) if _is_outermost(page, index) for place in _places(line)
        }
    )
    needed = _third(pages)
    return {place for place, count in counts.items() if count >= needed}


def _stands_apart(page: Sequence[PdfLine]) -> bool:
    """Whether the first line is at the edge, in no larger type than the next one, and far above it."""
    if len(page) < 2 or not _at_edge(page, 0):
        return False
    first, second = page[0], page[1]
    return first.bottom - second.bottom > 2 * first.size and first.size <= 1.1 * second.size


def _find_chapter_heads(pages: Sequence[Sequence[PdfLine]]) -> set[str]:
    """Return the shapes of first lines that two pages share, where a third of the pages have such a line."""
    firsts = [page[0] for page in pages if _stands_apart(page)]
    heights = Counter(round(line.bottom) for line in firsts)
    needed = _third(pages)
    shapes = Counter(_shape(line) for line in firsts if heights[round(line.bottom)] >= needed)
    return {shape for shape, count in shapes.items() if count > 1 and re.search(r"[^\W\d_]{2}", shape)}


def _third(pages: Sequence[Sequence[PdfLine]]) -> int:
    return max(3, (len(pages) + 2) // 3)


def _merge_rows(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Merge adjacent pieces on one line, such as cells of a table."""
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
        is_item=(_BULLET.match(group[0].text) or _LEADERS.search(group[-1].text)) is not None,
    )


def _leading(lines: Sequence[PdfLine]) -> float:
    """Return the usual distance between two lines, as a multiple of the type size."""
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
    if _LEADERS.search(last.text) or (_LEADERS.search(line.text) and last.text[-1].isdigit()):
        return True
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
    """Whether a sentence continues across two lines: the first has no end mark, the second no beginning."""
    if _TERMINAL.search(before):
        return False
    return after[0].islower() or (_CJK.match(before[-1]) is not None and _CJK.match(after[0]) is not None)


def _by_outline(
    paragraphs: list[PdfParagraph], bookmarks: Mapping[tuple[int, str], int]
) -> list[PdfParagraph]:
    """Mark headings by the outline; empty if no entry is found in the text."""
    marked = [
        replace(paragraph, level=bookmarks.get((paragraph.page, clean_line(join_lines(paragraph.text))), 0))
        for paragraph in paragraphs
    ]
    return marked if any(paragraph.level for paragraph in marked) else []


def _by_size(paragraphs: list[PdfParagraph]) -> list[PdfParagraph]:
    """Mark short paragraphs in larger type than the body as headings, the largest as level 1."""
    weights: Counter[float] = Counter()
    for paragraph in paragraphs:
        weights[_round_size(paragraph.size)] += len(paragraph.text)
    body = max(weights, key=lambda size: (weights[size], -size), default=0.0)
    headings = [paragraph for paragraph in paragraphs if _is_heading(paragraph, body)]
    sizes = sorted({_round_size(paragraph.size) for paragraph in headings}, reverse=True)
    if 2 * sum(len(paragraph.text) for paragraph in headings) > weights.total():
        return paragraphs  # a poster or a form: size says nothing here
    return [
        replace(paragraph, level=min(sizes.index(_round_size(paragraph.size)) + 1, _LEVELS))
        if _is_heading(paragraph, body)
        else paragraph
        for paragraph in paragraphs
    ]


def _is_heading(paragraph: PdfParagraph, body: float) -> bool:
    return (
        _round_size(paragraph.size) >= _LARGER * body
        and len(paragraph.text) <= _MAX_HEADING
        and not paragraph.is_item
        and re.search(r"[^\W\d_]", paragraph.text) is not None
        and not re.search(r"[.,;。，；]$", paragraph.text)
    )


def _round_size(size: float) -> float:
    return round(2 * size) / 2


_LINE_HYPHEN = "[-\u00ad\u2010]"
_LETTER = r"[^\W\d_]"
# Begins where a word does and never goes back, so that a run of letters without an end costs no time.
_BREAK = re.compile(
    rf"(?<!{_LETTER})(?<![-\u2010])({_LETTER}++(?:[-\u2010]{_LETTER}++)*){_LINE_HYPHEN}\n([a-zß-öø-ÿ]\w*)"
)
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")
_AND = frozenset("and or to und oder bis sowie noch et ou y o e en of".split())
"""After these a hyphen stands for the rest of a word: `Haupt-` + `und Nebensatz`."""

_SHORTEST = 3
"""Length from which both halves of a word, being words, speak for a hyphen: `error-prone`, not `the-ory`."""


class Dehyphenator:
    """Decides for each hyphen at a line end of a document whether it stays.

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

    def dehyphenate(self, text: str) -> str:
        """Return a text without the hyphens that only a line end caused."""
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
