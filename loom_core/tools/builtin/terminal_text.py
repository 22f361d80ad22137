"""What a program wrote for a terminal, as one reads it there."""

from __future__ import annotations

import re

from loom_core.tools.plain_text import without_control

__all__ = ["terminal_text"]

_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, and moving about
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles and links
    "|\x1b[ -/]*[0-~]?"  # sets of characters
)


def terminal_text(text: str) -> str:
    """A text without what colours it and moves about; of a line that was written over, what came last."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
    return without_control(plain)
