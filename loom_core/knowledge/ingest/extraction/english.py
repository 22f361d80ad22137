"""Rules for English: names are capitalised, definitions say "is a", verbs are between names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.extraction.english_types import (
    NameType,
    is_quoted_work,
    type_from_context,
    type_of_name,
)
from loom_core.knowledge.model import Mention, Relation
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.memoization import memoize

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["english_definition", "english_mentions"]

# Initials, an abbreviation before a name, or a word. The first letter comes before the alternatives, so
# that the engine skips from capital to capital instead of trying each alternative at every character.
_CAPITALISED = (
    r"(?:[A-ZÀ-ÖØ-ÞĀ-Ž](?:(?<=[A-Z])\.(?:[A-Z]\.)+"
    r"|(?:(?<=M)rs?|(?<=M)s|(?<=[DJS])r|(?<=S)t|(?<=P)rof|(?<=[A-Z]))\.(?=[ \u00a0]?[A-Z])|[\w’'&-]*))"
)
_INNER = r"(?:of|the|de|la|le|du|des|del|della|di|da|dos|von|van|der|den|zu|al|el|bin|ibn|y|e|on|&)"
_NAME = re.compile(rf"{_CAPITALISED}(?:[ \u00a0](?:{_INNER}[ \u00a0]){{0,2}}(?:{_CAPITALISED}|\d{{1,4}}\b))*")
_QUOTED = re.compile(r"[\"“]([A-Z][^\"“”\n]{2,60})[\"”]")
_POSSESSIVE = re.compile(r"[’']s?$")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;]['\"”’)]?\s+|\n\s*|[-*•]\s+)$")
_CALENDAR = frozenset(
    "january february march april may june july august september october november december monday "
    "tuesday wednesday thursday friday saturday sunday".split()
)
_SAID_BY_ITSELF = frozenset(
    "figure table section chapter page note example see yes ok mr mrs ms dr prof sir".split()
)

_DEFINITION = re.compile(
    rf"\s*(?:The |A |An )?(?P<subject>(?:{_CAPITALISED}|[a-z][\w-]+)(?:[ ](?:{_INNER}|[\w’'-]+)){{0,6}}?)"
    r"\s*(?:\([^()]{0,120}\))?,?\s+(?:is|are|was|were|refers to|means)\s+"
    r"(?:an?|the)\s+(?P<object>[^.;\n]{3,160})"
)
_DEICTIC = frozenset("this that these those your our which each".split())
_OBJECT_END = re.compile(
    r",|\(|\s(?:that|which|who|whose|where|in|of|by|from|for|to|on|at|with|and|directed|written|"
    r"produced|based|located|used|known|ensuring|allowing|providing|containing|born|founded|released|published|created|designed|made|is|was)\b"
)


def english_mentions(text: str) -> Iterator[Mention]:
    """Yield capitalised phrases and quoted titles."""
    if '"' in text or "“" in text:
        for match in _QUOTED.finditer(text):
            title, start = match[1].rstrip(" ,."), match.start(1)
            end = start + len(title)
            yield Mention(
                title, start, end, "work" if is_quoted_work(text, start, end) else "thing", "quoted", 0.6
            )
    end, type_ = -1, "thing"  # of the previous name
    for match in _NAME.finditer(text):
        before, name, confidence, own_type = _trim(match.group())
        start = match.start() + before
        if confidence is None:
            confidence = 0.3 if _begins_sentence(text, start) else 0.7
        if confidence:
            # "in Austin, Texas": a name right after a place is a place, too.
            is_where = type_ == "place" and start - end == 2 and text[end] == ","
            end = start + len(name)
            type_ = own_type or ("place" if is_where else type_from_context(text, start, end))
            yield Mention(name, start, end, type_, "capitalised", confidence)


def _begins_sentence(text: str, start: int) -> bool:
    if start > 1 and text[start - 1] == " " and text[start - 2].isalnum():
        return False  # most names are between two words, where the pattern is not needed
    return _SENTENCE_START.search(text, max(0, start - 4), start) is not None


@memoize
def _trim(phrase: str) -> tuple[int, str, float | None, NameType | None]:
    """Trim a capitalised phrase to the name in it.

    Returns:
        The number of characters trimmed before the name; the name; its confidence, 0 if there is none, None
        if it depends on whether it begins a sentence; and its type by its own words, if any.
    """
    words = _POSSESSIVE.sub("", phrase).rstrip(".-&’'").split()
    start = 0
    # In "When Paris" at the start of a sentence the name is Paris, and in "In 1952 Paris", too.
    while words and _is_before_name(words):
        start += len(words[0]) + 1
        words = words[1:]
    # ", In lead roles" does not belong to the name before it.
    while words and is_stop_word(words[-1].casefold()):
        words = words[:-1]
    name = phrase[start : start + len(" ".join(words))]
    if len(name) < 2:
        return start, name, 0.0, None
    return start, name, _confidence(words), type_of_name(name)


def _is_before_name(words: list[str]) -> bool:
    if words[0].isdigit():
        return True
    return is_stop_word(words[0].casefold()) and (len(words) == 1 or words[0] != "The")


def _confidence(words: list[str]) -> float | None:
    if len(words) > 1:
        return 0.8
    folded = words[0].casefold()
    if folded in _CALENDAR or folded in _SAID_BY_ITSELF:
        return 0.0
    return 0.7 if words[0].isupper() else None


def english_definition(text: str) -> Relation | None:
    """Return the statement "X is a Y" at the beginning of a passage."""
    match = _DEFINITION.match(text)
    if match is None:
        return None
    subject = match["subject"].strip()
    what = match["object"]
    cut = _OBJECT_END.search(what)
    what = " ".join((what[: cut.start()] if cut else what).split()[:5]).strip(" ,.'\"")
    # "If the server is a …" is a condition.
    words = subject.casefold().split()
    if not what or is_stop_word(words[0]) or len(words) > 7 or not _DEICTIC.isdisjoint(words):
        return None
    return Relation(
        subject, "is a", what, match.start("subject"), match.start("object") + len(what), "definition", 0.6
    )
