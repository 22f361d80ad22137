"""Tables as self-contained rows: each cell with the name of its column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.loaders.cleaning import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom_core.knowledge.ingest.loaders.content import ContentWriter

__all__ = ["write_table"]

_PROBE = 50
_MAX_HEADER = 80
_NUMERIC = re.compile(
    r"[-+(]?[$€£¥￥]?\s?\d[\d,.\s]*(?:e[-+]?\d+)?[%)]?|\d{1,4}[-/.年]\d{1,2}(?:[-/.月]\d{1,4}日?)?.*",
    re.IGNORECASE,
)


def write_table(
    writer: ContentWriter,
    rows: Iterable[Sequence[str]],
    *,
    name: str = "",
    page: int | None = None,
    header: Sequence[str] | None = None,
) -> None:
    """Write a table's rows as `row` blocks, `column: value; column: value`.

    Without a header the cells of a row are joined by ` | `. Lines above the header that fill one cell only (a
    caption, a remark) become paragraphs. Empty cells and empty rows are left out.

    Args:
        writer: the writer of the document.
        rows: cells, row by row; rows may differ in length. Read once, so that it may be a generator.
        name: the sheet's name, for the blocks.
        page: the slide or page the table is on.
        header: names of the columns if the source marks them; else detected from the first full row.
    """
    cells = ([clean_line(cell) for cell in row] for row in rows)
    filled = (row for row in cells if any(row))
    probe = [row for row, _ in zip(filled, range(_PROBE), strict=False)]
    if header is None:
        while len(probe) > 2 and _is_caption(probe):
            writer.write("paragraph", next(cell for cell in probe.pop(0) if cell), page=page)
        if _is_header(probe):
            header = probe.pop(0)
    else:
        header = [clean_line(cell) for cell in header]
    written = False
    for row in _chain(probe, filled):
        writer.write("row", _render(row, header or ()), page=page, name=name)
        written = True
    if header and not written:
        writer.write("row", " | ".join(cell for cell in header if cell), page=page, name=name)


def _chain(first: Iterable[list[str]], then: Iterable[list[str]]) -> Iterator[list[str]]:
    yield from first
    yield from then


def _render(row: Sequence[str], header: Sequence[str]) -> str:
    if not header:
        return " | ".join(cell for cell in row if cell)
    named = [
        f"{header[index]}: {cell}" if index < len(header) and header[index] else cell
        for index, cell in enumerate(row)
        if cell
    ]
    return "; ".join(named)


def _is_caption(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is a caption: one cell above rows with three or more."""
    width = max(sum(1 for cell in row if cell) for row in rows[1:])
    return sum(1 for cell in rows[0] if cell) == 1 and width >= 3


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: short, different words, and no gaps.

    A single column has a header only if all other rows are numbers or dates.
    """
    if len(rows) < 2:
        return False
    first = [cell for cell in rows[0] if cell]
    used = {index for row in rows[1:] for index, cell in enumerate(row) if cell}
    unnamed = [index for index in used if index >= len(rows[0]) or not rows[0][index]]
    if len(unnamed) * 3 > len(used) or len(set(first)) < len(first):
        return False
    if any(len(cell) > _MAX_HEADER or _NUMERIC.fullmatch(cell) for cell in first):
        return False
    if len(used) > 1:
        return True
    return all(_NUMERIC.fullmatch(cell) for row in rows[1:] for cell in row if cell)
