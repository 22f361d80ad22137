"""Normalized form of a message for matching, with a map to the original characters."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field

from loom_core.knowledge.text.scripts import to_simplified

__all__ = ["LONGEST_MESSAGE", "NormalText"]

LONGEST_MESSAGE = 4096
"""Maximum number of UTF-8 bytes of a message that are matched."""

_MARKS = range(0x1161, 0x1200)  # vowels and finals of Hangul, which combine with the character before


@dataclass(slots=True)
class NormalText:
    """A message normalized by NFKC and to simplified characters, and trimmed.

    Half-width and full-width forms become one, `①` becomes `1`, `㎏` becomes `kg`: the text may be longer
    than the message, or shorter. Case is preserved.

    Attributes:
        original: the message.
        text: its normalized form.
    """

    original: str
    text: str
    _lead: int
    _starts: list[int] = field(default_factory=list[int])
    _sources: list[int] = field(default_factory=list[int])
    _mapped: bool = False

    @classmethod
    def of(cls, message: str) -> NormalText:
        """Normalize a message. A lone surrogate becomes `?`; a message that is too long is truncated."""
        lead = len(message) - len(message.lstrip())
        body = _truncate(message[lead : lead + LONGEST_MESSAGE])
        if body.isascii():
            return cls(message, body.rstrip(), lead)
        plain = _truncate(unicodedata.normalize("NFKC", body)).rstrip()
        return cls(message, to_simplified(plain), lead, _mapped=not body.startswith(plain))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the message that a part of the text comes from, in whole clusters."""
        if not self._mapped:
            return start + self._lead, end + self._lead
        if not self._starts:
            self._map()
        first = bisect_right(self._starts, start) - 1
        if end <= start:
            return self._sources[first], self._sources[first]
        last = bisect_right(self._starts, end - 1) - 1
        return self._sources[first], self._sources[last + 1]

    def _map(self) -> None:
        """Fill the tables that map each cluster of the message to the text."""
        at, source = 0, self._lead
        for cluster in _clusters(self.original[self._lead : self._lead + LONGEST_MESSAGE]):
            form = unicodedata.normalize("NFKC", cluster.encode("utf-8", "replace").decode())
            self._starts.append(at)
            self._sources.append(source)
            at += len(form)
            source += len(cluster)
        self._starts.append(at)
        self._sources += [source, source]


def _truncate(text: str) -> str:
    """Truncate a text to the maximum length, without lone surrogates."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > LONGEST_MESSAGE:
        return encoded[:LONGEST_MESSAGE].decode("utf-8", "ignore")
    return encoded.decode("utf-8")


def _clusters(text: str) -> list[str]:
    """Split a text into parts that are normalized independently."""
    starts = [at for at, char in enumerate(text) if at == 0 or not _joins(char)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _joins(char: str) -> bool:
    """Return whether a character may combine with the one before it."""
    if char.isascii():
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or ord(first) in _MARKS
