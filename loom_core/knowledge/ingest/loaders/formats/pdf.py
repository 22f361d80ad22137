"""PDF: text by pdfium, paragraphs and headings from where the lines stand and how large they are."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.formats.pdf_layout import Hyphens, PdfLine, find_paragraphs
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

    from loom_core.knowledge.ingest.loaders.content import Content
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_pdf"]

_PDFIUM = threading.Lock()
"""pdfium keeps global state: one thread in it at a time, in the whole process."""

_HYPHEN = "\ufffe"
"""What pdfium puts for a hyphen and the line break after it."""

_ANGLES = 50
"""How many characters of a page are asked for their angle."""

_MAX_BOOKMARKS = 10_000
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?")
_PLACEHOLDERS = frozenset({"anonymous", "unknown", "unspecified", "user", "admin", "administrator"})


def load_pdf(source: Source) -> Content:
    """Read a PDF's text layer: paragraphs and headings with the page they begin on.

    Words hyphenated at a line's end are joined (see `Hyphens`), running heads and feet are dropped, a
    paragraph that runs over a page's end stays one. Headings come from the outline, else from the size of
    the type.

    Raises:
        DocumentError: encrypted, broken, too many pages, or nothing but pictures (there is no OCR).
    """
    with _PDFIUM:
        pages, bookmarks, metadata = _extract(source)
    writer = ContentWriter(source)
    paragraphs = find_paragraphs(pages, bookmarks)
    hyphens = Hyphens(paragraph.text for paragraph in paragraphs)
    for paragraph in paragraphs:
        text = join_lines(hyphens.joined(paragraph.text))
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
    """Lines by page, outline entries as (page, text) → level, and properties. Holds pdfium only here."""
    from pypdfium2 import PdfDocument, PdfiumError
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = PdfDocument(source.data)
    except PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise source.encrypted() from error
        raise source.broken("a PDF", str(error)) from error
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
                    raise source.too_long()
            return pages, _bookmarks(document), _metadata(document)
        except PdfiumError as error:
            raise source.broken("a PDF", f"page {len(pages) + 1}: {error}") from error


def _lines(page: PdfPage, number: int) -> list[PdfLine]:
    lines: list[PdfLine] = []
    with closing(_upright(page)) as text_page:
        width, height = page.get_size()
        position = 0  # in UTF-16 units, as pdfium counts
        for raw in re.findall(rf"[^\r\n{_HYPHEN}]+|[\r\n]+|{_HYPHEN}", text_page.get_text_range()):
            units = len(raw) + sum(1 for char in raw if char > "\uffff")
            text = clean_text(raw).strip()
            if raw == _HYPHEN and lines:
                lines[-1] = lines[-1].hyphenated()
            elif text:
                first = position + len(raw) - len(raw.lstrip())
                last = position + units - 1 - (len(raw) - len(raw.rstrip()))
                box = _turned(_box(text_page, first, last), page.get_rotation(), width, height)
                left, bottom, right, top = box
                size = _type_size(text_page, first) or max(top - bottom, 0.1)
                lines.append(PdfLine(text, number, left, bottom, right, size, page_height=height))
            position += units
    return lines


def _upright(page: PdfPage) -> PdfTextPage:
    """The text of a page, turned so that most of it is upright: else pdfium may read it from its end.

    Scanners store pages on their side, with the text that was recognised turned alike.
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
    """Left, bottom, right and top of the stretch between two positions of one line."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex

    boxes = [
        text_page.get_charbox(max(FPDFText_GetCharIndexFromTextIndex(text_page, position), 0), loose=True)
        for position in (first, last)
    ]
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return min(lefts), min(bottoms), max(rights), max(tops)


def _type_size(text_page: PdfTextPage, position: int) -> float:
    """Size of the type at a position, in points of the page; 0 if the file does not say."""
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


def _turned(
    box: tuple[float, float, float, float], rotation: int, width: float, height: float
) -> tuple[float, float, float, float]:
    """A box on a page as it is shown; `width` and `height` are those of the shown page."""
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
