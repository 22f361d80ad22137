"""Cutting a whole text into windows of about one size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.chunking.boundaries import cut_near

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["windows"]

_INK = re.compile(r"\S")


def windows(text: str, *, size: int, overlap: int = 0) -> Iterator[tuple[int, int]]:
    """Offsets (start, end) of windows that cover all ink of a text, in order.

    Args:
        text: any text.
        size: length of a window in characters, at the most (a longer character sequence stays whole)
            and, except for the last, at least half.
        overlap: how many characters a window repeats of the one before: at the most this many, and
            about half of it where a better boundary asks for that; less than `size`.
    """
    start = end = 0
    while ink := _INK.search(text, end):
        fresh = ink.start()
        start = _first_ink(text, start) if fresh < start + size else fresh
        if len(text) - start <= size:
            yield start, len(text)
            return
        # A window always adds something, even where most of it repeats the one before.
        end = cut_near(text, max(start + size // 2, fresh), start + size)
        yield start, end
        start = _resume(text, start, end, overlap)


def _first_ink(text: str, start: int) -> int:
    ink = _INK.search(text, start)
    return ink.start() if ink else len(text)


def _resume(text: str, start: int, end: int, overlap: int) -> int:
    if not overlap or end == len(text):
        return end
    floor = max(start, end - overlap - 1)
    return min(end, cut_near(text, floor, max(floor + 1, end - overlap // 2)))
