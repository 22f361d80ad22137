"""What kind of thing an English name names: told by its own words, by its neighbours, by "X is a Y".

Type words of one short list serve all three: a *river* is a place, be it in `Hudson River`, in `the river
Hudson` or in `Hudson is a tidal river`. What is not sure stays a `thing`; of an entity's mentions those with
a type decide.
"""

from __future__ import annotations

import re

from loom_core.knowledge.ingest.extraction.english_lexicon import (
    CALENDAR,
    DIRECTIONS,
    FIRST_OF,
    FIRST_PLACE,
    GIVEN,
    LAST_TYPES,
    NO_PLACES,
    NOT_BEFORE,
    NOUN_TYPES,
    PERSON_TITLES,
    PLAYED_IN,
    NameType,
)
from loom_core.knowledge.text.memoization import remembered

__all__ = ["NameType", "is_quoted_work", "type_beside", "type_of_name", "type_of_noun_phrase"]

_PEOPLES = ("an", "ish", "ese", "ers", "ern", "ists")  # North American, East Germans, New Yorkers
_PERSON_ENDS = frozenset("Jr Sr II III IV VI VII VIII".split())
_PLACE_ENDS = ("ville", "burgh", "shire", "istan", "land", "borough", "abad", "sylvania")
_INITIALS = re.compile(r"(?:[A-Z]\.)+")

_LONGEST_PERSON = 4  # words
_SHORTEST_ENDED = 6  # characters


# Words for peoples and languages, which are no places in "in American films".
_PEOPLE = re.compile(
    r".*(?:ian|ean|(?<!ti)can|ish|ese|eli|ani|aqi)|Argentine|Bengali|Cuban|Czech|Danes?|Dutch|Filipino|Finn|French|"
    r"German|Greek|Hindi|Malayalam|Moroccan|Norman|Roman|Scots|Swiss|Tamil|Telugu|Thai|Tibetan|Turk|Urdu|Welsh"
)


@remembered
def type_of_name(name: str) -> NameType | None:
    """What a name says itself by its words; None where that is nothing, and its neighbours may say it."""
    words = [word.rstrip(".") for word in name.replace("\u00a0", " ").split()]
    if len(words) > 1 and words[0] == "The":
        words = words[1:]
    first, last = words[0], words[-1]
    if first in CALENDAR:
        return "thing"
    if len(words) == 1:
        if _PEOPLE.fullmatch(first):
            return "thing"
        return "place" if _is_place_by_ending(first) else None
    if last in _PERSON_ENDS:
        return LAST_TYPES.get(words[-2], "person")  # World War II
    if "of" in words or "for" in words:
        before = words[words.index("of" if "of" in words else "for") - 1]
        return FIRST_OF.get(before) or LAST_TYPES.get(before)
    if last in LAST_TYPES:
        return LAST_TYPES[last]
    if first in PERSON_TITLES:
        return "person"
    if first in FIRST_PLACE or (first in DIRECTIONS and len(words) == 2 and _is_place_word(last)):
        return "place"
    if len(words) <= _LONGEST_PERSON and (first in GIVEN or _INITIALS.match(name)) and last[0].isalpha():
        return "person"
    return None


def _is_place_by_ending(word: str) -> bool:
    return word.endswith(_PLACE_ENDS) and len(word) > _SHORTEST_ENDED and word not in NO_PLACES


def _is_place_word(word: str) -> bool:
    """Whether what follows on `New` or `North` may be a place: no American, no Yorkers."""
    return word.istitle() and not word.endswith(_PEOPLES) and not _PEOPLE.fullmatch(word)


_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_PHRASE_END = re.compile(
    r"[,;:()]|(?<![\w-])(?:that|which|who|whose|where|when|in|of|by|from|for|to|on|at|with|and|or|as|directed|written|"
    r"produced|based|located|situated|used|known|born|founded|released|published|created|designed|made|is|was)(?![\w-])"
)


def type_of_noun_phrase(phrase: str) -> NameType:
    """What is an "American actor and film producer", or "a small town in Ohio": the type of its main noun."""
    end = _PHRASE_END.search(phrase)
    words: list[str] = _WORD.findall(phrase[: end.start()] if end else phrase)
    for word in reversed(words[-2:]):  # "a tributary stream"; "a film noir"
        if found := _noun_type(word.lower()):
            return found
    return "thing"


@remembered
def _noun_type(noun: str) -> NameType | None:
    """The type of a noun: singular, plural, or a compound such as `singer-songwriter`."""
    noun = noun.rpartition("-")[2]
    return (
        NOUN_TYPES.get(noun)
        or NOUN_TYPES.get(noun.removesuffix("s"))
        or (NOUN_TYPES.get(noun[:-3] + "y") if noun.endswith("ies") else None)
    )


_BEFORE = 40  # characters that are read before a name
_AFTER = 90
_BY_PERSON = frozenset("starring née nee actress actor".split())
_LIFE = re.compile(
    r" ?\((?:[^()]{0,60}?[;,] ?)?(?:(?:born|née|nee|b\.|died|d\.|c\.)\s|\d{1,2} [A-Z][a-z]+ \d{4} ?[-–—]"
    r"|[A-Z][a-z]+ \d{1,2}, \d{4} ?[-–—]|(?P<born>1\d{3}) ?[-–—] ?(?P<died>[12]\d{3})\))"
)
_KIND_IN_PARENTHESES = re.compile(r" \((?:[^()\d]{0,20}\d{4} )?(?P<noun>[a-z]+(?: [a-z]+)?)\)")
_APPOSITION = re.compile(r", (?:an?|the) ([^.;:()\n]{3,80})")
_LEAST_LIFE, _LONGEST_LIFE = 15, 110  # years


def type_beside(text: str, start: int, end: int) -> NameType:
    """What stands beside a name says of it: "the actor X", "in X", "X (born 1950)", "X, a town in Y"."""
    if end < len(text):
        following = text[end : end + 2]
        if following == " (":
            if found := _in_parentheses(text, end):
                return found
        elif following == ", ":
            match = _APPOSITION.match(text, end)
            if match is not None and (found := type_of_noun_phrase(match[1])) != "thing":
                return found
            if text.startswith(", who ", end):
                return "person"
        elif following == " w" and text.startswith(" who ", end):
            return "person"
    if start > 2 and text[start - 1] == " " and text[start - 2].isalpha():
        head, _, word = text[max(0, start - _BEFORE) : start - 1].rpartition(" ")
        if word == "in" or word == "near":
            is_at = head.rpartition(" ")[2] not in PLAYED_IN and not text.startswith("The ", start)
            return "place" if is_at else "thing"
        if word in _BY_PERSON:
            return "person"
        if word not in NOT_BEFORE and word.islower():
            return _noun_before(word)
    return "thing"


@remembered
def _noun_before(word: str) -> NameType:
    return NOUN_TYPES.get(word, "thing")


def _in_parentheses(text: str, end: int) -> NameType | None:
    if match := _LIFE.match(text, end, end + _AFTER):
        born, died = match["born"], match["died"]
        if born is None or _LEAST_LIFE <= int(died) - int(born) <= _LONGEST_LIFE:
            return "person"
        return None
    if match := _KIND_IN_PARENTHESES.match(text, end, end + _AFTER):
        return _noun_type(match["noun"].rpartition(" ")[2])
    return None


_WORK_BESIDE = re.compile(
    r"\b(?:album|anthem|article|ballad|book|called|cover|directed|entitled|episode|essay|film|hit|named|novel|op[eé]ra|"
    r"painting|play|poem|read|recorded|released|sang|series|show|single|song|sing|sketch|story|titled|track|tune|"
    r"video|wrote|written)s?\b"
)


def is_quoted_work(text: str, start: int, end: int) -> bool:
    """Whether a text in quotation marks is the title of a work, and no nickname or word that is spoken of."""
    if text.count(" ", start, end) > 1:
        return True
    beside = text[max(0, start - _BEFORE) : start], text[end : end + _BEFORE]
    return any(map(_WORK_BESIDE.search, beside))
