"""Rules for English: names are capitalised, definitions say "is a", verbs stand between names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.model import Mention, Relation
from loom_core.knowledge.remembered import remembered
from loom_core.knowledge.text import is_stop_word

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["english_definition", "english_mentions", "english_predicate"]

# Initials, an abbreviation before a name, or a word. The first letter stands before the alternatives, so
# that the engine leaps from capital to capital instead of trying each of them at every character.
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
    r"(?P<article>an?|the|one of the)\s+(?P<object>[^.;\n]{3,160})"
)
_OBJECT_END = re.compile(
    r",|\(|\s(?:that|which|who|whose|where|in|of|by|from|for|to|on|at|with|and|directed|written|"
    r"produced|based|located|used|known|born|founded|released|published|created|designed|made|is|was)\b"
)
_PREDICATE_WORD = re.compile(r"[a-z]+(?:-[a-z]+)?")
_ENDS = frozenset(".;:!?()[]\n")  # between two names, of what is said of them both
_SAYING_NOTHING = frozenset("and or the a an s".split())
_MOST_WORDS = 6


def english_mentions(text: str) -> Iterator[Mention]:
    """Capitalised phrases and quoted titles."""
    if '"' in text or "“" in text:
        for match in _QUOTED.finditer(text):
            title, start = match[1].rstrip(" ,."), match.start(1)
            yield Mention(title, start, start + len(title), "work", "quoted", 0.6)
    for match in _NAME.finditer(text):
        before, name, confidence = _trimmed(match.group())
        start = match.start() + before
        if confidence is None:
            confidence = 0.3 if _begins_sentence(text, start) else 0.7
        if confidence:
            yield Mention(name, start, start + len(name), "thing", "capitalised", confidence)


def _begins_sentence(text: str, start: int) -> bool:
    if start > 1 and text[start - 1] == " " and text[start - 2].isalnum():
        return False  # most names stand between two words, where the pattern need not be asked
    return _SENTENCE_START.search(text, max(0, start - 4), start) is not None


@remembered
def _trimmed(phrase: str) -> tuple[int, str, float | None]:
    """A capitalised phrase without what is no part of a name.

    Returns:
        How many characters before the name were left out, the name, and how sure it is: 0 if there is
        none, and None if that depends on whether it begins a sentence.
    """
    words = _POSSESSIVE.sub("", phrase).rstrip(".-&’'").split()
    start = 0
    # "When Paris" at the start of a sentence is about Paris, and so is "In 1952 Paris".
    while words and _is_before_name(words):
        start += len(words[0]) + 1
        words = words[1:]
    # ", In lead roles" does not belong to the name before it.
    while words and is_stop_word(words[-1].casefold()):
        words = words[:-1]
    name = phrase[start : start + len(" ".join(words))]
    return start, name, _confidence(words) if len(name) > 1 else 0.0


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
    """The statement "X is a Y" at the beginning of a passage."""
    match = _DEFINITION.match(text)
    if match is None:
        return None
    subject = match["subject"].strip()
    what = match["object"]
    cut = _OBJECT_END.search(what)
    what = " ".join((what[: cut.start()] if cut else what).split()[:5]).strip(" ,.'\"")
    if not what or is_stop_word(subject.casefold()) or len(subject.split()) > 7:
        return None
    return Relation(
        subject, "is a", what, match.start("subject"), match.start("object") + len(what), "definition", 0.6
    )


@remembered
def english_predicate(between: str) -> str:
    """The words between two names as a verb phrase, or empty if they are none."""
    if not _ENDS.isdisjoint(between):
        return ""
    words = _PREDICATE_WORD.findall(between.strip(" ,").casefold())
    if len(words) > _MOST_WORDS or _SAYING_NOTHING.issuperset(words):
        return ""
    return " ".join(words)
