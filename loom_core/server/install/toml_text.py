"""TOML editor: an entry is a table `[section.name]` with its subtables.

The standard library reads TOML and does not write it. Writing one table is easy, and tables may be in any
order: a new one is appended, so nothing else changes.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from loom_core.errors import UnreadableTextError
from loom_core.server.install.text_format import UneditableTextError, newline_of

__all__ = ["TomlText"]

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|\#[^\n]*"
    r'|"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'"
    r"|[^\s\[\]{}\"'#]+)"
    r"|(?P<newline>\n)|(?P<open>[\[{])|(?P<close>[\]}])",
    re.DOTALL,
)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # str.splitlines splits at characters that are no line ends of TOML
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with a header: the parts of its name, and its lines up to the next header."""

    path: tuple[str, ...]
    start: int
    end: int


class TomlText:
    """TOML editor."""

    def read(self, text: str) -> dict[str, Any]:
        """See `TextFormat.read`."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
            place = _PLACE.search(message)
            reason = (message[: place.start()] if place else message).rstrip(".")
            if place and place[1]:
                raise UnreadableTextError(reason, line=int(place[1]), column=int(place[2])) from None
            raise UnreadableTextError.at(text, len(text), reason) from None

    def put(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.put`.

        Subtables of the entry are not rewritten.
        """
        old = self.read(text).get(section, {}).get(name)
        tables = _tables_of(text, section, name)
        if old is not None and not tables:
            raise UneditableTextError(f"{section}.{name} is not written as a table with a header.")
        newline = newline_of(text)
        below = {table.path[2] for table in tables if len(table.path) > 2}
        lines = _lines(section, name, {key: value for key, value in entry.items() if key not in below})
        table = newline.join(lines) + newline
        if not tables:
            if text and not text.endswith("\n"):
                text += newline
            return text + (newline if text.strip() else "") + table
        own = next((table for table in tables if len(table.path) == 2), None)
        start, end = (own.start, own.end) if own else (tables[0].start, tables[0].start)
        return text[:start] + table + text[end:]

    def drop(self, text: str, section: str, name: str) -> str:
        """See `TextFormat.drop`."""
        self.read(text)
        tables = _tables_of(text, section, name)
        if not tables:
            raise UneditableTextError(f"{section}.{name} is not written as a table with a header.")
        for table in reversed(tables):
            before, after = text[: table.start], text[table.end :]
            if not after.strip():
                text = before.rstrip() + newline_of(text) + after.lstrip() if before.strip() else after
            else:
                blank = _BLANK_LINES.match(after)
                text = before + after[blank.end() if blank else 0 :]
        return text

    def snippet(self, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.snippet`."""
        return "\n".join(_lines(section, name, entry)) + "\n"


def _tables_of(text: str, section: str, name: str) -> list[_Table]:
    return [table for table in _tables(text) if table.path[:2] == (section, name)]


def _tables(text: str) -> Iterator[_Table]:
    """Yield the tables with headers, in order, of a valid text."""
    for start, following in pairwise([*_header_starts(text), len(text)]):
        lines = _LINE.findall(text, start, following)
        path = _path(lines[0])
        # Comments in front of the next header are about that one.
        while following < len(text) and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            following -= len(lines.pop())
        yield _Table(path, start, following)


def _header_starts(text: str) -> Iterator[int]:
    depth, position, fresh = 0, 0, True
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise UneditableTextError(f"Nothing that is known stands at character {position}.")
        if token["open"]:
            if fresh and depth == 0:
                yield text.rfind("\n", 0, position) + 1
            depth += 1
        elif token["close"]:
            depth -= 1
        if token["newline"]:
            fresh = True
        elif token[0].strip(" \t\r"):
            fresh = False
        position = token.end()


def _path(header: str) -> tuple[str, ...]:
    """Split the name in a header line."""
    value: object = tomllib.loads(header)
    parts: list[str] = []
    while value:
        if isinstance(value, list):
            value = cast("list[object]", value)[0]
        else:
            ((part, value),) = cast("dict[str, object]", value).items()
            parts.append(part)
    return tuple(parts)


def _lines(section: str, name: str, entry: Mapping[str, Any]) -> list[str]:
    return [
        f"[{_key(section)}.{_key(name)}]",
        *(f"{_key(key)} = {_value(value)}" for key, value in entry.items()),
    ]


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, cast('list[object]', value)))}]"
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return f"{{ {', '.join(f'{_key(key)} = {_value(member)}' for key, member in members)} }}"
    raise UneditableTextError(f"A {type(value).__name__} is in the entry.")


def _string(text: str) -> str:
    """Format a basic string: JSON's escapes are valid in TOML; DEL has to be escaped, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
