"""A value with a pattern, found within what somebody says: the number in "call me at 13800138000"."""

from __future__ import annotations

from collections.abc import Iterator

from loom_core.errors import UnreadableTextError
from loom_core.flow.triggers.engines import Clock, compiled
from loom_core.flow.triggers.normal_text import NormalText

__all__ = ["spans_within", "texts_within"]


def texts_within(text: str, pattern: str) -> Iterator[str]:
    """Parts of a text that a JSON Schema's pattern may fit, each as it is written, then in plain characters.

    A part of a longer word or number is none. Whether the pattern fits is for the schema to check.

    Args:
        text: what somebody says.
        pattern: for a whole value; its ends, `^` and `$`, are left out to search.
    """
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.original[slice(*normal.span(start, end))]
        yield normal.text[start:end]


def spans_within(text: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Where in a text such parts stand; see `texts_within`."""
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.span(start, end)


def _places(normal: NormalText, pattern: str) -> Iterator[tuple[int, int]]:
    core = pattern.removeprefix("^").removesuffix("$")
    try:
        search = compiled(core)[1]
    except UnreadableTextError:
        return
    for found in search.find(normal.text, Clock()):
        if not _cuts_word(normal.text, found.start) and not _cuts_word(normal.text, found.end):
            yield found.start, found.end


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(char.isascii() and char.isalnum() for char in around)
