"""Texts that say the same: equal, nearly equal, or one of them inside the other."""

from __future__ import annotations

from loom_core.knowledge.shingles import shingles, text_hash

__all__ = ["OVERLAPPING", "Sketch"]

OVERLAPPING = 0.8
"""From this share of its shingles on, a text is in another one."""

_FEWEST = 5  # shingles that a text must have to be looked for inside another: any two share a phrase


class Sketch:
    """A text as it is compared; case, width, punctuation and spaces make no difference.

    Args:
        text: in any language.
    """

    __slots__ = ("_hash", "_shingles")

    def __init__(self, text: str) -> None:
        self._hash = text_hash(text.casefold())
        self._shingles = shingles(text)

    def says_the_same_as(self, other: Sketch) -> bool:
        """Whether the texts are equal, or nearly all of the shorter one is in the longer one."""
        shorter, longer = (self, other) if len(self._shingles) <= len(other._shingles) else (other, self)
        return shorter.is_within(longer)

    def is_within(self, other: Sketch) -> bool:
        """Whether the texts are equal, or nearly all of this one is in the other."""
        if self._hash == other._hash:
            return True
        if len(self._shingles) < _FEWEST:
            return False
        import numpy as np

        both = len(np.intersect1d(self._shingles, other._shingles, assume_unique=True))
        return both >= OVERLAPPING * len(self._shingles)
