"""Words that were hyphenated at a line's end, joined by what else the document says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Hyphens"]

_HYPHEN = "[-\u00ad\u2010]"
_LETTER = r"[^\W\d_]"
# Begins where a word does and never goes back, so that a run of letters without an end costs no time.
_BREAK = re.compile(
    rf"(?<!{_LETTER})(?<![-\u2010])({_LETTER}++(?:[-\u2010]{_LETTER}++)*){_HYPHEN}\n([a-zß-öø-ÿ]\w*)"
)
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")
_AND = frozenset("and or to und oder bis sowie noch et ou y o e en of".split())
"""After these a hyphen stands for the rest of a word: `Haupt-` + `und Nebensatz`."""

_SHORTEST = 3
"""Length from which both halves of a word, being words, speak for a hyphen: `error-prone`, not `the-ory`."""


class Hyphens:
    """Decide for each hyphen at a line end of a document whether it stays.

    Args:
        texts: the document's, with line feeds where lines end.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: set[str] = set()
        for text in texts:
            whole = _BREAK.sub(" ", text).replace("\u2010", "-").casefold()
            for word in _WORD.findall(whole):
                self._words.add(word)
                if "-" in word:
                    self._words.update(word.split("-"))

    def joined(self, text: str) -> str:
        """A text without hyphens that only a line's end brought about."""
        if "-\n" in text or "\u00ad\n" in text or "\u2010\n" in text:
            text = _BREAK.sub(self._join, text)
        return text.replace("\u00ad\n", "-")

    def _join(self, match: re.Match[str]) -> str:
        before, after = match[1], match[2]
        left = re.split("[-\u2010]", before.casefold())[-1]
        right = after.casefold()
        if left + right in self._words:
            return before + after
        if f"{left}-{right}" in self._words or f"{before.casefold()}-{right}" in self._words:
            return f"{before}-{after}"
        if right in _AND:
            return f"{before}- {after}"
        if min(len(left), len(right)) >= _SHORTEST and {left, right} <= self._words:
            return f"{before}-{after}"
        return before + after
