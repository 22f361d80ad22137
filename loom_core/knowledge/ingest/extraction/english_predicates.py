"""The words between two English names as what is said of the two, or nothing where they say nothing."""

from __future__ import annotations

import re

from loom_core.knowledge.text.memoization import remembered

__all__ = ["english_predicate"]

_ENDS = frozenset(".;:!?()[]\n")  # between two names, of what is said of them both
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_OF_POSSESSIVE = re.compile(r"[’'](?:s\b)?")
_MOST_WORDS = 6
_MOST_HAD = 3  # words of what somebody has: "Ada's younger sister Anna"

_SAYING_NOTHING = frozenset("and or but the a an nor".split())
_ARTICLES = frozenset("a an the".split())
_BEING = frozenset("am are be been being is was were".split())
_SHORT = frozenset(
    "am an as at be by do go he if in is it me my no of off on or ox so to up us via we".split()
)
_PREPOSITIONS = frozenset(
    """
        about above across after against along alongside amid among around as at before behind below beneath
        beside besides between beyond by despite down during except for from in including inside into like
        near of off on onto opposite out outside over past per since than through throughout to toward towards
        under underneath unlike until up upon versus via with within without
    """.split()
)
_VERBS = _BEING | frozenset(
    """
        became become becomes began begin begins bears beat beats becomes bore borders bought bring brings
        broke brought build builds built buy buys calls came can cast causes chose come comes compares
        contains could covers crosses cut defeats defines depends describes did directs do does drew drives
        drove extends faces fell fights finds flew flies flows follows forms fought found founds gave get gets
        gives go goes got governs grew had has have heads held helps hit holds hosts hurts includes invades is
        joins keeps kept knew knows lay lays lead leads learns leaves led left lent let lets lies links lived
        lives lost loves made makes manages marries may means meet meets met might moves must names needs
        opens operates owns paid pays plays praises produces provides publishes put puts ran reaches read
        receives refers remains replaces represents requires rose rules run runs said sang sat saw says sees
        sells sends sent serves set shall shares shot should shows sings sits sold sees speaks spent spoke
        sponsors stands starred stars starts stood studies supports takes taught teaches tells thinks threw
        told took trains treats turns uses wants was went were will wins won works would writes written wrote
    """.split()
)
_LONGEST_PARTICIPLE_STEM = 2  # letters before -ed and -ing that make no verb: red, king


@remembered
def english_predicate(between: str) -> str:
    """The words between two names as a phrase with a verb or a preposition, or empty if they are none.

    `Ada's sister Anna` says that the one has the other: "has sister".
    """
    if not _ENDS.isdisjoint(between):
        return ""
    owner = _OF_POSSESSIVE.match(between)
    text = between[owner.end() :] if owner else between
    words = [word for word in _WORD.findall(text.casefold()) if _is_word(word)]
    while words and words[0] in _SAYING_NOTHING and words[0] not in _ARTICLES:
        words = words[1:]
    while words and words[-1] in _SAYING_NOTHING and not (len(words) > 1 and words[-2] in _BEING):
        words = words[:-1]
    if not words or len(words) > _MOST_WORDS:
        return ""
    if any(word in _PREPOSITIONS or _is_verb(word) for word in words):
        return " ".join(words)
    return " ".join(["has", *words]) if owner and len(words) <= _MOST_HAD else ""


def _is_word(word: str) -> bool:
    """Whether it is none of the pieces that are left of numbers and other languages: `4th`, `al`, `i`."""
    return (len(word) > 2 or word in _SHORT or word == "a") and not any(map(str.isdigit, word))


def _is_verb(word: str) -> bool:
    if word in _VERBS:
        return True
    stem = word.removesuffix("ed") if word.endswith("ed") else word.removesuffix("ing")
    return len(stem) < len(word) and len(stem) > _LONGEST_PARTICIPLE_STEM
