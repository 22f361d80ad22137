"""JSON, with comments and trailing commas where the client reads those."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from loom_core.server.install.text_format import (
    UneditableTextError,
    UnreadableTextError,
    line_start,
    newline_of,
)

__all__ = ["JsonText"]

_DEPTH = 200  # levels; no configuration has so many, and the reader recurses
_EDITED = 2  # levels whose members are looked at one by one: the file, and its section of servers
_UNIT = "  "
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRICT_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and where it stands: from `start` up to `end`. `members` are those of an object."""

    start: int
    end: int
    value: Any
    members: tuple[_Member, ...] = ()
    trailing_comma: bool = False

    def member(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)


@dataclass(frozen=True, slots=True)
class _Member:
    key: str
    start: int
    node: _Node


class JsonText:
    """Edits JSON.

    Args:
        comments: whether comments and trailing commas are allowed.
    """

    def __init__(self, *, comments: bool) -> None:
        self._comments = comments

    def read(self, text: str) -> dict[str, Any]:
        """See `TextFormat.read`."""
        root = self._root(text)
        return {} if root is None else root.value

    def put(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.put`."""
        root = self._root(text)
        if root is None:
            head = text.rstrip()
            before = head + newline_of(text) if head else ""
            return before + _rendered({section: {name: entry}}, newline=newline_of(text)) + newline_of(text)
        holder = root.member(section)
        if holder is None:
            return self._with_member(text, root, root, section, {name: entry})
        if holder.node.value is None:
            return _replaced(text, root, holder, {name: entry})
        if not isinstance(holder.node.value, dict):
            raise UneditableTextError(f"{section!r} is no object.")
        old = holder.node.member(name)
        if old is not None:
            return _replaced(text, root, old, entry)
        return self._with_member(text, root, holder.node, name, entry)

    def drop(self, text: str, section: str, name: str) -> str:
        """See `TextFormat.drop`."""
        root = self._root(text)
        holder = root.member(section) if root else None
        member = holder.node.member(name) if holder else None
        if holder is None or member is None:
            raise UneditableTextError(f"There is no {name!r} in {section!r}.")
        members = holder.node.members
        previous = members[members.index(member) - 1] if member is not members[0] else None
        start, end = member.start, member.node.end
        after = self._skip(text, end)
        if text[after] == ",":
            end = after + 1
        elif previous is not None:
            comma = self._skip(text, previous.node.end)
            first, blanks = line_start(text, start)
            if first + len(blanks) != start or "\n" not in text[end : holder.node.end]:
                return text[:comma] + text[end:]
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
        text = _without(text, start, end)
        opened = holder.node.start + 1
        closing = _STRICT_BLANK.match(text, opened)
        if closing and text[closing.end()] == "}":
            text = text[:opened] + text[closing.end() :]
        return text

    def snippet(self, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.snippet`."""
        return _rendered({section: {name: entry}}) + "\n"

    def _with_member(self, text: str, root: _Node, parent: _Node, key: str, value: Mapping[str, Any]) -> str:
        """The text with a last member added to an object, written as its neighbours are."""
        newline, close = newline_of(text), parent.end - 1
        tail = len(text[:close].rstrip())
        if not parent.members:
            if root.members and "\n" not in text.strip():
                return text[:tail] + _member(key, value, one_line=True) + text[close:]
            outer = line_start(text, parent.start)[1]
            inner = outer + _unit(text, root)
            member = _member(key, value, indent=inner, unit=_unit(text, root), newline=newline)
            return f"{text[:tail]}{newline}{inner}{member}{newline}{outer}{text[close:]}"
        last = parent.members[-1]
        if "\n" not in text[parent.start : parent.members[0].start]:
            added = _member(key, value, one_line=True)
            if parent.trailing_comma:
                comma = self._skip(text, last.node.end) + 1
                return f"{text[:comma]} {added},{text[comma:]}"
            return f"{text[: last.node.end]}, {added}{text[last.node.end :]}"
        indent = line_start(text, last.start)[1]
        member = _member(key, value, indent=indent, unit=_unit(text, root), newline=newline)
        comma, own_comma = ("", ",") if parent.trailing_comma else (",", "")
        kept = text[: last.node.end] + comma + text[last.node.end : tail]
        ending = (
            text[tail:]
            if "\n" in text[tail:close]
            else newline + line_start(text, parent.start)[1] + text[close:]
        )
        return f"{kept}{newline}{indent}{member}{own_comma}{ending}"

    def _root(self, text: str) -> _Node | None:
        """The outermost object; None for a text that holds nothing."""
        start = self._skip(text, 0)
        if start == len(text):
            return None
        root = self._node(text, start, 0)
        if not isinstance(root.value, dict):
            _fail(text, start, "here should be an object in braces")
        end = self._skip(text, root.end)
        if end != len(text):
            _fail(text, end, self._unexpected(text, end, "nothing more is allowed here"))
        return root

    def _skip(self, text: str, position: int) -> int:
        found = (_BLANK if self._comments else _STRICT_BLANK).match(text, position)
        return found.end() if found else position

    def _node(self, text: str, start: int, depth: int) -> _Node:
        if depth > _DEPTH:
            _fail(text, start, "it is nested too deeply")
        if depth >= _EDITED and (node := _plain_node(text, start)):
            return node
        if text.startswith("{", start):
            return self._object(text, start, depth)
        if text.startswith("[", start):
            return self._array(text, start, depth)
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            reason = error.msg.removesuffix(" at").removesuffix(" starting").rstrip(": ")
            _fail(text, error.pos, self._unexpected(text, error.pos, reason))
        except _NoNumberError as error:
            _fail(text, start, f"{error} is no number in JSON")
        return _Node(start, end, value)

    def _object(self, text: str, start: int, depth: int) -> _Node:
        members: list[_Member] = []
        trailing, at = False, self._skip(text, start + 1)
        while not text.startswith("}", at):
            if not text.startswith('"', at):
                _fail(text, at, self._unexpected(text, at, "here should be a name in double quotes"))
            key = self._node(text, at, depth)
            colon = self._skip(text, key.end)
            if not text.startswith(":", colon):
                _fail(text, colon, self._unexpected(text, colon, "here should be a colon"))
            if any(member.key == key.value for member in members):
                _fail(text, at, f"the name {key.value!r} is there twice")
            node = self._node(text, self._skip(text, colon + 1), depth + 1)
            members.append(_Member(key.value, at, node))
            at, trailing = self._next(text, node.end, "}")
        value = {member.key: member.node.value for member in members}
        return _Node(start, at + 1, value, tuple(members), trailing)

    def _array(self, text: str, start: int, depth: int) -> _Node:
        values: list[Any] = []
        trailing, at = False, self._skip(text, start + 1)
        while not text.startswith("]", at):
            node = self._node(text, at, depth + 1)
            values.append(node.value)
            at, trailing = self._next(text, node.end, "]")
        return _Node(start, at + 1, values, trailing_comma=trailing)

    def _next(self, text: str, end: int, closing: str) -> tuple[int, bool]:
        """Where the next element or the closing bracket stands, and whether a comma is in front of that."""
        at = self._skip(text, end)
        if text.startswith(closing, at):
            return at, False
        if not text.startswith(",", at):
            _fail(text, at, self._unexpected(text, at, f"here should be a comma or {closing}"))
        following = self._skip(text, at + 1)
        if not text.startswith(closing, following):
            return following, False
        if not self._comments:
            _fail(text, at, "a comma too many: this client reads JSON without trailing commas")
        return following, True

    def _unexpected(self, text: str, position: int, reason: str) -> str:
        if text.startswith(("//", "/*"), position):
            if self._comments:
                return "the comment does not end"
            return "a comment: this client reads JSON without comments"
        return reason[:1].lower() + reason[1:] if position < len(text) else "the file ends too early"


class _NoNumberError(ValueError):
    pass


def _no_number(text: str) -> NoReturn:
    raise _NoNumberError(text)


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _plain_node(text: str, start: int) -> _Node | None:
    """A value that is plain JSON, read by the standard library, which is much faster; None for another."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None  # commented, or wrong: it is read again, for the place of what is wrong
    return _Node(start, end, value)


def _fail(text: str, position: int, reason: str) -> NoReturn:
    raise UnreadableTextError.at(text, position, reason) from None


def _unit(text: str, root: _Node) -> str:
    """What a level is indented by: as the first member of the outermost object is."""
    if not root.members:
        return _UNIT
    start, blanks = line_start(text, root.members[0].start)
    return blanks if blanks and start + len(blanks) == root.members[0].start else _UNIT


def _replaced(text: str, root: _Node, member: _Member, value: Mapping[str, Any]) -> str:
    start, end = member.node.start, member.node.end
    if "\n" not in text[member.start : end] and member.node.value:
        return text[:start] + _rendered(value, one_line=True) + text[end:]
    indent = line_start(text, member.start)[1]
    return (
        text[:start]
        + _rendered(value, indent=indent, unit=_unit(text, root), newline=newline_of(text))
        + text[end:]
    )


def _without(text: str, start: int, end: int) -> str:
    """A text without a span; without its lines, where it fills them."""
    first, blanks = line_start(text, start)
    rest = re.compile(r"[ \t]*(\r?\n)?").match(text, end)
    if rest and rest[1] and first + len(blanks) == start:
        return text[:first] + text[rest.end() :]
    while text[end] in " \t":
        end += 1
    return text[:start] + text[end:]


def _member(
    key: str,
    value: Mapping[str, Any],
    *,
    indent: str = "",
    unit: str = _UNIT,
    newline: str = "\n",
    one_line: bool = False,
) -> str:
    rendered = _rendered(value, indent=indent, unit=unit, newline=newline, one_line=one_line)
    return f"{json.dumps(key, ensure_ascii=False)}: {rendered}"


def _rendered(
    value: Mapping[str, Any],
    *,
    indent: str = "",
    unit: str = _UNIT,
    newline: str = "\n",
    one_line: bool = False,
) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=None if one_line else unit).split("\n")
    return (newline + indent).join(lines)
