"""Finding the names of known subjects in passages: the links of the graph.

A passage that names the title, heading or defined term of another one is linked to it, and following
such links is what answers questions that no single passage answers. Which names a passage holds
depends on its text and on the names alone, never on the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.text import is_cjk, is_stop_word, surface_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NameIndex", "NameMatch"]

_MAX_TOKENS = 24  # a longer title is a sentence, and nobody quotes it whole


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
        self._longest: dict[str, int] = {}  # first token -> tokens of the longest name that begins so

    def __len__(self) -> int:
        return len(self._names)

    def add(self, entity: int, id_: str) -> bool:
        """Look for an entity's id (`name_key` of its names) from now on.

        Returns:
            Whether it is a name that can be looked for.
        """
        tokens = [token.key for token in surface_tokens(id_)]
        if not 0 < len(tokens) <= _MAX_TOKENS or not _tells(tokens):
            return False
        self._names[_joined(tokens)] = entity
        self._longest[tokens[0]] = max(self._longest.get(tokens[0], 0), len(tokens))
        return True

    def discard(self, id_: str) -> None:
        """Stop looking for an id."""
        self._names.pop(_joined([token.key for token in surface_tokens(id_)]), None)

    def find(self, text: str) -> Iterator[NameMatch]:
        """All names in a text, also those inside longer ones."""
        tokens = list(surface_tokens(text))
        for first, token in enumerate(tokens):
            longest = self._longest.get(token.key, 0)
            joined = ""
            for token_after in tokens[first : first + longest]:
                joined += " " + token_after.key
                entity = self._names.get(joined)
                if entity is None:
                    continue
                if token_after is token and not _is_marked(text[token.start : token.end]):
                    continue
                yield NameMatch(entity, token.start, token_after.end)


def _joined(tokens: list[str]) -> str:
    return "".join(" " + token for token in tokens)


def _tells(tokens: list[str]) -> bool:
    if all(token.isdigit() or is_stop_word(token) for token in tokens):
        return False
    return len(tokens) > 1 or (len(tokens[0]) > 1 and not is_cjk(tokens[0][0]))


def _is_marked(word: str) -> bool:
    return word != word.lower() or any(char.isdigit() for char in word) or not word.isascii()
