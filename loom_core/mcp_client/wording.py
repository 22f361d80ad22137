"""What other servers say of themselves, made fit for a prompt: nothing unseen, nothing endless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["DESCRIPTION_BYTES", "plain", "plain_line", "plain_schema"]

DESCRIPTION_BYTES = 2048
"""So much of a description is passed on; hosts cut it there, too."""

_ARGUMENT_BYTES = 1024  # of one argument's description
_CUT = " … [cut]"
# Escape sequences go whole: without their first character they would be seen as noise.
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters; a tab and a line end are no harm
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064\ufeff\ufff9-\ufffb"  # seen by models only
    "\u202a-\u202e\u2066-\u206f"  # those that turn the direction of writing
    "\ud800-\udfff"  # halves of characters, which UTF-8 cannot hold
    "\U000e0000-\U000e0fff]"  # tags and selectors: whole texts can be hidden in them
)
_WORDS = frozenset({"$comment", "description", "title"})
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def plain(text: str, *, most: int = DESCRIPTION_BYTES) -> str:
    """A text without characters that act or hide, stripped, and cut with a mark.

    Args:
        text: what a server says.
        most: bytes in UTF-8, the mark included.
    """
    seen = _UNSEEN.sub("", _LINE_ENDS.sub("\n", _ESCAPES.sub("", text))).strip()
    if len(seen) * 4 <= most or len(seen.encode()) <= most:
        return seen
    kept = seen.encode()[: most - len(_CUT.encode())].decode(errors="ignore")
    return kept.rstrip() + _CUT


def plain_line(text: str, *, most: int = 128) -> str:
    """The same on one line, for names."""
    return " ".join(plain(text, most=most).split())


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a JSON Schema whose descriptions and titles are plain; what it means stays as it is."""
    return {keyword: _plain_keyword(keyword, value) for keyword, value in schema.items()}


def _plain_keyword(keyword: str, value: object) -> object:
    if keyword in _WORDS and isinstance(value, str):
        return plain(value, most=_ARGUMENT_BYTES)
    if keyword in _DATA:
        return value
    if keyword in _NAMED and isinstance(value, Mapping):
        named = cast("Mapping[str, object]", value)
        return {name: _plain_part(part) for name, part in named.items()}
    return _plain_part(value)


def _plain_part(value: object) -> object:
    if isinstance(value, Mapping):
        return plain_schema(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_plain_part(part) for part in cast("list[object]", value)]
    return value
