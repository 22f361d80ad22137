"""Finding the names of known subjects in passages: the links of the graph.

A passage that names the title, heading or defined term of another one is linked to it, and following
such links is what answers questions that no single passage answers. Which names a passage holds
depends on its text and on the names alone, never on the order in which they came.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.text import is_cjk, is_stop_word, lookup_tokens, surface_keys, surface_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NameIndex", "NameMatch", "bare", "is_marked"]

_MAX_TOKENS = 24  # a longer title is a sentence, and nobody quotes it whole
_LEFT_OUT = bytes(code for code in range(128) if not chr(code).isalnum() or chr(code) == "s")


class NameMatch(NamedTuple):
    """A known name in a text: the entity's key and where the name stands."""

    entity: int
    start: int
    end: int


class NameIndex:
    """The names of all subjects, held in memory to be looked for in texts.

    A name of one Latin word counts only where it is written with a capital letter or a digit, so that
    a section called "Example" is not linked from every "example"; a name of stop words, of one CJK
    character or of digits only is not looked for at all.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        # First token -> second token -> tokens of the longest name that begins so.
        self._begin: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, entity: int, id_: str) -> bool:
        """Look for an entity's id (`name_key` of its names) from now on.

        Returns:
            Whether it is a name that can be looked for.
        """
        tokens = _tokens(id_)
        if not 0 < len(tokens) <= _MAX_TOKENS or not _tells(tokens):
            return False
        if not (any(map(_is_plain, tokens)) or lookup_tokens(id_)):
            return False  # without tokens to look it up by it would be found in later passages only
        self._names[" ".join(tokens)] = entity
        longest = self._begin.setdefault(tokens[0], {})
        if len(tokens) > 1:
            longest[tokens[1]] = max(longest.get(tokens[1], 0), len(tokens))
        return True

    def discard(self, id_: str) -> None:
        """Stop looking for an id."""
        self._names.pop(" ".join(_tokens(id_)), None)

    def find(self, text: str) -> Iterator[NameMatch]:
        """All names in a text, also those inside longer ones."""
        yield from self.find_in(surface_keys(text), text)

    def find_in(self, keys: list[str], text: str) -> Iterator[NameMatch]:
        """The same, where the `surface_keys` of the text are known."""
        found = list(self._matches(keys))
        if not found:
            return
        spans = surface_spans(text, 1 + max(last for _, _, last in found))
        for entity, first, last in found:
            start, end = spans[first][0], spans[last][1]
            if first != last or is_marked(text[start:end]):
                yield NameMatch(entity, start, end)

    def _matches(self, keys: list[str]) -> Iterator[tuple[int, int, int]]:
        """Where names stand among the tokens of a text: entity, first and last token."""
        names = self._names
        for first, longest in enumerate(map(self._begin.get, keys)):
            if longest is None:
                continue
            joined = keys[first]
            if (entity := names.get(joined)) is not None:
                yield entity, first, first
            if first + 1 == len(keys) or (count := longest.get(keys[first + 1])) is None:
                continue
            for last in range(first + 1, min(len(keys), first + count)):
                joined += " " + keys[last]
                if (entity := names.get(joined)) is not None:
                    yield entity, first, last


def bare(text: str) -> bytes:
    """The plain Latin letters and digits of a text, by which it is soon told that it does not hold a name.

    If it does, theirs are in the text's one after the other, however both are spelled. The letter s is left
    out, as a possessive may add it to a word.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).casefold()
    return text.lower().encode("ascii", "ignore").translate(None, _LEFT_OUT)


def _tokens(id_: str) -> list[str]:
    """The `surface_keys` of an id, which is made of them."""
    return id_.split() if id_.isascii() else surface_keys(id_)


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isalnum() and not is_stop_word(token)


def _tells(tokens: list[str]) -> bool:
    if all(token.isdigit() or is_stop_word(token) for token in tokens):
        return False
    return len(tokens) > 1 or (len(tokens[0]) > 1 and not is_cjk(tokens[0][0]))


def is_marked(word: str) -> bool:
    """Whether a word looks like a name where it stands: a capital letter, a digit, another script."""
    return word != word.lower() or any(char.isdigit() for char in word) or not word.isascii()
