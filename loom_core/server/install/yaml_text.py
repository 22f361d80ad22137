"""YAML editor: an entry is a block of lines below its section.

PyYAML reads it with positions; the lines of one entry are written here, with every text in
double quotes, which mean the same in YAML 1.1 and 1.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.installation import how_to_install
from loom_core.server.install.text_format import (
    UneditableTextError,
    line_start,
    newline_of,
)

if TYPE_CHECKING:
    from types import ModuleType

    from yaml import Node, SequenceNode

__all__ = ["YamlText"]

_UNIT = "  "
_PLAIN_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value with its position; `end` is after its last character.

    Attributes:
        text: the text of a scalar.
        column: its indentation.
        flow: whether it is written in brackets or braces.
        entries: names and values of a mapping.
    """

    start: int
    end: int
    column: int
    text: str = ""
    flow: bool = False
    entries: tuple[tuple[_Value, _Value], ...] = ()

    def find(self, name: str) -> tuple[_Value, _Value] | None:
        found = [entry for entry in self.entries if entry[0].text == name]
        if len(found) > 1:
            raise UneditableTextError(f"The name {name!r} is duplicated.")
        return found[0] if found else None


class YamlText:
    """YAML editor."""

    def read(self, text: str) -> dict[str, Any]:
        """See `TextFormat.read`.

        Raises:
            ConfigError: PyYAML is not installed.
        """
        yaml = _yaml()
        try:
            found = yaml.safe_load(text)
        except yaml.reader.ReaderError as error:
            raise UnreadableTextError.at(
                text, error.position, "a character that YAML does not allow"
            ) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = error.problem or error.context or "it is not YAML"
            raise UnreadableTextError.at(text, mark.index if mark else len(text), reason) from None
        except (ValueError, RecursionError) as error:  # a date that does not exist; too many levels
            raise UnreadableTextError.at(text, 0, f"it cannot be read: {type(error).__name__}") from None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise UnreadableTextError.at(text, 0, "expected names with values")
        return cast("dict[str, Any]", found)

    def put(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.put`."""
        self.read(text)
        newline, root = newline_of(text), _root(text)
        found = root.find(section) if root else None
        if found is None:
            lines = [f"{_key(section)}:", *_lines(name, entry, _UNIT)]
            return _end_with_newline(text, newline) + _join(lines, newline)
        key, holder = found
        if not holder.entries:
            # The name, a colon, and a comment that may follow the empty value.
            stop = _line_end(text, holder.end)
            head = text[: key.end] + ":" + text[max(holder.end, key.end + 1) : stop].rstrip("\r\n")
            lines = _lines(name, entry, " " * key.column + _UNIT)
            return head + newline + _join(lines, newline) + text[stop:]
        if holder.flow:
            raise UneditableTextError(f"{section!r} is written in braces.")
        lines = _lines(name, entry, " " * holder.entries[0][0].column, unit=_unit(holder))
        if old := holder.find(name):
            start, end = line_start(text, old[0].start)[0], _line_end(text, old[1].end)
        else:
            start = end = _line_end(text, holder.end)
        return _end_with_newline(text[:start], newline) + _join(lines, newline) + text[end:]

    def drop(self, text: str, section: str, name: str) -> str:
        """See `TextFormat.drop`."""
        self.read(text)
        root = _root(text)
        found = root.find(section) if root else None
        old = found[1].find(name) if found else None
        if found is None or old is None or found[1].flow:
            raise UneditableTextError(f"{name!r} is not written as lines below {section!r}.")
        start, end = line_start(text, old[0].start)[0], _line_end(text, old[1].end)
        if len(found[1].entries) > 1:
            return text[:start] + text[end:]
        colon = text.index(":", found[0].end) + 1
        if not text[colon:start].strip():
            return text[: line_start(text, found[0].start)[0]] + text[end:]
        return f"{text[:colon]} {{}}{text[colon:start]}{text[end:]}"

    def snippet(self, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """See `TextFormat.snippet`."""
        return _join([f"{_key(section)}:", *_lines(name, entry, _UNIT)], "\n")


def _yaml() -> ModuleType:
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            "This client's configuration is YAML, and PyYAML is not installed.",
            advice=f"{how_to_install('pyyaml')}; or paste what `install --print` shows.",
        ) from None
    return yaml


def _root(text: str) -> _Value | None:
    """Return the outermost mapping of a valid text; None for an empty one."""
    node = _yaml().compose(text)
    try:
        root = None if node is None else _value(node)
    except RecursionError:
        raise UneditableTextError("It refers to itself.") from None
    if root and root.flow:
        raise UneditableTextError("It is written in braces.")
    return root


def _value(node: Node) -> _Value:
    from yaml import MappingNode, ScalarNode

    start, end, column = node.start_mark.index, node.end_mark.index, node.start_mark.column
    if isinstance(node, ScalarNode):
        block = node.style in {"|", ">"}  # its mark is at the begin of the next line
        return _Value(start, max(start, end - 1) if block else end, column, text=str(node.value))
    collection = cast("MappingNode | SequenceNode", node)
    flow, entries = bool(collection.flow_style), ()
    if isinstance(collection, MappingNode):
        entries = tuple((_value(key), _value(value)) for key, value in collection.value)
        parts = [value for _, value in entries]
    else:
        parts = [_value(item) for item in collection.value]
    # The mark of a block is at the next token, behind comments that are not its own.
    return _Value(start, end if flow or not parts else parts[-1].end, column, flow=flow, entries=entries)


def _line_end(text: str, position: int) -> int:
    """Return the start of the line after a position's line."""
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _end_with_newline(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


def _join(lines: list[str], newline: str) -> str:
    return newline.join(lines) + newline


def _unit(holder: _Value) -> str:
    """Return the indentation of a level: that of the first entry."""
    key, value = holder.entries[0]
    return " " * (value.entries[0][0].column - key.column) if value.entries and not value.flow else _UNIT


def _lines(name: str, entry: Mapping[str, Any], indent: str, *, unit: str = _UNIT) -> list[str]:
    return [f"{indent}{_key(name)}:", *_member_lines(entry, indent + unit, unit)]


def _member_lines(members: Mapping[str, Any], indent: str, unit: str) -> Iterator[str]:
    for key, value in members.items():
        if isinstance(value, list) and value:
            yield f"{indent}{_key(key)}:"
            items = cast("list[Any]", value)
            yield from (f"{indent}{unit}- {json.dumps(item, ensure_ascii=False)}" for item in items)
        elif isinstance(value, dict) and value:
            yield f"{indent}{_key(key)}:"
            yield from _member_lines(cast("dict[str, Any]", value), indent + unit, unit)
        else:
            yield f"{indent}{_key(key)}: {json.dumps(value, ensure_ascii=False)}"


def _key(text: str) -> str:
    return text if _PLAIN_KEY.fullmatch(text) else json.dumps(text, ensure_ascii=False)
