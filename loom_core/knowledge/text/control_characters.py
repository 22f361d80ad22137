"""Showing text of unknown origin on one line, without what is not seen but acts."""

from __future__ import annotations

import re

__all__ = ["CONTROL_CHARACTERS", "escape_controls"]

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, with which terminals are told what to do
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # those that turn the direction of writing
    "\u2028\u2029"  # line ends of Unicode
    "\ud800-\udfff"  # bytes of a file name that are no UTF-8
    "\U000e0000-\U000e007f]"  # tags: letters invisible to people that a model reads
)
"""Characters that do something instead of being seen."""


def escape_controls(text: str) -> str:
    r"""A name or title with each acting character as its escape (`\n`, `\x1b`, `\u202e`)."""
    return CONTROL_CHARACTERS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
