"""Presentations (PPTX): a slide is a page, its title a heading."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.ingest.loaders.archive import open_archive
from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.office.ooxml import check_parts, core_properties, write_drawing
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pptx.oxml.xmlchemy import BaseOxmlElement as Element
    from pptx.shapes.base import BaseShape
    from pptx.slide import Slide
    from pptx.table import Table
    from pptx.text.text import TextFrame

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.office.ooxml import PartRelationship
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_slides"]

_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_FORMULA = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_FORMULA_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"


def load_slides(source: Source) -> LoadedContent:
    """Read a presentation: each slide's title, its text in `slide` blocks, tables as rows, notes last.

    Shapes are read from top to bottom and left to right, then charts and diagrams. The title is the one in
    the properties, else the first slide's.
    """
    from pptx import Presentation

    check_parts(source, open_archive(source, "a PowerPoint presentation"))
    presentation = Presentation(io.BytesIO(source.data))
    slides = list(presentation.slides)
    if len(slides) > source.limits.max_pages:
        raise source.error(
            f"has {len(slides):,} slides, more than are read ({source.limits.max_pages:,}).",
            advice="Split it into smaller presentations.",
        )
    writer = ContentWriter(source)
    for page, slide in enumerate(slides, start=1):
        _write_slide(writer, slide, page)
    metadata = core_properties(presentation.core_properties)
    title = usable_title(str(metadata.pop("title", "")))
    if title:
        return writer.finish(title=title, title_source="metadata", metadata=metadata)
    first = _title(slides[0]) if slides else ""
    return writer.finish(title=first, title_source="heading" if first else "none", metadata=metadata)


def _title(slide: Slide) -> str:
    shape = slide.shapes.title
    return clean_line(shape.text_frame.text) if shape is not None and shape.has_text_frame else ""


def _write_slide(writer: ContentWriter, slide: Slide, page: int) -> None:
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.graphfrm import GraphicFrame

    _simplify(slide)
    writer.leave(level=1)
    writer.heading(_title(slide), level=1, page=page)
    title = slide.shapes.title
    for shape in _in_reading_order(slide.shapes):
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if isinstance(shape, GraphicFrame) and shape.has_table:
            write_table(writer, _rows(shape.table), page=page)
        elif isinstance(shape, Shape):
            writer.write("slide", _lines(shape.text_frame), page=page)
    for relation in slide.part.rels.values():
        write_drawing(writer, cast("PartRelationship", relation), kind="slide", page=page)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        writer.write("slide", _lines(notes), page=page)


def _rows(table: Table) -> Iterator[list[str]]:
    """Yield the texts of a table's rows; a cell over several rows is repeated in each."""
    below: dict[int, tuple[int, str]] = {}  # texts that go on, by column, with the number of their rows
    for row in table.rows:
        texts: list[str] = []
        for column, cell in enumerate(row.cells):
            lines, text = cell.span_height, cell.text
            if cell.is_spanned:
                lines, text = below.pop(column, (1, text))
            if lines > 1:
                below[column] = lines - 1, text
            texts.append(text)
        yield texts


def _simplify(slide: Slide) -> None:
    """Replace what python-pptx passes over: a shape with alternatives by the first, a formula by its text."""
    root = slide.element
    for alternatives in list(root.iter(f"{_MC}AlternateContent")):
        for shape in list(alternatives.iterfind(f"{_MC}Choice[1]/*")):
            alternatives.addprevious(shape)
        cast("Element", alternatives.getparent()).remove(alternatives)
    for formula in list(root.iter(_FORMULA)):
        run = root.makeelement(f"{_A}r")
        run.append(root.makeelement(f"{_A}t"))
        run[0].text = "".join(part.text or "" for part in formula.iter(_FORMULA_TEXT))
        formula.addprevious(run)


def _in_reading_order(shapes: Iterable[BaseShape]) -> Iterator[BaseShape]:
    """Yield shapes by position, groups opened; one without a position comes first."""
    from pptx.shapes.group import GroupShape

    stack = [iter(sorted(shapes, key=_position))]
    while stack:
        shape = next(stack[-1], None)
        if shape is None:
            stack.pop()
        elif isinstance(shape, GroupShape):
            stack.append(iter(sorted(shape.shapes, key=_position)))
        else:
            yield shape


def _position(shape: BaseShape) -> tuple[int, int]:
    return (shape.top or 0, shape.left or 0)


def _lines(frame: TextFrame) -> str:
    """Return paragraphs on a line each, indented by their level, so that a list still shows."""
    return "\n".join(
        f"{'  ' * paragraph.level}{text}"
        for paragraph in frame.paragraphs
        if (text := clean_line(paragraph.text))
    )
