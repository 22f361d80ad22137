"""Word documents (DOCX)."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.ingest.loaders.archive import open_archive
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.office.ooxml import check_parts, core_properties, write_drawing
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docx.document import Document
    from docx.oxml.document import CT_Document
    from docx.oxml.xmlchemy import BaseOxmlElement as Element

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_word"]

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_TEXT = frozenset({f"{_W}t", "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"})
_LEFT_OUT = frozenset(
    {_FALLBACK, *(f"{_W}{name}" for name in ("del", "moveFrom", "pPr", "rt", "txbxContent"))}
)
_DRAWINGS = ("chart", "relIds")
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_NOTES = ("/footnotes", "/endnotes")
_TITLE_STYLES = frozenset({"title", "标题", "標題", "文档标题", "titre", "titel", "título", "titolo", "表題"})
_HEADING_STYLE = re.compile(
    r"(?:heading|标题|標題|見出し|제목|titre|überschrift|título|titolo|заголовок|kop|rubrik|nagłówek)\s*([1-9])(?:\s.*)?",
    re.IGNORECASE,
)
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_BODY_TEXT = 9  # the outline level that means none


def load_word(source: Source) -> LoadedContent:
    """Read a Word document: headings by style or outline level, paragraphs, list items, table rows, notes.

    Localised and derived heading styles count (`标题 1`, a style based on `Heading 2`), and so does an
    outline level set on the paragraph. Charts and diagrams follow their paragraph. Tables of contents,
    deleted text and headers and footers are left out; footnotes come at the end.
    """
    from docx import Document

    check_parts(source, open_archive(source, "a Word document"))
    document = Document(io.BytesIO(source.data))
    reader = _Reader(ContentWriter(source), document)
    reader.read()
    metadata = core_properties(document.core_properties)
    title = usable_title(str(metadata.pop("title", "")))
    if title:
        return reader.writer.finish(title=title, title_source="metadata", metadata=metadata)
    source_of_title = "heading" if reader.title else "none"
    return reader.writer.finish(title=reader.title, title_source=source_of_title, metadata=metadata)


class _Reader:
    """Walks the body's XML: python-docx passes over content controls, text boxes and tracked insertions."""

    def __init__(self, writer: ContentWriter, document: Document) -> None:
        self.writer = writer
        self.title = ""
        self._document = document
        self._styles = _Styles(document.styles.element)

    def read(self) -> None:
        self._body(cast("CT_Document", self._document.element).body)
        for note in self._notes():
            self.writer.write("paragraph", note)

    def _body(self, parent: Element) -> None:
        for element in _blocks(parent):
            if element.tag == f"{_W}tbl":
                write_table(self.writer, _rows(element), header=_find_header(element))
            else:
                self._paragraph(element)

    def _paragraph(self, element: Element) -> None:
        if (text := _text(element)).strip():
            self._write(element, text)
        for box in _text_boxes(element):
            self._body(box)
        for name in _drawings(element):
            if (relation := self._document.part.rels.get(name)) is not None:
                write_drawing(self.writer, relation, kind="paragraph")

    def _write(self, element: Element, text: str) -> None:
        name, level, listed = self._styles.of(element)
        if name in _TITLE_STYLES:
            self.title = self.title or clean_line(text)
            self.writer.heading(text, level=1)
        elif level:
            self.writer.heading(text, level=level)
        elif listed is not None:
            self.writer.write("list", f"{'  ' * listed}- {text.strip()}")
        else:
            self.writer.write("paragraph", text)

    def _notes(self) -> Iterator[str]:
        from docx.oxml import parse_xml

        for relation in self._document.part.rels.values():
            if not relation.is_external and relation.reltype.endswith(_NOTES):
                for note in parse_xml(relation.target_part.blob):
                    if note.get(f"{_W}type") is None:  # the others are separator lines
                        yield " ".join(_text(paragraph).strip() for paragraph in note.iter(f"{_W}p"))


class _Styles:
    """Effects of a paragraph's style, following `basedOn`."""

    def __init__(self, root: Element) -> None:
        self._styles = {style.get(f"{_W}styleId", ""): style for style in root.iter(f"{_W}style")}

    def of(self, paragraph: Element) -> tuple[str, int, int | None]:
        """Return the style name in lower case, heading level (0 for none), list level (None for none)."""
        properties = paragraph.find(f"{_W}pPr")
        style_id = _value(properties, "pStyle")
        chain = self._chain(style_id)
        name = _value(chain[0], "name").lower() if chain else ""
        sources = [properties, *(style.find(f"{_W}pPr") for style in chain)]
        named = (_HEADING_STYLE.fullmatch(_value(style, "name")) for style in chain)
        level = _first_number(_value(source, "outlineLvl") for source in sources)
        if level is None:
            by_name = next((int(match[1]) for match in named if match), 0)
            level = by_name - 1 if by_name else _BODY_TEXT
        return name, level + 1 if level < _BODY_TEXT else 0, _list_level(sources)

    def _chain(self, style_id: str) -> list[Element]:
        chain: list[Element] = []
        while (style := self._styles.get(style_id)) is not None and style not in chain:
            chain.append(style)
            style_id = _value(style, "basedOn")
        return chain


def _value(parent: Element | None, name: str) -> str:
    child = parent.find(f"{_W}{name}") if parent is not None else None
    return child.get(f"{_W}val", "") if child is not None else ""


def _first_number(values: Iterator[str]) -> int | None:
    return next((int(value) for value in values if value.isdecimal()), None)


def _list_level(sources: list[Element | None]) -> int | None:
    for source in sources:
        numbering = source.find(f"{_W}numPr") if source is not None else None
        if numbering is not None:
            if _value(numbering, "numId") == "0":  # explicitly none
                return None
            level = _value(numbering, "ilvl")
            return min(int(level), 8) if level.isdecimal() else 0
    return None


def _blocks(body: Element) -> Iterator[Element]:
    """Paragraphs and tables in order, those inside content controls too, but not a table of contents."""
    stack = list(reversed(body))
    while stack:
        element = stack.pop()
        if element.tag == f"{_W}tbl" and element.find(f".//{_W}tbl") is not None:
            # A table around tables is layout: what its cells hold is read block by block.
            cells = (cell for row in _children(element, "tr") for cell in _children(row, "tc"))
            stack.extend(reversed([block for cell in cells for block in cell]))
        elif element.tag in {f"{_W}p", f"{_W}tbl"}:
            yield element
        elif element.tag == f"{_W}sdt":
            gallery = next(element.iter(f"{_W}docPartGallery"), None)
            if gallery is None or "table of contents" not in gallery.get(f"{_W}val", "").lower():
                stack.extend(reversed(list(element.iterfind(f"{_W}sdtContent/*"))))
        elif element.tag in {f"{_W}customXml", f"{_W}ins"}:
            stack.extend(reversed(element))


def _text(paragraph: Element) -> str:
    """Return a paragraph's text with insertions, links and formulas, without the rest.

    That is deletions, text boxes, field codes, and the reading above a word (`w:rt`), which would cut it.
    """
    pieces: list[str] = []
    stack = list(reversed(paragraph))
    while stack:
        element = stack.pop()
        if element.tag in _TEXT:
            pieces.append(element.text or "")
        elif (mark := _BREAKS.get(str(element.tag))) is not None:
            pieces.append(mark)
        elif element.tag not in _LEFT_OUT:
            stack.extend(reversed(element))
    return "".join(pieces)


def _drawings(paragraph: Element) -> Iterator[str]:
    """Yield ids of the parts that hold a paragraph's charts and diagrams."""
    for drawing in paragraph.iter(*(f"{{*}}{name}" for name in _DRAWINGS)):
        yield drawing.get(f"{_R}id") or drawing.get(f"{_R}dm") or ""


def _text_boxes(paragraph: Element) -> Iterator[Element]:
    for box in paragraph.iter(f"{_W}txbxContent"):
        within = next(box.iterancestors(f"{_W}p"), None) is paragraph
        if within and next(box.iterancestors(_FALLBACK), None) is None:
            yield box


def _find_header(table: Element) -> list[str] | None:
    """Return the first row, if Word repeats it on every page."""
    first = table.find(f"{_W}tr")
    if first is None or first.find(f"{_W}trPr/{_W}tblHeader") is None:
        return None
    return next(_rows(table, every=True))


def _rows(table: Element, *, every: bool = False) -> Iterator[list[str]]:
    """Cells by column: one over several columns is followed by empty ones, one over several rows is repeated.

    Args:
        table: a `w:tbl`.
        every: also a first row that is marked as the header.
    """
    above: list[str] = []
    rows = list(_children(table, "tr"))
    for index, row in enumerate(rows):
        cells: list[str] = []
        for cell in _children(row, "tc"):
            properties = cell.find(f"{_W}tcPr")
            merge = properties.find(f"{_W}vMerge") if properties is not None else None
            continued = merge is not None and merge.get(f"{_W}val", "continue") == "continue"
            text = above[len(cells)] if continued and len(cells) < len(above) else _cell_text(cell)
            span = _value(properties, "gridSpan")
            cells += [text, *[""] * (min(int(span), 63) - 1 if span.isdecimal() else 0)]
        above = cells
        header = index == 0 and not every and row.find(f"{_W}trPr/{_W}tblHeader") is not None
        if not header:
            yield cells


def _children(parent: Element, name: str) -> Iterator[Element]:
    """Yield the rows of a table, or the cells of a row, those inside content controls too."""
    stack = list(reversed(parent))
    while stack:
        element = stack.pop()
        if element.tag == f"{_W}{name}":
            yield element
        elif element.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml"}:
            stack.extend(reversed(element))


def _cell_text(cell: Element) -> str:
    paragraphs = (
        paragraph
        for paragraph in cell.iter(f"{_W}p")
        if next(paragraph.iterancestors(_FALLBACK), None) is None
    )
    return " ".join(text for paragraph in paragraphs if (text := _text(paragraph).strip()))
