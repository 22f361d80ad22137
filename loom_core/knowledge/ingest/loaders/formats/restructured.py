"""reStructuredText (docutils, Sphinx): sections, lists, tables, code and notes, without their markup."""

from __future__ import annotations

import csv
import re
import unicodedata
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source
    from loom_core.knowledge.model import BlockKind

__all__ = ["load_restructured"]

_MAX_DEPTH = 20
"""Depth of indentation that is parsed; what is deeper is one paragraph."""

_HEAD = 10  # blocks at the beginning in which fields describe the document
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_EXPLICIT = re.compile(r"\.\.(?: |$)")
_DIRECTIVE = re.compile(r"\.\. {1,20}(\|[^|]{1,100}\| {1,20})?([A-Za-z][\w:.+-]{0,60}?) ?::(?: +(.*))?")
_NOTE = re.compile(r"\.\. \[([^\]\s]{1,60})\](?: +(.*))?")
_SUBSTITUTION = re.compile(r"^ *\.\. \|([^|\n]{1,100})\| replace:: *(.*)$", re.MULTILINE)
_BULLET = re.compile(r"[-*+•‣⁃](?: +|$)")
_NUMBER = re.compile(r"(\(?(?:\d{1,4}|#|[A-Za-z]|[ivxlcdm]{1,6}|[IVXLCDM]{1,6})[.)])(?: +|$)")
_FIELD = re.compile(r":((?! )[^:`]{1,80}(?:[:`][^:`]{1,80})?):(?: +(.*)|$)")
_OPTION = re.compile(
    r"((?:--?|/)[A-Za-z0-9?][\w-]{0,40}(?:[ =]<?[\w.-]{1,40}>?)?"
    r"(?:, (?:--?|/)[A-Za-z0-9?][\w-]{0,40}(?:[ =]<?[\w.-]{1,40}>?)?){0,5})  +(.*)"
)
_SIMPLE_BORDER = re.compile(r"={2,}(?: +=+)+|={4,}")
_GRID_BORDER = re.compile(r"\+(?:[-=]+\+)+")

_CODE = frozenset(
    "code code-block sourcecode parsed-literal highlight-block doctest testcode testoutput testsetup prompt "
    "ipython productionlist console".split()
)
_ADMONITIONS = {
    "note": "Note", "warning": "Warning", "tip": "Tip", "important": "Important", "caution": "Caution",
    "danger": "Danger", "attention": "Attention", "hint": "Hint", "error": "Error", "seealso": "See also",
    "todo": "Todo",
}  # fmt: skip
_VERSIONS = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "versionremoved": "Removed in version",
}
_TITLED = frozenset({"admonition", "topic", "sidebar", "rubric", "centered", "table"})
_BODY_ONLY = frozenset(
    "only container compound ifconfig rst-class cssclass highlights epigraph pull-quote tabs grid figure "
    "hlist acks glossary".split()
)
_SILENT = frozenset(
    "toctree contents image index include raw highlight highlightlang meta sectnum section-numbering module "
    "tabularcolumns currentmodule default-domain default-role role title header footer literalinclude "
    "program graphviz digraph graph autosummary automodule target-notes bibliography replace unicode date "
    "sectionauthor codeauthor moduleauthor inheritance-diagram".split()
)
_FIELDS = {"author": "author", "authors": "author", "date": "date", "作者": "author", "日期": "date"}
_SETTINGS = frozenset({"orphan", "nosearch", "nocomments", "tocdepth"})

_INLINE = re.compile(
    r"\\(?P<escaped>.?)"
    r"|``(?P<literal>.{1,500}?)``(?!`)"
    r"|(?P<role>:[\w:+.-]{1,60}:)?_?`(?P<text>[^`]{1,1000})`(?P<link>__?(?!\w))?"
    r"|\*\*(?P<strong>[^*\s](?:[^*]{0,500}[^*\s])?)\*\*"
    r"|(?<!\w)\*(?P<emphasis>[^*\s](?:[^*]{0,500}[^*\s])?)\*(?!\w)"
    r"|\|(?P<substitution>[^|\s](?:[^|]{0,98}[^|\s])?)\|(?:__?(?!\w))?"
    r"|\[(?P<note>[^\]\s]{1,60})\]_(?!\w)"
    r"|(?<!\w)(?P<reference>[^\W_](?:[\w.-]{0,60}?[^\W_])?)__?(?!\w)"
)
_LINK = re.compile(r"(.*?)\s*<([^<>]*)>", re.DOTALL)


def load_restructured(source: Source) -> LoadedContent:
    """Read reStructuredText as text; of the fields at its beginning `author` and `date` are taken."""
    text = clean_text(decode(source.data, hint=source.charset)[0])
    substitutions = {match[1]: match[2] for match in _SUBSTITUTION.finditer(text)}
    reader = _Reader(source, substitutions)
    reader.read([line.expandtabs(8).rstrip() for line in text.split("\n")])
    return reader.writer.finish(metadata=reader.metadata)


class _Reader:
    """Reads a text block by block, and what is indented under a block as a text of its own.

    Lists are collected line by line, and written when the outermost item ends.
    """

    def __init__(self, source: Source, substitutions: dict[str, str]) -> None:
        self.writer = ContentWriter(source)
        self.metadata: dict[str, Any] = {}
        self._substitutions = substitutions
        self._styles: list[tuple[str, bool]] = []  # adornments of headings, by level
        self._lines: list[str] = []
        self._items = 0  # that are open
        self._label = ""  # what comes before the next text: the mark of an item, `Note:`

    def read(self, lines: list[str], *, depth: int = 0) -> None:
        """Read lines without indentation in common.

        Args:
            lines: without tabs and white space at their ends.
            depth: number of blocks around them.
        """
        if depth > _MAX_DEPTH:
            self._text(" ".join(line.strip() for line in lines))
            return
        index = number = 0
        while index < len(lines):
            line = lines[index]
            if not line:
                index += 1
                continue
            automatic = line.startswith(("#. ", "#) "))
            number = number + 1 if automatic else 0
            if automatic:
                lines[index] = f"{number}{line[1:]}"
            index = self._block(lines, index, depth)

    def _block(self, lines: list[str], index: int, depth: int) -> int:
        """Read the block that begins at a line; return the index after it."""
        line = lines[index]
        if line[0] == " ":
            body, end = _indented(lines, index)
            self.read(body, depth=depth + 1)
            return end
        if _SIMPLE_BORDER.fullmatch(line) and (end := _simple_table_end(lines, index)):
            self._table(*_simple_table(lines[index:end]))
            return end
        if depth == 0 and (end := self._section(lines, index)):
            return end
        if _EXPLICIT.match(line):
            return self._explicit(lines, index, depth)
        if line.startswith("__ "):
            return _indented(lines, index + 1)[1]
        if _GRID_BORDER.fullmatch(line):
            end = index + sum(1 for _ in takewhile(lambda line: line[:1] in {"+", "|"}, lines[index:]))
            self._table(*_grid_table(lines[index:end]))
            return end
        if line.startswith("| ") or line == "|":
            return self._line_block(lines, index)
        if end := self._item(lines, index, depth):
            return end
        if line.startswith(">>> "):
            end = _paragraph_end(lines, index)
            self._code(lines[index:end])
            return end
        if _ADORNMENT.fullmatch(line) and len(line) >= 4:
            return index + 1  # a transition
        if index + 1 < len(lines) and lines[index + 1].startswith(" ") and not line.endswith("::"):
            body, end = _indented(lines, index + 1)
            self._define(line, body, depth)
            return end
        return self._paragraph(lines, index)

    def _section(self, lines: list[str], index: int) -> int:
        """Write a heading; return the index after it, or 0 if there is none."""
        over = _ADORNMENT.fullmatch(lines[index])
        under = _ADORNMENT.fullmatch(lines[index + 1]) if index + 1 < len(lines) else None
        if over and index + 2 < len(lines) and not under and lines[index + 2] == lines[index]:
            title, style, end = lines[index + 1].strip(), (over[1], True), index + 3
        elif under and not over and (len(under[0]) >= 4 or len(under[0]) >= _width(lines[index])):
            title, style, end = lines[index], (under[1], False), index + 2
        else:
            return 0
        if not title:
            return 0
        if style not in self._styles:
            self._styles.append(style)
        self.writer.heading(self._inline(title), level=self._styles.index(style) + 1)
        return end

    def _paragraph(self, lines: list[str], index: int) -> int:
        end = _paragraph_end(lines, index)
        text = "\n".join(line.strip() for line in lines[index:end])
        if not text.endswith("::"):
            self._text(text)
            return end
        text = text[:-2].rstrip() if text[:-2].endswith((" ", "\n")) else text[:-1]
        if text != ":":
            self._text(text)
        body, after = _indented(lines, end)
        self._code(body)
        return after

    def _item(self, lines: list[str], index: int, depth: int) -> int:
        """Read an item of a list of any kind; return the index after it, or 0 if there is none."""
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if match := _BULLET.match(line):
            mark, first, width = "-", line[match.end() :], match.end()
        elif (match := _NUMBER.match(line)) and (
            not following or following[0] == " " or _NUMBER.match(following)
        ):
            mark, first, width = match[1], line[match.end() :], match.end()
        elif match := _FIELD.fullmatch(line):
            mark, first, width = f"{self._inline(match[1])}:", match[2] or "", len(line)
            if self.writer.count < _HEAD and self._describes(match[1].casefold(), first):
                return _indented(lines, index + 1)[1]
        elif match := _OPTION.fullmatch(line):
            body, end = _indented(lines, index + 1)
            self._define(match[1], [match[2], *body], depth)
            return end
        else:
            return 0
        body, end = _indented(lines, index + 1, most=width)
        self._open_item()
        self._label = mark
        self._read_item([first, *body], depth)
        return end

    def _describes(self, name: str, value: str) -> bool:
        """Take metadata from a field; return whether it is only a setting for Sphinx."""
        if (key := _FIELDS.get(name)) and value:
            self.metadata[key] = clean_line(self._inline(value))
        return name in _SETTINGS

    def _define(self, term: str, body: list[str], depth: int) -> None:
        """Write a term with its definition."""
        self._open_item()
        self._line(self._inline(term))
        self._read_item(body, depth)

    def _open_item(self) -> None:
        if not self._items:
            self._flush()

    def _read_item(self, body: list[str], depth: int) -> None:
        self._items += 1
        self.read(body, depth=depth + 1)
        self._items -= 1
        self._label = ""
        if not self._items:
            self._flush("list")

    def _explicit(self, lines: list[str], index: int, depth: int) -> int:
        """Read a directive or a note; pass over a comment, a target or a substitution definition."""
        line = lines[index]
        if line == ".." and not "".join(lines[index + 1 : index + 2]):
            return index + 1
        body, end = _indented(lines, index + 1)
        if match := _DIRECTIVE.fullmatch(line):
            if not match[1]:
                self._directive(match[2].lower(), match[3] or "", body, depth)
        elif match := _NOTE.fullmatch(line):
            self._labelled(f"[{match[1].lstrip('#') or '#'}]", [match[2] or "", *body], depth)
        return end

    def _directive(self, name: str, argument: str, body: list[str], depth: int) -> None:
        name = name.rpartition(":")[2]
        head = list(takewhile(bool, body))
        content = body[len(head) :]
        options = {match[1]: match[2] or "" for line in head if (match := _FIELD.fullmatch(line))}
        head = list(takewhile(lambda line: not _FIELD.fullmatch(line), head))
        if name in _CODE:
            self._code([*head, *content])
        elif name == "math":
            self._text("\n".join(line for line in [argument, *head, *content] if line), raw=True)
        elif name in _ADMONITIONS:
            self._labelled(f"{_ADMONITIONS[name]}:", [argument, *head, *content], depth)
        elif name in _VERSIONS:
            version, _, text = argument.partition(" ")
            self._labelled(f"{_VERSIONS[name]} {version}:", [text, *head, *content], depth)
        elif name == "csv-table":
            self._text(argument)
            rows = list(csv.reader(content, skipinitialspace=True))
            named = next(csv.reader([options.get("header", "")], skipinitialspace=True), list[str]())
            self._table(
                [named] if named else rows[: _count(options)], rows if named else rows[_count(options) :]
            )
        elif name == "list-table":
            self._text(argument)
            rows = [[" ".join(cell) for cell in _split(row, "-")] for row in _split(content, "*")]
            self._table(rows[: _count(options)], rows[_count(options) :])
        elif name in _TITLED:
            self._text(" ".join([argument, *head]))
            self.read(content, depth=depth + 1)
        elif name in _BODY_ONLY:
            self.read(content or ([] if options else head), depth=depth + 1)
        elif name not in _SILENT and not (name == "class" and not content and "(" not in argument):
            self._define("\n".join([argument, *map(str.strip, head)]), content, depth)

    def _labelled(self, label: str, body: list[str], depth: int) -> None:
        self._label = f"{self._label} {label}".strip()
        if not "".join(body):
            self._text(label.rstrip(":"), raw=True)
        self.read(body, depth=depth + 1)
        self._label = ""

    def _line_block(self, lines: list[str], index: int) -> int:
        end = index
        while end < len(lines) and (lines[end].startswith(("| ", "  ")) or lines[end] == "|"):
            end += 1
        text = "\n".join(self._inline(line[2:].strip()) for line in lines[index:end])
        self._text(text, raw=True)
        return end

    def _table(self, header: list[list[str]], rows: list[list[str]]) -> None:
        self._flush()
        names = [" ".join(filter(None, cells)) for cells in zip(*header, strict=False)] if header else None
        write_table(
            self.writer,
            [[self._inline(cell) for cell in row] for row in rows],
            header=[self._inline(name) for name in names] if names else None,
        )

    def _code(self, lines: Iterable[str]) -> None:
        self._flush()
        self.writer.write("code", "\n".join(lines))

    def _text(self, text: str, *, raw: bool = False) -> None:
        """Write a paragraph, or add it to the list that is open."""
        text = text if raw else self._inline(join_lines(text))
        if not text.strip():
            return
        self._line(text)
        if not self._items:
            self._flush()

    def _line(self, text: str) -> None:
        label, self._label = self._label, ""
        indent = "  " * (self._items - 1 if label and self._items else self._items)
        self._lines.append(indent + (f"{label} {text}" if label else text))

    def _flush(self, kind: BlockKind | None = None) -> None:
        lines, self._lines = self._lines, []
        self.writer.write(kind or ("list" if self._items else "paragraph"), "\n".join(lines))

    def _inline(self, text: str, *, depth: int = 0) -> str:
        """Return a text without inline markup."""

        def replace(match: re.Match[str]) -> str:
            kind = match.lastgroup or ""
            if kind == "escaped":
                return "" if match[kind] == " " else match[kind]
            if kind == "substitution":
                name = match[kind]
                return self._inline(self._substitutions.get(name, name), depth=1) if not depth else name
            if kind == "note":
                return f"[{match[kind].lstrip('#*')}]" if match[kind].strip("#*") else ""
            return _interpreted(match) if match["text"] is not None else match[kind]

        return _INLINE.sub(replace, text)


def _interpreted(match: re.Match[str]) -> str:
    """Return the text of a role or link: ``:func:`~os.path.join``` → `join`."""
    text, role = re.sub(r"\\(.)", r"\1", match["text"]), (match["role"] or "").strip(":").rpartition(":")[2]
    if role == "math":
        return match["text"]
    if role in {"pep", "rfc"} and text.isdigit():
        return f"{role.upper()} {text}"
    if (role or match["link"]) and (link := _LINK.fullmatch(text)):
        return link[1] or link[2]
    if role and text.startswith("~"):
        return text.rpartition(".")[2].lstrip("~")
    return text.removeprefix("!") if role else text


def _indented(lines: list[str], start: int, *, most: int = 1_000) -> tuple[list[str], int]:
    """Return the indented lines from an index on, and the index after them.

    Args:
        lines: all lines.
        start: index of the first one that may be indented.
        most: number of columns up to which the indentation in common is taken away.
    """
    end = start
    while end < len(lines) and (not lines[end] or lines[end][0] == " "):
        end += 1
    while end > start and not lines[end - 1]:
        end -= 1
    body = lines[start:end]
    common = min((len(line) - len(line.lstrip()) for line in body if line), default=0)
    return [line[min(common, most) :] for line in body], end


def _paragraph_end(lines: list[str], index: int) -> int:
    while index < len(lines) and lines[index]:
        index += 1
    return index


def _count(options: dict[str, str]) -> int:
    """Return the number of rows that are a table's header."""
    count = options.get("header-rows", "").strip()
    return int(count) if count.isascii() and count.isdigit() and len(count) < 3 else 0


def _split(lines: Iterable[str], mark: str) -> list[list[str]]:
    """Return the items of a list, each as its lines."""
    items: list[list[str]] = []
    for line in lines:
        if line == mark or line.startswith(f"{mark} "):
            items.append([line[2:].strip() if mark == "-" else line[2:]])
        elif items:
            items[-1].append(line.strip() if mark == "-" else line[2:])
    return items


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _columns(line: str) -> str:
    """Return a line in which each character is as long as it is wide, as tables are laid out."""
    return line if line.isascii() else "".join(char + "\0" * (_width(char) - 1) for char in line)


def _simple_table_end(lines: list[str], index: int) -> int:
    """Return the index after the last border of a table, or 0 if there is none."""
    found = 0
    for position in range(index + 1, len(lines)):
        if _SIMPLE_BORDER.fullmatch(lines[position]):
            found += 1
            if found == 2 or not "".join(lines[position + 1 : position + 2]):
                return position + 1 if " " in lines[index] or found == 2 else 0
        elif not lines[position] and " " not in lines[index]:
            return 0
    return 0


def _simple_table(lines: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of the header and those below it; a row without a first cell continues the last one."""
    spans = [match.span() for match in re.finditer("=+", lines[0])]
    parts: list[list[list[str]]] = [[]]
    for line in lines[1:-1]:
        padded = _columns(line)
        if _SIMPLE_BORDER.fullmatch(line):
            parts.append([])
        elif line and not re.fullmatch(r"-[- ]*", line):
            ends = [*(start for start, _ in spans[1:]), len(padded)]
            cells = [
                padded[start:end].replace("\0", "").strip()
                for (start, _), end in zip(spans, ends, strict=True)
            ]
            rows = parts[-1]
            if rows and not cells[0] and len(cells) > 1:
                rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)]
            else:
                rows.append([cell if cell != "\\" else "" for cell in cells])
    return (parts[0], parts[1]) if len(parts) > 1 else ([], parts[0])


def _grid_table(lines: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of the header and those below; a cell over several columns is in the first of them."""
    header: list[list[str]] = []
    rows: list[list[str]] = []
    corners = [match.start() for match in re.finditer(r"\+", lines[0])]
    row: list[list[str]] = []
    for line in lines:
        if line[0] == "+":
            if any(map(any, row)):
                rows.append([join_lines("\n".join(filter(None, cell))) for cell in row])
            row = [[] for _ in corners[1:]]
            if "=" in line and not header:
                header, rows = rows, []
            continue
        padded, column, start = _columns(line), 0, corners[0] + 1
        for index, corner in enumerate(corners[1:]):
            if padded[corner : corner + 1] in {"|", "+"} or index == len(corners) - 2:
                cell = padded[start:corner].replace("\0", "").strip()
                row[column].append("" if re.fullmatch(r"[-=+]{3,}", cell) else cell)
                column, start = index + 1, corner + 1
    return header, rows
