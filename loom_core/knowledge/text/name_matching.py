"""Name matching: find the names of known subjects in passages, for entity linking.

A passage that names the title, heading or defined term of another one is linked to it, and following
such links answers multi-hop questions, which no single passage answers. The names found in a passage depend
only on its text and the set of names, never on the order in which they were added.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import compress, count, pairwise
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import is_cjk
from loom_core.knowledge.text.analysis import is_stop_word, lookup_tokens
from loom_core.knowledge.text.surface_forms import name_key, surface_keys, surface_spans

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["NameIndex", "NameMatch", "inner_names", "is_marked", "is_matchable", "plain_latin"]

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
        if not _can_be_found(tokens, id_):
            return False
        if len(tokens) == 1:
            self._words[tokens[0]] = entity
        else:
            self._names[" ".join(tokens)] = entity
            lengths = self._begin.get(begin := (tokens[0], tokens[1]), ())
            if len(tokens) not in lengths:
                self._begin[begin] = (*lengths, len(tokens))
        return True

    def find(self, text: str, *, near: Collection[int] | None = None) -> Iterator[NameMatch]:
        """Yield all names in a text, also those inside longer ones.

        Args:
            text: the text.
            near: only the names of these entities, the names inside them, and the longer ones that hold any
                of these; nothing if the text has no name of theirs. None for all names.
        """
        keys = surface_keys(text)
        names = list(self._longer(keys))
        names += (
            (self._words[keys[n]], n, n) for n in compress(count(), map(self._words.__contains__, keys))
        )
        if near is not None:
            names = _names_near(near, names)
        if not names:
            return
        spans = surface_spans(text, {n for _, first, last in names for n in (first, last)})
        for entity, first, last in names:
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


def _names_near(entities: Collection[int], names: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the names in a text, with their tokens, near those of some entities; see `NameIndex.find`."""
    own = [name for name in names if name[0] in entities]
    inner = {name[0] for name in names if any(_is_inside(name, each) for each in own)}
    places = [name for name in names if name[0] in inner]
    return [name for name in names if name[0] in inner or any(_is_inside(each, name) for each in places)]


def _is_inside(name: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return other[1] <= name[1] and name[2] <= other[2]


def is_matchable(id_: str) -> bool:
    """Return whether an entity's id is a name that can be matched; see `NameIndex.add`."""
    return _can_be_found(_tokens(id_), id_)


def _can_be_found(tokens: list[str], id_: str) -> bool:
    # Without lookup tokens it could not be found in earlier passages.
    fits = 0 < len(tokens) <= _MAX_TOKENS and _is_distinctive(tokens)
    return fits and (any(map(_is_plain, tokens)) or bool(lookup_tokens(id_)))


def inner_names(id_: str) -> set[str]:
    """Return the ids of all names that may be found inside a longer one: `york` in `new york city`."""
    tokens = _tokens(id_)
    if not 1 < len(tokens) <= _MAX_TOKENS:
        return set()
    ends = range(1, len(tokens) + 1)
    return {name_key(" ".join(tokens[start:end])) for end in ends for start in range(end)} - {id_}


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
