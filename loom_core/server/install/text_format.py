"""Interface of text formats: edit one entry of a configuration file and keep every other byte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from loom_core.errors import ConfigError

__all__ = ["TextFormat", "UneditableTextError", "line_start", "newline_of"]

_LEADING = re.compile(r"[ \t]*")


class UneditableTextError(ConfigError):
    """A text is valid, but in a form that this program does not edit."""


class TextFormat(Protocol):
    """Text format: parse, and edit the entry `name` of the section `section`.

    Texts have no byte order mark, and keep their line ends. All methods raise `UnreadableTextError` for a
    text that violates the format; editing raises `UneditableTextError` for a form that it does not support.
    Callers verify an edit by reading the text again.
    """

    def read(self, text: str) -> dict[str, Any]:
        """Parse a text; an empty one is an empty object."""
        ...

    def put(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """Add or replace the entry."""
        ...

    def drop(self, text: str, section: str, name: str) -> str:
        """Remove an existing entry, and its section if that becomes empty."""
        ...

    def snippet(self, section: str, name: str, entry: Mapping[str, Any]) -> str:
        """Format a text with this entry only, for a person to read or copy."""
        ...


def newline_of(text: str) -> str:
    """Return the line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def line_start(text: str, position: int) -> tuple[int, str]:
    """Return the start of a position's line, and its indentation."""
    start = text.rfind("\n", 0, position) + 1
    blanks = _LEADING.match(text, start)
    return start, blanks[0] if blanks else ""
