"""Jupyter notebooks: text as Markdown, code in fences, outputs in short."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_text
from loom_core.knowledge.ingest.loaders.content import LoadedContent
from loom_core.knowledge.ingest.loaders.formats.markdown import MarkdownReader
from loom_core.knowledge.ingest.loaders.titles import usable_title
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_notebook"]

_KIND = "a Jupyter notebook"
_MAX_LINES = 10
_MAX_LINE = 200
_DATA_URI = re.compile(r"data:[\w/+.-]{0,80};base64,[A-Za-z0-9+/=]+")
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_OBJECT = re.compile(r"<[^<>\n]{1,200}(?: object| at 0x[0-9a-fA-F]+| Axes)>|\[?<matplotlib[^\n]*")
"""Representation of a figure, or of an object without a text of its own."""

_FENCE = re.compile("`{3,}")


def load_notebook(source: Source) -> LoadedContent:
    """Read a notebook of any version of nbformat: Markdown cells verbatim, code cells as code blocks.

    Of the outputs only text is kept, up to 10 lines each, and the last line of an error.

    Raises:
        DocumentError: it is not the JSON of a notebook.
    """
    try:
        notebook = _members(json.loads(decode(source.data, hint=source.charset)[0].lstrip("\ufeff")))
    except ValueError as error:
        raise source.damage_error(_KIND, str(error)) from error
    except RecursionError as error:
        raise source.damage_error(_KIND, "it is nested too deep") from error
    sheets = [notebook, *map(_members, _items(notebook.get("worksheets")))]  # nbformat 3 has worksheets
    if all("cells" not in sheet for sheet in sheets):
        raise source.damage_error(_KIND, "it has no cells")
    metadata = _members(notebook.get("metadata"))
    writer = _Writer(_language(metadata))
    for sheet in sheets:
        for cell in _items(sheet.get("cells")):
            writer.write_cell(_members(cell))
    title, given = writer.first_heading, usable_title(_text(metadata.get("title")))
    return LoadedContent(
        "\n\n".join(writer.parts),
        tuple(writer.blocks),
        given or title,
        "metadata" if given else "heading" if title else "none",
    )


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(value: object) -> str:
    """Return a multi-line string, which nbformat also stores as a list of lines."""
    if isinstance(value, str):
        return value
    return "".join(line for line in _items(value) if isinstance(line, str))


def _language(metadata: dict[str, object]) -> str:
    info, kernel = _members(metadata.get("language_info")), _members(metadata.get("kernelspec"))
    return _text(info.get("name") or kernel.get("language"))


class _Writer:
    """Puts the cells together to one Markdown text.

    Each cell is parsed by itself, so that markup left open in one does not swallow the next.
    """

    def __init__(self, language: str) -> None:
        self.parts: list[str] = []
        self.blocks: list[Block] = []
        self.first_heading = ""
        self._language = language
        self._length = 0
        self._reader = MarkdownReader()

    def write_cell(self, cell: dict[str, object]) -> None:
        kind = cell.get("cell_type")
        source = _text(cell.get("source") or cell.get("input"))  # `input` is code in nbformat 3
        if kind == "code":
            self._write_code(source, self._language or _text(cell.get("language")))
            for output in _items(cell.get("outputs")):
                self._write_code(_shorten(_output_text(_members(output))))
        elif kind == "heading":  # nbformat 3
            level = cell.get("level")
            marks = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1)
            self._write_markdown(f"{marks} {' '.join(source.split())}")
        elif kind == "raw":
            self._write_code(source)
        else:
            self._write_markdown(source)

    def _write_markdown(self, text: str) -> None:
        text = clean_text(_DATA_URI.sub("", text)).strip("\n").rstrip()
        if not text.strip():
            return
        blocks = self._reader.read(text)
        if not self.blocks and blocks and blocks[0].kind == "heading":
            self.first_heading = self._heading(blocks, text)
        self._append(text, blocks)

    def _heading(self, blocks: list[Block], text: str) -> str:
        """Return the first block's heading without markup, as it is in the path of what is below."""
        path = blocks[1].path if len(blocks) > 1 else self._reader.path
        return path[0] if path else text[blocks[0].start : blocks[0].end]

    def _write_code(self, text: str, language: str = "") -> None:
        text = clean_text(text).strip("\n").rstrip()
        if text:
            fence = max(["``", *_FENCE.findall(text)], key=len) + "`"
            text = f"{fence}{language}\n{text}\n{fence}"
            self._append(text, [Block("code", 0, len(text), self._reader.path)])

    def _append(self, text: str, blocks: list[Block]) -> None:
        start = self._length
        self.blocks += [replace(block, start=block.start + start, end=block.end + start) for block in blocks]
        self.parts.append(text)
        self._length += len(text) + 2


def _output_text(output: dict[str, object]) -> str:
    """Return the text of an output: of a stream, a value or an error; empty for pictures and widgets."""
    if output.get("output_type") in {"error", "pyerr"}:
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    text = _text(output.get("text") or _members(output.get("data")).get("text/plain"))
    return "" if _OBJECT.fullmatch(text.strip()) else text


def _shorten(text: str) -> str:
    """Return the first lines of an output, as a terminal shows them."""
    lines = [
        line.rpartition("\r")[2][: _MAX_LINE + 1]
        for line in _ANSI.sub("", text).strip("\n").split("\n", _MAX_LINES)
    ]
    more = ["…"] if len(lines) > _MAX_LINES else []
    return "\n".join(
        [line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines[:_MAX_LINES]] + more
    )
