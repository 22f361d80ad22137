"""Sanitization of other servers' texts for prompts: no invisible characters, bounded length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loom_core.tools.plain_text import strip_control

__all__ = ["DESCRIPTION_BYTES", "plain", "plain_line", "plain_schema"]

DESCRIPTION_BYTES = 2048
"""Maximum size of a description; hosts truncate it there, too."""

_ARGUMENT_BYTES = 1024  # of one argument's description
_CUT = " … [cut]"
_WORDS = frozenset({"$comment", "description", "title"})
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def plain(text: str, *, most: int = DESCRIPTION_BYTES) -> str:
    """Remove control and invisible characters from a text, strip it, and truncate it with a mark.

    Args:
        text: a server's text.
        most: maximum number of bytes in UTF-8, including the mark.
    """
    seen = strip_control(text).strip()
    if len(seen) * 4 <= most or len(seen.encode()) <= most:
        return seen
    kept = seen.encode()[: most - len(_CUT.encode())].decode(errors="ignore")
    return kept.rstrip() + _CUT


def plain_line(text: str, *, most: int = 128) -> str:
    """Sanitize a text as `plain` does, on one line."""
    return " ".join(plain(text, most=most).split())


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a JSON Schema with sanitized descriptions and titles; its meaning stays."""
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
