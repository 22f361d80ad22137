"""Where in a message a pattern fits, and what stands around it there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Doubt", "Place"]

Doubt: TypeAlias = Literal["", "negation", "question", "mention"]
"""Why a message that fits may not ask for it; empty if it does."""

_NEAR = 60  # characters in front and behind that are read
_LATER = 200

_CLAUSE = re.compile(
    r"[,;!?。…\n]|[.:](?=\s|$)|(?<=[了吧啊呢嘛])\s|\bbut\b|但是?|可是|不过|而是|所以|因此", re.I
)


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a message with its surroundings.

    Attributes:
        before: what stands in front of it, in its clause.
        inside: the part itself.
        after: what stands behind it, in its clause.
        later: the same, and the clauses that follow.
        pattern: what fits there.
    """

    before: str
    inside: str
    after: str
    later: str
    pattern: str

    @classmethod
    def of(cls, text: str, start: int, end: int, *, pattern: str) -> Place:
        """A place in a text; a part of no length is the whole text."""
        if start == end:
            start, end = 0, len(text)
        return cls(
            before=_CLAUSE.split(text[max(0, start - _NEAR) : start])[-1],
            inside=text[start:end],
            after=_CLAUSE.split(text[end : end + _NEAR], maxsplit=1)[0].strip(),
            later=text[end : end + _LATER],
            pattern=pattern.lower(),
        )

    def holds(self, script: re.Pattern[str]) -> bool:
        """Whether there is anything of a script in or around it."""
        return any(script.search(part) for part in (self.inside, self.before, self.later))

    def holds_its_own(self, words: re.Pattern[str], neutral: re.Pattern[str]) -> bool:
        """Whether words stand within the part that the pattern does not ask for itself."""
        plain = neutral.sub("·", self.inside).lower()
        return any(found[0] not in self.pattern for found in words.finditer(plain))
