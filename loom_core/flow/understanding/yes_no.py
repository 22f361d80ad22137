"""Yes and no, in both languages: a message is divided into known words, and all of it has to be known.

The words are of four kinds: yes, no, an action (约吧, "book it"), which is a yes unless a no comes before it,
and words that change nothing, such as 那就 or "please".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from loom_core.knowledge.text.scripts import normalise

__all__ = ["yes_or_no"]

_Kind: TypeAlias = Literal["yes", "no", "act", "other"]

_LONGEST = 60  # characters of a message
_PARTS = re.compile(r"[,，。.!！;；、~…\n]+\s*|\s+[-–—]+\s+")
_DRAWN = re.compile(r"([a-z])\1{2,}")  # "nooo"
_AROUND = ' \t"“”「」'
_WORD_CHARACTER = re.compile(r"[a-z0-9']")


@cache
def _vocabulary() -> tuple[Mapping[str, _Kind], frozenset[str]]:
    """Return the kinds of words, and the words that make a message unclear."""
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for line in (
        resources.files("loom_core.flow.understanding").joinpath("yes_no.txt").read_text("utf-8").splitlines()
    ):
        kind, _, words = line.partition(": ")
        if not line.startswith("#"):
            listed[kind] += words.split(", ")
    for verb in listed.pop("verb"):
        listed["other"].append(verb)
        if verb.isascii():
            listed["act"] += [f"{verb}{what}" for what in (" it", " that", " this", " one", " me in")]
        else:
            listed["act"] += [
                f"{verb}{end}" for end in ("吧", "上", "上吧", "好了", "它", "了吧", "这个", "一下")
            ]
            listed["act"] += [f"{begin}{verb}" for begin in ("就", "帮我", "给我", "请", "直接")]
    blocked = frozenset(listed.pop("blocked"))
    kinds: dict[str, _Kind] = {}
    for kind in ("other", "act", "no", "yes"):
        kinds |= dict.fromkeys(listed[kind], kind)
    return kinds, blocked


def yes_or_no(message: str) -> bool | None:
    """Parse a message that is only yes or no; None if it is anything else, or both.

    Args:
        message: the user's message, of any script and width.
    """
    plain = normalise(message[: _LONGEST + 1]).replace("’", "'").strip()
    plain = _DRAWN.sub(r"\1", plain)
    if len(plain) > _LONGEST:
        return None
    if any(_holds(plain, word) for word in _vocabulary()[1]):
        return None
    said = {_answer_of(part.strip(_AROUND)) for part in _PARTS.split(plain) if part.strip(_AROUND)}
    said.discard("neither")
    return said == {"yes"} if said in ({"yes"}, {"no"}) else None


def _answer_of(part: str) -> Literal["yes", "no", "neither", "unclear"]:
    """Classify a part of a message between commas."""
    kinds = _divide(part)
    if kinds is None:
        return "unclear"
    if "no" in kinds:
        return "unclear" if "yes" in kinds or "act" in kinds[: kinds.index("no")] else "no"
    return "yes" if "yes" in kinds or "act" in kinds else "neither"


def _divide(text: str) -> list[_Kind] | None:
    """Return the kinds of the words of a text, in the division with the fewest; None if some are unknown."""
    vocabulary, _ = _vocabulary()
    best: list[list[_Kind] | None] = [[], *[None] * len(text)]
    for at in range(len(text)):
        if (until := best[at]) is None:
            continue
        if text[at] == " " and best[at + 1] is None:
            best[at + 1] = until
        for end in range(at + 1, len(text) + 1):
            kind = vocabulary.get(text[at:end])
            if kind is None or _cuts_word(text, at) or _cuts_word(text, end):
                continue
            if (known := best[end]) is None or len(known) > len(until) + 1:
                best[end] = [*until, kind]
    return best[-1]


def _holds(text: str, word: str) -> bool:
    at = text.find(word)
    return at >= 0 and not (word.isalpha() and (_cuts_word(text, at) or _cuts_word(text, at + len(word))))


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(map(_WORD_CHARACTER.match, around))
