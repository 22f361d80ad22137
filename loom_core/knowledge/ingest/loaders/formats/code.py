"""Source code: the text verbatim, split into functions, classes and methods."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_text
from loom_core.knowledge.ingest.loaders.content import LoadedContent
from loom_core.knowledge.ingest.loaders.formats.definitions import find_definition, language_of
from loom_core.knowledge.model import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.loaders.formats.definitions import CodeLanguage, Definition
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_code"]

_WHOLE = 1_500
"""Length in characters up to which a class stays one unit; a longer one is cut into its members."""

_DEEPEST = 8
_TAB = 4
_CLOSER = re.compile(r"[}\])]|\{|(?:end|else|elif|except|finally|catch|rescue|ensure|then|fi|done)\b")
_TRIPLE_QUOTES = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is not blank.

    Attributes:
        number: counted from 0, blank lines included.
        start: offset of its first character that is not white space.
        text: from there to its last one.
        indent: its indentation in columns.
        attached: whether it is a comment or decorator, which belongs to a definition right below it.
        closes: whether it only ends or continues what is above it.
    """

    number: int
    start: int
    text: str
    indent: int
    attached: bool
    closes: bool

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def load_code(source: Source) -> LoadedContent:
    """Read source code or a configuration file.

    Every block is one unit: a definition with the comments and decorators right above it, or the statements
    between two definitions. `name` is the dotted name (`Record.open`), `path` the names of the enclosing
    classes. A class longer than about 40 lines is split into its head and its members. Names come from how
    lines begin and what belongs together from indentation, so any common language works (`definitions`).
    """
    text = clean_text(decode(source.data, hint=source.charset)[0])
    language = language_of(source.extension or f".{source.path.name.lower()}")
    return LoadedContent(text, _CodeSplitter(language).split(_lines(text, language)))


def _lines(text: str, language: CodeLanguage) -> list[_Line]:
    lines: list[_Line] = []
    start = 0
    inside = ""  # what ends the comment or string that runs over this line
    for number, raw in enumerate(text.split("\n")):
        stripped = raw.strip()
        margin = raw[: len(raw) - len(raw.lstrip())]
        begin, start = start + len(margin), start + len(raw) + 1
        if not stripped:
            continue
        indent = sum(_TAB if char == "\t" else 1 for char in margin)
        if inside:
            # In a string indentation means nothing: the line follows whatever is above it.
            attached, closes = inside == "*/", inside != "*/"
            inside = "" if inside in stripped else inside
        else:
            attached = stripped.startswith(language.comments)
            closes = not attached and _CLOSER.match(stripped) is not None
            inside = _open_delimiter(stripped, language)
        lines.append(_Line(number, begin, stripped, indent, attached, closes))
    return lines


def _open_delimiter(line: str, language: CodeLanguage) -> str:
    """Return the end delimiter of a comment or string that is open at the end of the line, or empty."""
    if language.block_comments and line.startswith("/*") and "*/" not in line[2:]:
        return "*/"
    if language.triple_quotes:
        for quotes in _TRIPLE_QUOTES:
            if line.count(quotes) % 2:
                return quotes
    return ""


class _CodeSplitter:
    """Splits lines into units of code, level by level."""

    def __init__(self, language: CodeLanguage) -> None:
        self._language = language
        self._blocks: list[Block] = []

    def split(self, lines: Sequence[_Line]) -> tuple[Block, ...]:
        self._split(lines, ())
        return tuple(self._blocks)

    def _split(self, lines: Sequence[_Line], path: tuple[str, ...]) -> None:
        level = _level(lines)
        for unit in self._units(lines, level):
            head, definition = self._head(unit, level)
            if definition is None:
                self._add(unit, path, ".".join(path))
                continue
            name = ".".join((*path, definition.name))
            members = ()
            if definition.container and unit[-1].end - unit[0].start > _WHOLE and len(path) < _DEEPEST:
                members = self._members(unit, head)
            self._add(unit[: len(unit) - len(members)], path, name)
            if members:
                self._split(members, (*path, definition.name))

    def _add(self, lines: Sequence[_Line], path: tuple[str, ...], name: str) -> None:
        self._blocks.append(Block("code", lines[0].start, lines[-1].end, path, name=name))

    def _definition(self, line: _Line, level: int) -> Definition | None:
        """Return the definition on a line of this level; None for deeper lines, comments and closers."""
        if line.indent > level or (line.closes and not line.text.startswith("[")):
            return None
        return find_definition(line.text, self._language)

    def _head(self, unit: Sequence[_Line], level: int) -> tuple[int, Definition | None]:
        for index, line in enumerate(unit):
            if (definition := self._definition(line, level)) is not None:
                return index, definition
        return 0, None

    def _units(self, lines: Sequence[_Line], level: int) -> list[Sequence[_Line]]:
        """Split before every definition of this level, and where plain statements follow one."""
        cuts = {0, len(lines)}
        defining = False
        for index, line in enumerate(lines):
            if line.indent > level or line.closes:
                continue
            if self._definition(line, level) is not None:
                cuts.add(_with_comments(lines, index, level))
                defining = True
            elif defining and not line.attached and not self._language.sections:
                cuts.add(_with_comments(lines, index, level))
                defining = False
        return [lines[start:end] for start, end in pairwise(sorted(cuts))]

    def _members(self, unit: Sequence[_Line], head: int) -> Sequence[_Line]:
        """Return a class from its first member on, with the comments above that; empty if there is none."""
        inner = [line for line in unit[head + 1 :] if not line.closes and line.indent > unit[head].indent]
        level = _level(inner)
        for index in range(head + 1, len(unit)):
            line = unit[index]
            if line.indent == level and not line.closes and self._definition(line, level) is not None:
                return unit[_with_comments(unit, index, level) :]
        return ()


def _level(lines: Sequence[_Line]) -> int:
    """Return the outermost indentation."""
    return min((line.indent for line in lines if not line.closes), default=0)


def _with_comments(lines: Sequence[_Line], index: int, level: int) -> int:
    """Return the start of a unit: the adjacent comments and decorators above it."""
    first = index
    while index > 0 and lines[index - 1].number == lines[index].number - 1:
        index -= 1
        line = lines[index]
        if line.attached and line.indent <= level:
            first = index
        elif line.indent <= level and not line.closes:
            break  # a statement; what is deeper or closes may be a decorator's arguments
    return first
