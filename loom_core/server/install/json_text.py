"""JSON editor: change one entry of a section and no other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from loom_core.jsonc import JsonMember, JsonNode, JsonReader
from loom_core.server.install.text_format import UneditableTextError, line_start, newline_of

__all__ = ["JsonText"]

_UNIT = "  "
_STRICT_BLANK = re.compile(r"[ \t\r\n]*")


class JsonText:
    """JSON editor.

    Args:
        comments: whether comments and trailing commas are allowed.
    """

    def __init__(self, *, comments: bool) -> None:
        self._reader = JsonReader(comments=comments)

    def read(self, text: str) -> dict[str, Any]:
        """See `TextFormat.read`."""
        root = self._reader.read(text)
        return {} if root is None else root.value

    def put(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.put`."""
        root = self._reader.read(text)
        if root is None:
            head = text.rstrip()
            before = head + newline_of(text) if head else ""
            return before + _render({section: {name: entry}}, newline=newline_of(text)) + newline_of(text)
        holder = root.member(section)
        if holder is None:
            return self._with_member(text, root, root, section, {name: entry})
        if holder.node.value is None:
            return _replace(text, root, holder, {name: entry})
        if not isinstance(holder.node.value, dict):
            raise UneditableTextError(f"{section!r} is not an object.")
        old = holder.node.member(name)
        if old is not None:
            return _replace(text, root, old, entry)
        return self._with_member(text, root, holder.node, name, entry)

    def drop(self, text: str, section: str, name: str) -> str:
        """See `TextFormat.drop`."""
        root = self._reader.read(text)
        holder = root.member(section) if root else None
        member = holder.node.member(name) if holder else None
        if holder is None or member is None:
            raise UneditableTextError(f"There is no {name!r} in {section!r}.")
        text = self._without_member(text, holder.node, member)
        root = self._reader.read(text)
        emptied = root.member(section) if root else None
        if root and emptied and text[emptied.node.start : emptied.node.end] == "{}":
            text = self._without_member(text, root, emptied)
        return text

    def snippet(self, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.snippet`."""
        return _render({section: {name: entry}}) + "\n"

    def _without_member(self, text: str, parent: JsonNode, member: JsonMember) -> str:
        """Remove a member of an object, with its lines."""
        members = parent.members
        previous = members[members.index(member) - 1] if member is not members[0] else None
        start, end = member.start, member.node.end
        after = self._reader.skip(text, end)
        if text[after] == ",":
            end = after + 1
        elif previous is not None:
            comma = self._reader.skip(text, previous.node.end)
            first, blanks = line_start(text, start)
            if first + len(blanks) != start or "\n" not in text[end : parent.end]:
                return text[:comma] + text[end:]
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
        text = _without(text, start, end)
        opened = parent.start + 1
        closing = _STRICT_BLANK.match(text, opened)
        if closing and text[closing.end()] == "}":
            text = text[:opened] + text[closing.end() :]
        return text

    def _with_member(
        self, text: str, root: JsonNode, parent: JsonNode, key: str, value: Mapping[str, Any]
    ) -> str:
        """Append a member to an object, in the format of its neighbours."""
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
                comma = self._reader.skip(text, last.node.end) + 1
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


def _unit(text: str, root: JsonNode) -> str:
    """Return the indentation of a level: that of the first member of the outermost object."""
    if not root.members:
        return _UNIT
    start, blanks = line_start(text, root.members[0].start)
    return blanks if blanks and start + len(blanks) == root.members[0].start else _UNIT


def _replace(text: str, root: JsonNode, member: JsonMember, value: Mapping[str, Any]) -> str:
    start, end = member.node.start, member.node.end
    if "\n" not in text[member.start : end] and member.node.value:
        return text[:start] + _render(value, one_line=True) + text[end:]
    indent = line_start(text, member.start)[1]
    return (
        text[:start]
        + _render(value, indent=indent, unit=_unit(text, root), newline=newline_of(text))
        + text[end:]
    )


def _without(text: str, start: int, end: int) -> str:
    """Remove a span of a text, and its lines if it fills them."""
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
    rendered = _render(value, indent=indent, unit=unit, newline=newline, one_line=one_line)
    return f"{json.dumps(key, ensure_ascii=False)}: {rendered}"


def _render(
    value: Mapping[str, Any],
    *,
    indent: str = "",
    unit: str = _UNIT,
    newline: str = "\n",
    one_line: bool = False,
) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=None if one_line else unit).split("\n")
    return (newline + indent).join(lines)
