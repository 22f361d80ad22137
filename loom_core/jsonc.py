"""JSONC parser: JSON with comments and trailing commas, and with the position of every value.

Every error has a line and a column, and every value a position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from loom_core.errors import UnreadableTextError

__all__ = ["JsonMember", "JsonNode", "JsonReader", "object_of", "parse_object"]

_DEPTH = 200  # levels; no configuration has more, and the reader recurses
_LOOKED_AT = 2  # levels whose members have positions: the file, and a section of it
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRICT_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value with its position: from `start` up to `end`.

    Attributes:
        start: index of its first character in the text.
        end: index after its last character.
        value: as `json.loads` returns it.
        members: those of an object, in order, down to the reader's `depth`.
        items: the elements of an array, likewise.
        trailing_comma: whether a comma follows the last of them.
    """

    start: int
    end: int
    value: Any
    members: tuple[JsonMember, ...] = ()
    items: tuple[JsonNode, ...] = ()
    trailing_comma: bool = False

    def member(self, key: str) -> JsonMember | None:
        """Return the member of a name; the last one, if a name is repeated."""
        return next((member for member in reversed(self.members) if member.key == key), None)

    def place(self, path: Sequence[str | int]) -> int:
        """Return the position of the value at a path, or of the longest part of the path that exists."""
        at, node = self.start, self
        for part in path:
            if isinstance(part, str) and (member := node.member(part)):
                at, node = member.start, member.node
            elif isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                at = node.start
            else:
                break
        return at


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object.

    Attributes:
        key: its name.
        start: its position.
        node: its value.
    """

    key: str
    start: int
    node: JsonNode


class JsonReader:
    """Parser of a text whose outermost value is an object.

    Args:
        comments: whether comments and trailing commas are allowed.
        depth: number of levels whose members are parsed one by one; deeper values are parsed as a whole,
            which is much faster.
        unique: whether a repeated name in an object is an error on those levels; otherwise the last one
            counts.
    """

    def __init__(self, *, comments: bool = True, depth: int = _LOOKED_AT, unique: bool = True) -> None:
        self._comments = comments
        self._looked_at = depth
        self._unique = unique

    def read(self, text: str) -> JsonNode | None:
        """Parse the outermost object; None for an empty text.

        Raises:
            UnreadableTextError: the text is invalid; line and column say where.
        """
        start = self.skip(text, 0)
        if start == len(text):
            return None
        root = self._node(text, start, 0)
        if not isinstance(root.value, dict):
            _fail(text, start, "expected an object in braces")
        end = self.skip(text, root.end)
        if end != len(text):
            _fail(text, end, self._syntax_error(text, end, "nothing more is allowed here"))
        return root

    def skip(self, text: str, position: int) -> int:
        """Skip white space and comments; return the next position."""
        found = (_BLANK if self._comments else _STRICT_BLANK).match(text, position)
        return found.end() if found else position

    def _node(self, text: str, start: int, depth: int) -> JsonNode:
        if depth > _DEPTH:
            _fail(text, start, "it is nested too deeply")
        if depth >= self._looked_at and (node := _plain_node(text, start)):
            return node
        if text.startswith("{", start):
            return self._object(text, start, depth)
        if text.startswith("[", start):
            return self._array(text, start, depth)
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            reason = error.msg.removesuffix(" at").removesuffix(" starting").rstrip(": ")
            _fail(text, error.pos, self._syntax_error(text, error.pos, reason))
        except _NoNumberError as error:
            _fail(text, start, f"{error} is not a JSON number")
        return JsonNode(start, end, value)

    def _object(self, text: str, start: int, depth: int) -> JsonNode:
        members: list[JsonMember] = []
        names: set[str] = set()
        trailing, at = False, self.skip(text, start + 1)
        while not text.startswith("}", at):
            if not text.startswith('"', at):
                _fail(text, at, self._syntax_error(text, at, "expected a name in double quotes"))
            key = self._node(text, at, depth)
            colon = self.skip(text, key.end)
            if not text.startswith(":", colon):
                _fail(text, colon, self._syntax_error(text, colon, "expected a colon"))
            if self._unique and key.value in names:
                _fail(text, at, f"the name {key.value!r} is duplicated")
            names.add(key.value)
            node = self._node(text, self.skip(text, colon + 1), depth + 1)
            members.append(JsonMember(key.value, at, node))
            at, trailing = self._next(text, node.end, "}")
        value = {member.key: member.node.value for member in members}
        return JsonNode(start, at + 1, value, tuple(members), trailing_comma=trailing)

    def _array(self, text: str, start: int, depth: int) -> JsonNode:
        items: list[JsonNode] = []
        trailing, at = False, self.skip(text, start + 1)
        while not text.startswith("]", at):
            items.append(self._node(text, at, depth + 1))
            at, trailing = self._next(text, items[-1].end, "]")
        values = [item.value for item in items]
        return JsonNode(start, at + 1, values, items=tuple(items), trailing_comma=trailing)

    def _next(self, text: str, end: int, closing: str) -> tuple[int, bool]:
        """Return the position of the next element or closing bracket, and whether a comma precedes it."""
        at = self.skip(text, end)
        if text.startswith(closing, at):
            return at, False
        if not text.startswith(",", at):
            _fail(text, at, self._syntax_error(text, at, f"expected a comma or {closing}"))
        following = self.skip(text, at + 1)
        if not text.startswith(closing, following):
            return following, False
        if not self._comments:
            _fail(text, at, "a comma too many: this client reads JSON without trailing commas")
        return following, True

    def _syntax_error(self, text: str, position: int, reason: str) -> str:
        if text.startswith(("//", "/*"), position):
            if self._comments:
                return "the comment does not end"
            return "a comment: this client reads JSON without comments"
        return reason[:1].lower() + reason[1:] if position < len(text) else "the text ends too early"


def object_of(value: object) -> dict[str, Any]:
    """Return a value that should be an object; an empty object for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object as another program wrote it; None if the text is anything else."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class _NoNumberError(ValueError):
    pass


def _no_number(text: str) -> NoReturn:
    raise _NoNumberError(text)


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _plain_node(text: str, start: int) -> JsonNode | None:
    """Parse a value that is plain JSON by the standard library, which is much faster; None for another."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None  # commented or invalid: parse it again, for the position of the fault
    return JsonNode(start, end, value)


def _fail(text: str, position: int, reason: str) -> NoReturn:
    raise UnreadableTextError.at(text, position, reason) from None
