"""Parts that Word and PowerPoint files share (ECMA-376): bounded XML, properties, charts and diagrams."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from loom_core.knowledge.ingest.loaders.cleaning import clean_line
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.xml_tree import XmlError, local_name, parse_xml

if TYPE_CHECKING:
    import zipfile
    from xml.etree.ElementTree import Element

    from docx.opc.coreprops import CoreProperties
    from pptx.parts.coreprops import CorePropertiesPart

    from loom_core.knowledge.ingest.loaders.content import ContentWriter
    from loom_core.knowledge.ingest.loaders.source import Source
    from loom_core.knowledge.model import BlockKind

__all__ = ["check_parts", "core_properties", "write_drawing"]

_XML = (".xml", ".rels")
_LIBRARIES = frozenset({"python-docx", "python-pptx"})


def check_parts(source: Source, archive: zipfile.ZipFile) -> None:
    """Refuse an XML part whose tree would not fit into reasonable memory, and close the archive.

    Raises:
        DocumentError: a part is larger than `LoadLimits.max_part_bytes`.
    """
    with archive:
        largest = max(
            (part.file_size for part in archive.infolist() if part.filename.endswith(_XML)), default=0
        )
    if largest > source.limits.max_part_bytes:
        raise source.error(
            f"has a part of {largest:,} bytes, more than can be parsed ({source.limits.max_part_bytes:,}).",
            advice="Split the document into smaller ones.",
        )


def core_properties(properties: CoreProperties | CorePropertiesPart) -> dict[str, Any]:
    """Return title, author, subject, tags and date (ECMA-376, part 2, section 11), where set."""
    fields: dict[str, Any] = {
        name: text
        for name in ("title", "author", "subject")
        if (text := clean_line(getattr(properties, name))) and text not in _LIBRARIES
    }
    if tags := [tag for piece in re.split("[,;，；、]", properties.keywords) if (tag := clean_line(piece))]:
        fields["tags"] = tags
    date = properties.modified or properties.created
    if date is not None:
        fields["date"] = date.date().isoformat()
    return fields


_CHARTS = ("/chart", "/chartEx")
_DIAGRAM = "/diagramData"
_CATEGORIES = ("cat", "xVal")
_VALUES = ("yVal", "val", "bubbleSize")
_DAY_ZERO = datetime(1899, 12, 30)
_DAY_ZERO_1904 = datetime(1904, 1, 1)
_DATED = re.compile(r"[ymd]", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')


class _Part(Protocol):
    @property
    def blob(self) -> bytes: ...


class PartRelationship(Protocol):
    """A relationship of a part, as python-docx and python-pptx both have it."""

    @property
    def is_external(self) -> bool: ...

    @property
    def reltype(self) -> str: ...

    @property
    def target_part(self) -> _Part: ...


def write_drawing(
    writer: ContentWriter, relation: PartRelationship, *, kind: BlockKind, page: int | None = None
) -> None:
    """Write a chart as its titles and a table of categories and series, a diagram as its texts.

    Values are the ones that the file keeps for display; the embedded workbook is not opened. A part that
    is no sound XML is left out: the rest of the document can still be read.

    Args:
        writer: where to.
        relation: leads to the part; if that is not a chart or diagram, nothing is written.
        kind: of the blocks for titles and texts.
        page: the slide it is on.
    """
    if relation.is_external or not relation.reltype.endswith((*_CHARTS, _DIAGRAM)):
        return
    try:
        root = parse_xml(relation.target_part.blob)
    except XmlError:
        return
    if relation.reltype.endswith(_DIAGRAM):
        texts = (_text(point) for point in root.iter() if local_name(point) == "pt")
        writer.write(kind, "\n".join(text for text in texts if text), page=page)
        return
    writer.write(kind, ": ".join(_titles(root)), page=page)
    if relation.reltype.endswith("/chartEx"):
        _write_extended(writer, root, page)
    else:
        _write_series(writer, root, page)


def _titles(chart: Element) -> list[str]:
    """Return the chart's title, then those of its axes."""
    titles = (_text(title) for title in chart.iter() if local_name(title) == "title")
    return list(dict.fromkeys(title for title in titles if title))


def _write_series(writer: ContentWriter, root: Element, page: int | None) -> None:
    """Write one row for each category; for series that have categories of their own, one table each."""
    tables: list[tuple[dict[int, str], list[str], list[dict[int, str]]]] = []
    from_1904 = any(
        local_name(element) == "date1904" and element.get("val", "1") in {"1", "true"} for element in root
    )
    day_zero = _DAY_ZERO_1904 if from_1904 else _DAY_ZERO
    for series in (element for element in root.iter() if local_name(element) == "ser"):
        parts = {local_name(child): child for child in series}
        name = next(iter(_points(parts["tx"], day_zero).values()), "") if "tx" in parts else ""
        none: dict[int, str] = {}
        categories = next((_points(parts[tag], day_zero) for tag in _CATEGORIES if tag in parts), none)
        columns = [_points(parts[tag], day_zero) for tag in _VALUES if tag in parts]
        if not tables or tables[-1][0] != categories:
            tables.append((categories, [], []))
        _, names, values = tables[-1]
        names += [name] * len(columns)
        values += columns
    for categories, names, values in tables:
        places = sorted({place for column in (categories, *values) for place in column})
        rows = [[column.get(place, "") for column in (categories, *values)] for place in places]
        write_table(writer, rows, header=["", *names], page=page)


def _write_extended(writer: ContentWriter, root: Element, page: int | None) -> None:
    """Write a chart of a newer kind (waterfall, treemap, funnel): one table for each of its data."""
    names = [_text(series) for series in root.iter() if local_name(series) == "series"]
    for number, data in enumerate(element for element in root.iter() if local_name(element) == "data"):
        columns = [
            {_index(point): clean_line(point.text or "") for point in level if local_name(point) == "pt"}
            for dimension in data
            for level in dimension
            if local_name(level) == "lvl"
        ]
        places = sorted({place for column in columns for place in column})
        rows = [[column.get(place, "") for column in columns] for place in places]
        name = names[number] if number < len(names) else ""
        write_table(writer, rows, header=[""] * (len(columns) - 1) + [name], page=page)


def _points(parent: Element, day_zero: datetime) -> dict[int, str]:
    """Return cached values by index; of categories on several levels, all of them with slashes between."""
    levels = [element for element in parent.iter() if local_name(element) == "lvl"]
    if not levels:
        code = next(
            (element.text or "" for element in parent.iter() if local_name(element) == "formatCode"), ""
        )
        points = {
            _index(point): _format_value(point, code, day_zero)
            for point in parent.iter()
            if local_name(point) == "pt"
        }
        if points or (literal := _text(parent)) == "":
            return points
        return {0: literal}
    found = {_index(point): [_value(point)] for point in levels[0] if local_name(point) == "pt"}
    for level in levels[1:]:
        # An outer label is given once, where it begins.
        labels = sorted((_index(point), _value(point)) for point in level if local_name(point) == "pt")
        label, at = "", 0
        for place in sorted(found):
            while at < len(labels) and labels[at][0] <= place:
                label, at = labels[at][1], at + 1
            found[place].insert(0, label)
    return {place: " / ".join(filter(None, labels)) for place, labels in found.items()}


def _index(point: Element) -> int:
    index = point.get("idx", "0")
    return int(index) if index.isdecimal() else 0


def _value(point: Element) -> str:
    return clean_line(next((child.text or "" for child in point if local_name(child) == "v"), ""))


def _format_value(point: Element, code: str, day_zero: datetime) -> str:
    """Format a cached value: 19.2 for 19.199999999999999, a date for the number of its day."""
    text = _value(point)
    code = _QUOTED.sub("", point.get("formatCode") or code)
    try:
        number = float(text)
    except ValueError:
        return text
    if _DATED.search(code.replace("General", "")) and 1 <= number < 2_958_466:
        moment = day_zero + timedelta(days=number)
        return moment.date().isoformat() if number.is_integer() else moment.isoformat(" ", "minutes")
    if "%" in code:
        return f"{float(f'{number * 100:.12g}'):g}%"
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(float(f"{number:.15g}"))


def _text(element: Element) -> str:
    """Return running text below an element: paragraphs of `a:t`, or a cached string."""
    return clean_line(
        "".join(
            (part.text or "") if local_name(part) in {"t", "v"} else " "
            for part in element.iter()
            if local_name(part) in {"t", "v", "p", "br"}
        )
    )
