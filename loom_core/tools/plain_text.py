"""Texts of others, made fit for a prompt: nothing that acts on a terminal, nothing unseen."""

from __future__ import annotations

import re

__all__ = ["strip_control"]

# Escape sequences go whole: without their first character they would be seen as noise.
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE_CHARACTERS = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters; a tab and a line end are no harm
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064\ufeff\ufff9-\ufffb"  # seen by models only
    "\u202a-\u202e\u2066-\u206f"  # those that turn the direction of writing
    "\ud800-\udfff"  # halves of characters, which UTF-8 cannot hold
    "\U000e0000-\U000e0fff"  # tags and selectors: whole texts can be hidden in them
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_CHARACTERS}]")
_CHANGED = re.compile(
    f"[\r\x0b\x0c\u2028\u2029{_INVISIBLE_CHARACTERS}]"
)  # most texts have none of what is changed


def strip_control(text: str) -> str:
    """A text without characters that act or hide; every line ends with a line feed."""
    if not _CHANGED.search(text):
        return text
    return _INVISIBLE.sub("", _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))
