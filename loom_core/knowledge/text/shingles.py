"""Similarity of texts: shingles, MinHash, and LSH bands to find candidates.

A. Broder, "On the resemblance and containment of documents", 1997; bands as in Leskovec, Rajaraman and
Ullman, "Mining of Massive Datasets", ch. 3.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OVERLAPPING", "TextSketch", "bands_of", "jaccard_similarity", "shingles", "text_hash"]

_BANDS = 6  # two texts with 90 % common shingles share a band in 998 of 1000 cases, with 80 % in 958,
_ROWS = 4  # and with 30 % in 48
_BITS = 40  # of a band
_WORDS = 3  # in a shingle
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64

_PLANE = 0x10000
_RARE_HAN = 0x20000  # and all beyond
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Han, kana, bopomofo.
_UNSPACED = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x2FFF),
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x3105, 0x312F),
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
)
_MARK, _LETTER, _WORD = 0, 1, 2


def text_hash(text: str) -> bytes:
    """Hash a text; texts that differ only in spaces, line ends and character forms have the same hash."""
    return hashlib.sha256(" ".join(_normalise(text).split()).encode("utf-8", "replace")).digest()[:16]


def shingles(text: str) -> NDArray[np.uint64]:
    """Return the hashes of every three consecutive words, each once, ascending.

    Case, punctuation and spaces make no difference. In scripts without spaces, such as Chinese, every
    character is a word. A text of fewer than three words has none.
    """
    import numpy as np

    encoded = _normalise(text).casefold().encode("utf-32-le", "replace")
    codes = np.frombuffer(encoded, dtype=np.uint32)
    kinds = np.where(codes >= _RARE_HAN, _WORD, _kinds()[np.minimum(codes, _PLANE - 1)])
    before = np.concatenate((np.array([_MARK], kinds.dtype), kinds[:-1]))
    begins = (kinds == _WORD) | ((kinds == _LETTER) & (before != _LETTER))
    starts = np.flatnonzero(begins)
    if len(starts) < _WORDS:
        return np.zeros(0, dtype=np.uint64)
    # A word's hash is the sum of its letters, each mixed with its position; marks between words count 0.
    places = np.arange(len(codes), dtype=np.uint64)
    places[starts[0] :] -= np.repeat(places[starts], np.diff(starts, append=len(codes)))
    letters = (codes + places * np.uint64(_PLANE << 8)) * np.uint64(_MIX[0])
    letters ^= letters >> np.uint64(32)
    letters *= np.uint64(_MIX[1])
    letters[kinds == _MARK] = 0
    words = np.add.reduceat(letters, starts)
    found = _mix_hashes(words[:-2] + words[1:-1] * np.uint64(_MIX[1]) + words[2:] * np.uint64(_MIX[2]))
    found.sort()
    return found[np.concatenate(([True], found[1:] != found[:-1]))]


def bands_of(shingled: NDArray[np.uint64]) -> list[int]:
    """Return the LSH bands of a text: similar texts share one. Empty for a short text.

    This is one-permutation MinHash (P. Li, A. Owen, C.-H. Zhang, 2012): the smallest hash in each of equal
    parts of the range; an empty part takes that of the next one.
    """
    import numpy as np

    if not len(shingled):
        return []
    bounds = np.array([(n << 64) // (_BANDS * _ROWS) for n in range(_BANDS * _ROWS)], dtype=np.uint64)
    smallest = shingled[np.searchsorted(shingled, bounds) % len(shingled)]
    rows = _mix_hashes(smallest + np.arange(_BANDS * _ROWS, dtype=np.uint64)).reshape(_BANDS, _ROWS)
    bands = _mix_hashes(rows.sum(axis=1, dtype=np.uint64)) >> np.uint64(64 - _BITS)
    return [int(band) for band in bands]


def jaccard_similarity(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Return the Jaccard index of two sets of shingles; 0 if both are empty."""
    import numpy as np

    both = len(np.intersect1d(one, other, assume_unique=True))
    either = len(one) + len(other) - both
    return both / either if either else 0.0


def _normalise(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _mix_hashes(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    values = values * np.uint64(_MIX[0])
    values ^= values >> np.uint64(30)
    values *= np.uint64(_MIX[1])
    values ^= values >> np.uint64(27)
    values *= np.uint64(_MIX[2])
    values ^= values >> np.uint64(31)
    return values


@cache
def _kinds() -> NDArray[np.uint8]:
    """Classify each character of the first plane: a mark, a letter, or a word by itself."""
    import numpy as np

    kinds = np.fromiter((chr(code).isalnum() for code in range(_PLANE)), dtype=np.uint8, count=_PLANE)
    for first, last in _UNSPACED:
        kinds[first : last + 1] *= _WORD
    return kinds


OVERLAPPING = 0.8
"""Minimum share of a text's shingles in another text to count as contained in it."""

_FEWEST = 5  # minimum shingles for the test of containment, as any two texts may share a phrase


class TextSketch:
    """A text for comparison; ignores case, width, punctuation and spaces.

    Args:
        text: in any language.
    """

    __slots__ = ("_hash", "_shingles")

    def __init__(self, text: str) -> None:
        self._hash = text_hash(text.casefold())
        self._shingles = shingles(text)

    def is_near_duplicate_of(self, other: TextSketch) -> bool:
        """Whether the texts are equal, or nearly all of the shorter one is in the longer one."""
        shorter, longer = (self, other) if len(self._shingles) <= len(other._shingles) else (other, self)
        return shorter.is_within(longer)

    def is_within(self, other: TextSketch) -> bool:
        """Whether the texts are equal, or nearly all of this one is in the other."""
        if self._hash == other._hash:
            return True
        if len(self._shingles) < _FEWEST:
            return False
        import numpy as np

        both = len(np.intersect1d(self._shingles, other._shingles, assume_unique=True))
        return both >= OVERLAPPING * len(self._shingles)
