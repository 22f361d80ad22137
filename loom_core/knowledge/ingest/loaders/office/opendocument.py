"""OpenDocument texts (ODT) and presentations (ODP), see ISO/IEC 26300."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.loaders.archive import open_archive, read_part
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.titles import usable_title
from loom_core.knowledge.ingest.loaders.xml_tree import local_name, parse_xml

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator
    from xml.etree.ElementTree import Element

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_opendocument"]

_KIND = "an OpenDocument file"
_TITLE_STYLES = frozenset({"Title", "标题", "標題"})
_LEFT_OUT = frozenset(
    "alphabetical-index annotation bibliography desc illustration-index index-title note object-index"
    " page-thumbnail ruby-text table-index table-of-content title tracked-changes user-index".split()
)
"""Deleted text, comments, tables of contents, descriptions of pictures; notes have a place of their own."""

_PLACEHOLDERS = frozenset({"date-time", "footer", "header", "page-number"})
_BOXES = frozenset({"g", "frame"})
_MAX_COLUMNS = 256
_MAX_SPACES = 100
_UNITS = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72, "pc": 2.54 / 6, "px": 2.54 / 96}
_LENGTH = re.compile(r"(-?\d+(?:\.\d+)?)(cm|mm|in|pt|pc|px)")


def load_opendocument(source: Source) -> LoadedContent:
    """Read a text or a presentation.

    In a text, headings come from outline levels, and notes follow at the end. Of a presentation, each slide
    is a page: its title as a heading, its texts from top to bottom, then its notes. Charts read as tables.

    Raises:
        DocumentError: it is encrypted, broken, or a part of it is too large.
    """
    with open_archive(source, _KIND) as archive:
        names = frozenset(archive.namelist())
        manifest = "META-INF/manifest.xml"
        if manifest in names and b"encryption-data" in read_part(source, archive, manifest, _KIND):
            raise source.encryption_error()
        root = parse_xml(read_part(source, archive, "content.xml", _KIND))
        reader = _Reader(source, archive, root)
        for body in (element for element in root.iter() if local_name(element) in {"text", "presentation"}):
            if body.tag.endswith("office:1.0}text"):
                reader.read_text(body)
            elif body.tag.endswith("office:1.0}presentation"):
                reader.read_slides(body)
        metadata = _metadata(source, archive) if "meta.xml" in names else {}
    title = usable_title(str(metadata.pop("title", "")))
    if title:
        return reader.writer.finish(title=title, title_source="metadata", metadata=metadata)
    source_of_title = "heading" if reader.title else "none"
    return reader.writer.finish(title=reader.title, title_source=source_of_title, metadata=metadata)


class _Reader:
    """Walks elements in order, without recursion: hostile files nest deeper than Python's stack."""

    def __init__(self, source: Source, archive: zipfile.ZipFile, root: Element) -> None:
        self.writer = ContentWriter(source)
        self.title = ""
        self._source = source
        self._archive = archive
        self._objects = set(archive.namelist())
        self._page: int | None = None
        self._parents = {
            _attribute(style, "name"): _attribute(style, "parent-style-name")
            for style in root.iter()
            if local_name(style) == "style"
        }

    def read_text(self, body: Element) -> None:
        self._blocks(body)
        for note in body.iter():
            if local_name(note) == "note-body":
                text = " ".join(filter(None, (_text(part).strip() for part in _paragraphs(note))))
                self.writer.write("paragraph", text)

    def read_slides(self, body: Element) -> None:
        slides = [element for element in body if local_name(element) == "page"]
        if len(slides) > self._source.limits.max_pages:
            raise self._source.error(
                f"has {len(slides):,} slides, more than are read ({self._source.limits.max_pages:,}).",
                advice="Split it into smaller presentations.",
            )
        for number, slide in enumerate(slides, start=1):
            self._page = number
            self._slide(slide)

    def _slide(self, slide: Element) -> None:
        shapes = list(_shapes(slide))
        heading = next((shape for shape in shapes if _attribute(shape, "class") == "title"), None)
        title = clean_line(_lines(heading)) if heading is not None else ""
        self.writer.leave(level=1)
        self.writer.heading(title, level=1, page=self._page)
        if self._page == 1:
            self.title = title
        for shape in shapes:
            if shape is not heading and _attribute(shape, "class") not in _PLACEHOLDERS:
                self._shape(shape)
        for notes in slide:
            if local_name(notes) == "notes":
                for shape in _shapes(notes):
                    if _attribute(shape, "class") not in _PLACEHOLDERS:
                        self.writer.write("slide", _lines(shape), page=self._page)

    def _shape(self, shape: Element) -> None:
        for inner in shape:
            if local_name(inner) == "table":
                self._table(inner)
            elif local_name(inner) == "object":
                self._object(inner)
        self.writer.write("slide", _lines(shape), page=self._page)

    def _blocks(self, body: Element) -> None:
        """Write what is below an element, in order; what a text box holds follows its paragraph."""
        stack: list[tuple[Element, str]] = [(body, "")]  # with the mark before its first paragraph
        while stack:
            element, mark = stack.pop()
            name = local_name(element)
            if name in {"h", "p"}:
                self._paragraph(element, name, mark)
                stack.extend((box, "") for box in reversed(list(_find_anchors(element))))
            elif name == "table" and not _is_layout(element):
                self._table(element)
            elif name == "object":
                self._object(element)
            elif name not in _LEFT_OUT or element is body:
                mark = "- " if name in {"list-item", "list-header"} else mark
                stack.extend((inner, mark) for inner in reversed(list(element)))

    def _paragraph(self, element: Element, name: str, mark: str) -> None:
        text = _text(element)
        if not text.strip():
            return
        if name == "h":
            level = _attribute(element, "outline-level")
            self.writer.heading(text, level=int(level) if level.isdecimal() else 1)
        elif self._is_title(_attribute(element, "style-name")):
            self.title = self.title or clean_line(text)
            self.writer.heading(text, level=1)
        else:
            self.writer.write("list" if mark else "paragraph", f"{mark}{text.strip()}")

    def _is_title(self, style: str) -> bool:
        seen: set[str] = set()
        while style and style not in seen and style not in _TITLE_STYLES:
            seen.add(style)
            style = self._parents.get(style, "")
        return style in _TITLE_STYLES

    def _table(self, table: Element) -> None:
        header: list[str] | None = None
        rows: list[list[str]] = []
        below: dict[int, tuple[int, str]] = {}
        for part in table.iter():
            if local_name(part) == "table-header-rows" and header is None:
                header = next((_cells(row, {}) for row in part if local_name(row) == "table-row"), None)
            elif local_name(part) == "table-row" and (cells := _cells(part, below)) != header:
                rows.append(cells)
        write_table(self.writer, rows, header=header if header and rows else None, page=self._page)

    def _object(self, element: Element) -> None:
        """Write a chart that is embedded as a separate document, each once."""
        href = next((value for key, value in element.attrib.items() if key.endswith("}href")), "")
        name = posixpath.normpath(posixpath.join(href, "content.xml"))
        if name not in self._objects:
            return
        self._objects.discard(name)
        root = parse_xml(read_part(self._source, self._archive, name, _KIND))
        for chart in root.iter():
            if local_name(chart) == "chart" and chart.tag.endswith("chart:1.0}chart"):
                texts = (_lines(part) for part in chart.iter() if part.tag.endswith("chart:1.0}title"))
                kind = "paragraph" if self._page is None else "slide"
                self.writer.write(kind, ": ".join(filter(None, texts)), page=self._page)
                for table in chart.iter():
                    if local_name(table) == "table":
                        self._table(table)


def _attribute(element: Element, name: str) -> str:
    """Return an attribute's value, whatever its namespace."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _text(paragraph: Element) -> str:
    """Return a paragraph's running text, without notes, comments and what is anchored in it."""
    pieces: list[str] = []
    stack: list[Element | str] = [paragraph]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            pieces.append(piece)
            continue
        name = local_name(piece)
        if name == "s":
            count = _attribute(piece, "c")
            pieces.append(" " * (min(int(count), _MAX_SPACES) if count.isdecimal() else 1))
        elif name in {"tab", "line-break"}:
            pieces.append("\t" if name == "tab" else "\n")
        inside: list[Element | str] = [piece.text or ""]
        for child in piece:
            if local_name(child) not in _LEFT_OUT | _BOXES:
                inside.append(child)
            inside.append(child.tail or "")
        stack.extend(reversed(inside))
    return "".join(pieces)


def _find_anchors(paragraph: Element) -> Iterator[Element]:
    """Yield frames and groups inside a paragraph, the outermost only."""
    stack = list(reversed(paragraph))
    while stack:
        element = stack.pop()
        if local_name(element) in _BOXES:
            yield element
        elif local_name(element) not in _LEFT_OUT:
            stack.extend(reversed(element))


def _paragraphs(element: Element, *, also: Iterable[str] = ()) -> Iterator[Element]:
    """Paragraphs and headings below an element, those of tables within it too, and other elements by name."""
    wanted = {"h", "p", *also}
    stack = [element]
    while stack:
        inner = stack.pop()
        if local_name(inner) in wanted:
            yield inner
        elif local_name(inner) not in _LEFT_OUT or inner is element:
            stack.extend(reversed(inner))


def _is_layout(table: Element) -> bool:
    """Whether a table holds tables: what is in its cells is read block by block."""
    return any(local_name(inner) == "table" for inner in table.iter() if inner is not table)


def _cells(row: Element, below: dict[int, tuple[int, str]]) -> list[str]:
    """Return the texts of a row, each in its column.

    A cell over several columns is followed by empty ones, one over several rows is repeated.

    Args:
        row: the row.
        below: for each column the number of rows in which a text from above goes on; updated.
    """
    cells: list[str] = []
    for cell in row:
        if local_name(cell) in {"table-cell", "covered-table-cell"}:
            text = own = " ".join(filter(None, (_text(part).strip() for part in _paragraphs(cell))))
            lines = _count(cell, "number-rows-spanned")
            for _ in range(min(_count(cell, "number-columns-repeated"), _MAX_COLUMNS)):
                if local_name(cell) == "covered-table-cell":
                    lines, text = below.pop(len(cells), (1, own))
                if lines > 1:
                    below[len(cells)] = lines - 1, text
                cells.append(text)
    return cells[:_MAX_COLUMNS]


def _count(cell: Element, name: str) -> int:
    count = _attribute(cell, name)
    return int(count) if count.isdecimal() else 1


def _lines(shape: Element) -> str:
    """Return paragraphs of a shape on a line each, indented by their level in lists."""
    lines: list[str] = []
    stack = [(shape, 0)]
    while stack:
        element, depth = stack.pop()
        name = local_name(element)
        if name in {"h", "p"}:
            if text := clean_line(_text(element)):
                lines.append(f"{'  ' * max(depth - 1, 0)}{text}")
        elif name not in _LEFT_OUT | {"table"} or element is shape:
            stack.extend((inner, min(depth + (name == "list"), 9)) for inner in reversed(list(element)))
    return "\n".join(lines)


def _shapes(slide: Element) -> Iterator[Element]:
    """Yield shapes from top to bottom and left to right, groups opened."""
    stack = sorted(slide, key=_position, reverse=True)
    while stack:
        shape = stack.pop()
        if local_name(shape) == "g":
            stack.extend(sorted(shape, key=_position, reverse=True))
        elif local_name(shape) != "notes":
            yield shape


def _position(shape: Element) -> tuple[float, float]:
    return _length(_attribute(shape, "y")), _length(_attribute(shape, "x"))


def _length(value: str) -> float:
    match = _LENGTH.fullmatch(value)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


def _metadata(source: Source, archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return title, author, subject, tags and date, where set."""
    found: dict[str, list[str]] = {}
    for element in parse_xml(read_part(source, archive, "meta.xml", _KIND)).iter():
        if text := clean_line(element.text or ""):
            found.setdefault(local_name(element), []).append(text)
    fields: dict[str, Any] = {}
    for name, keys in (
        ("title", ("title",)),
        ("author", ("creator", "initial-creator")),
        ("subject", ("subject",)),
        ("date", ("date", "creation-date")),
    ):
        if values := next((found[key] for key in keys if key in found), None):
            fields[name] = values[0][:10] if name == "date" else values[0]
    if tags := found.get("keyword"):
        fields["tags"] = tags
    return fields
