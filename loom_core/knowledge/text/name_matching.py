"""Name matching: find the names of known subjects in passages, for entity linking.

A passage that names the title, heading or defined term of another one is linked to it, and following
such links answers multi-hop questions, which no single passage answers. The names found in a passage depend
only on its text and the set of names, never on the order in which they were added.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, compress, count, pairwise
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import is_cjk
from loom_core.knowledge.text.analysis import is_stop_word, lookup_tokens
from loom_core.knowledge.text.surface_forms import surface_keys, surface_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NameIndex", "NameMatch", "is_marked", "plain_latin"]

_MAX_TOKENS = 24  # a longer title is a sentence, which no text quotes whole
_LEFT_OUT = bytes(code for code in range(128) if not chr(code).isalnum() or chr(code) == "s")
_SIGNS = re.compile(r"[\W_]+")


class NameMatch(NamedTuple):
    """A known name in a text: the entity's key and the name's place."""

    entity: int
    start: int
    end: int


class NameIndex:
    """In-memory index of the names of all subjects, to find them in texts.

    A name of one Latin word counts only where it is written with a capital letter or a digit, so that
    a section called "Example" is not linked from every "example"; a name of stop words, of one CJK
    character or of digits only is never matched.
    """

    def __init__(self) -> None:
        self._words: dict[str, int] = {}  # names of one token
        self._names: dict[str, int] = {}  # all others, joined by spaces
        self._begin: dict[tuple[str, str], tuple[int, ...]] = {}  # first two tokens -> possible lengths

    def __len__(self) -> int:
        return len(self._words) + len(self._names)

    def add(self, entity: int, id_: str) -> bool:
        """Add an entity's id (`name_key` of its names).

        Returns:
            Whether it is a name that can be matched.
        """
        tokens = _tokens(id_)
        if not 0 < len(tokens) <= _MAX_TOKENS or not _is_distinctive(tokens):
            return False
        if not (any(map(_is_plain, tokens)) or lookup_tokens(id_)):
            return False  # without lookup tokens it could not be found in earlier passages
        if len(tokens) == 1:
            self._words[tokens[0]] = entity
        else:
            self._names[" ".join(tokens)] = entity
            lengths = self._begin.get(begin := (tokens[0], tokens[1]), ())
            if len(tokens) not in lengths:
                self._begin[begin] = (*lengths, len(tokens))
        return True

    def find(self, text: str) -> Iterator[NameMatch]:
        """Yield all names in a text, also those inside longer ones."""
        keys = surface_keys(text)
        names = list(self._longer(keys))
        words = [(self._words[keys[n]], n, n) for n in compress(count(), map(self._words.__contains__, keys))]
        if not (words or names):
            return
        spans = surface_spans(text, {n for _, first, last in chain(names, words) for n in (first, last)})
        for entity, first, last in chain(names, words):
            start, end = spans[first][0], spans[last][1]
            if first != last or is_marked(text[start:end]):
                yield NameMatch(entity, start, end)

    def _longer(self, keys: list[str]) -> Iterator[tuple[int, int, int]]:
        """Yield the names of several tokens among the keys of a text: entity, first and last token."""
        for first in compress(count(), map(self._begin.__contains__, pairwise(keys))):
            for length in self._begin[keys[first], keys[first + 1]]:
                entity = self._names.get(" ".join(keys[first : first + length]))
                if entity is not None and first + length <= len(keys):
                    yield entity, first, first + length - 1


def plain_latin(text: str) -> bytes:
    """Return the plain Latin letters and digits of a text, as a fast pre-filter for names.

    If the result for a name is not a substring of that for a text, the text does not hold the name, whatever
    the spelling. The letter s is left out, as a possessive may add it to a word.
    """
    if not text.isascii():
        # Remove signs first, as some normalise to letters (`⒜`) that are not part of a name.
        text = unicodedata.normalize("NFKD", _SIGNS.sub("", text)).casefold()
    return text.lower().encode("ascii", "ignore").translate(None, _LEFT_OUT)


def _tokens(id_: str) -> list[str]:
    """Return the `surface_keys` that an id consists of."""
    return id_.split() if id_.isascii() else surface_keys(id_)


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isalnum() and not is_stop_word(token)


def _is_distinctive(tokens: list[str]) -> bool:
    if all(token.isdigit() or is_stop_word(token) for token in tokens):
        return False
    return len(tokens) > 1 or (len(tokens[0]) > 1 and not is_cjk(tokens[0][0]))


def is_marked(word: str) -> bool:
    """Whether a word looks like a name: a capital letter, a digit, another script."""
    return word != word.lower() or any(char.isdigit() for char in word) or not word.isascii()
