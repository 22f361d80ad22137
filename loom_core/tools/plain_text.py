"""Strip control characters and invisible characters from untrusted texts for prompts."""

from __future__ import annotations

import re

__all__ = ["strip_control"]

# Escape sequences are removed whole: without their first character they would show as noise.
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE_CHARACTERS = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters; tabs and line ends are harmless
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064\ufeff\ufff9-\ufffb"  # visible to models only
    "\u202a-\u202e\u2066-\u206f"  # bidirectional controls
    "\ud800-\udfff"  # lone surrogates, which UTF-8 cannot encode
    "\U000e0000-\U000e0fff"  # tags and selectors: they can hide whole texts
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_CHARACTERS}]")
_CHANGED = re.compile(f"[\r\x0b\x0c\u2028\u2029{_INVISIBLE_CHARACTERS}]")  # most texts have none of these


def strip_control(text: str) -> str:
    """Strip control and invisible characters, and convert line ends to line feeds."""
    if not _CHANGED.search(text):
        return text
    return _INVISIBLE.sub("", _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))
