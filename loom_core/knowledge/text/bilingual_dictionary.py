"""Bilingual dictionary: English words with Chinese translations, in both directions.

The file is chosen from ECDICT by `tools/build_dictionary.py`. Each line is an English word, its level of
frequency and its Chinese translations, the usual one first; lines are in order of the word in lower case:

    decide<tab>2<tab>决定,判决,使下决心

The level is 0 for the hundred words used most, one more for each doubling of the rank, at most 9, and empty
for words whose frequency is not known. The text stays one block of UTF-16, 12 MB. English words are
found by binary search in it, Chinese ones by a sorted array of their first four characters, 6 MB, which is
built when it is needed first.
"""

from __future__ import annotations

import lzma
import threading
from bisect import bisect_left
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BilingualDictionary", "base_forms", "load_dictionary"]

_ENCODING = "utf-16-le"
_ENDINGS = tuple(
    pair.split("-") for pair in "ies-y es- s- ied-y ed- ed-e ing- ing-e".split()
)  # of words that may be inflected, and those of their base forms
_UNKNOWN_LEVEL = 14
_KEY = 4  # characters of the key of a Chinese word
_FIRST_HAN = 0x3400


class BilingualDictionary:
    """English words with Chinese translations.

    Any thread may look up words.

    Args:
        text: the dictionary in UTF-16 (little-endian), in the format of the module.
    """

    def __init__(self, text: bytes) -> None:
        import numpy as np

        self._text = text
        self._characters = np.frombuffer(self._text, dtype="<u2")
        ends = np.flatnonzero(self._characters == ord("\n"))
        self._starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int32)
        self._lock = threading.Lock()
        self._chinese: tuple[NDArray[np.uint64], NDArray[np.int32]] | None = None

    def into_chinese(self, phrase: str) -> dict[str, float]:
        """Return the Chinese translations of an English word or phrase, in its base form if it has no other.

        A word in lower case is no name and no abbreviation: "may" is not "May", "us" is not "US".

        Returns:
            How likely each is, in sum 1, the likeliest first; empty for an unknown phrase.
        """
        for form in base_forms(phrase):
            ranks: dict[str, int] = {}
            for word, _, translations in self._entries(form.lower()):
                if _has_capitals_of(word, form):
                    for rank, translation in enumerate(translations, 1):
                        ranks[translation] = min(rank, ranks.get(translation, rank))
            if ranks:
                return _share({word: 1 / rank for word, rank in ranks.items()})
        return {}

    def into_english(self, word: str) -> dict[str, float]:
        """Return the English translations of a Chinese word in simplified characters.

        They are likelier the more they are used, and the earlier the word is among their translations.

        Returns:
            How likely each is, in sum 1, the likeliest first; empty for an unknown word.
        """
        scores: dict[str, float] = {}
        for english, level, translations in self._entries_with(word):
            # The rarest are some 30 times less likely than the words used most.
            score = (8 + level) ** -4 / (1 + translations.index(word))
            scores[english] = max(score, scores.get(english, 0.0))
        return _share(scores)

    def _entries(self, word: str) -> Iterator[tuple[str, int, list[str]]]:
        """Yield the entries of a word in lower case."""
        lines = range(len(self._starts))
        for line in lines[bisect_left(lines, word, key=lambda line: self._read(line)[0].lower()) :]:
            entry = self._read(line)
            if entry[0].lower() != word:
                return
            yield entry

    def _entries_with(self, translation: str) -> Iterator[tuple[str, int, list[str]]]:
        """Yield the entries with a translation."""
        import numpy as np

        with self._lock:
            keys, lines = self._chinese = self._chinese or self._index_chinese()
        key = int.from_bytes(translation[:_KEY].encode(_ENCODING), "little")
        first, end = (int(keys.searchsorted(np.uint64(key), side)) for side in ("left", "right"))
        for line in lines[first:end].tolist():
            entry = self._read(line)
            if translation in entry[2]:
                yield entry

    def _read(self, line: int) -> tuple[str, int, list[str]]:
        """Return the word, level and translations of a line."""
        start = int(self._starts[line])
        end = int(self._starts[line + 1]) if line + 1 < len(self._starts) else len(self._characters)
        word, level, translations = self._text[2 * start : 2 * end - 2].decode(_ENCODING).split("\t")
        return word, int(level or _UNKNOWN_LEVEL), translations.split(",")

    def _index_chinese(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Return the keys of all translations in order, and the lines that they are in."""
        import numpy as np

        characters = self._characters
        is_separator = (characters == ord("\t")) | (characters == ord("\n")) | (characters == ord(","))
        is_first = is_separator[:-1] & (characters[1:] >= _FIRST_HAN)
        places = (np.flatnonzero(is_first) + 1).astype(np.int32)
        keys = np.zeros((len(places), _KEY), dtype="<u2")
        inside = np.ones(len(places), dtype=bool)
        for number in range(_KEY):
            at = np.minimum(places + number, len(characters) - 1)
            inside &= ~is_separator[at]
            keys[inside, number] = characters[at][inside]
        numbers = keys.view("<u8").ravel()
        order = numbers.argsort(kind="stable")
        lines = self._starts.searchsorted(places[order], "right") - 1
        return numbers[order], lines.astype(np.int32)


def base_forms(phrase: str) -> Iterator[str]:
    """Yield a phrase, and what its base form may be; the dictionary has only those that exist."""
    yield phrase
    for ending, base in _ENDINGS:
        if phrase.endswith(ending):
            yield phrase.removesuffix(ending) + base


def _has_capitals_of(word: str, phrase: str) -> bool:
    return all(theirs == own or own == own.lower() for own, theirs in zip(word, phrase, strict=True))


def _share(scores: dict[str, float]) -> dict[str, float]:
    """Return scores in sum 1, the highest first."""
    total = sum(scores.values())
    return {word: scores[word] / total for word in sorted(scores, key=lambda word: -scores[word])}


@lru_cache(maxsize=1)
def load_dictionary() -> BilingualDictionary:
    """Load the dictionary, once."""
    packed = files("loom_core.knowledge").joinpath("data/ecdict.txt.xz").read_bytes()
    return BilingualDictionary(lzma.decompress(packed))
