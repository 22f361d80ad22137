"""Escape control characters and other invisible characters in text of unknown origin."""

from __future__ import annotations

import re

__all__ = ["CONTROL_CHARACTERS", "UNSTORABLE", "escape_controls"]

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, which terminals interpret
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u2028\u2029"  # line ends of Unicode
    "\ud800-\udfff"  # bytes of a file name that are not UTF-8
    "\U000e0000-\U000e007f]"  # tags: letters that people cannot see, but a model reads
)
"""Control characters and other invisible characters."""

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""U+0000 and lone surrogates, which not every database can hold."""


def escape_controls(text: str) -> str:
    r"""Return a name or title with control characters escaped (`\n`, `\x1b`, `\u202e`)."""
    return CONTROL_CHARACTERS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
