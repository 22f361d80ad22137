"""Whether what jieba tags as a person's or a place's name is one, and what a Chinese noun says of a name.

Its dictionary tags as persons much that is none (`卫星`, `天后庙`), and places that are written like foreign
persons (`里昂`). A Chinese person's name begins with a surname; a foreign one is made of the characters that
foreign names are written with, and stands where no place would.
"""

from __future__ import annotations

import re
from typing import Literal

from loom_core.knowledge.ingest.extraction.chinese_lexicon import (
    BEFORE_PERSONS,
    DOUBLE_SURNAMES,
    FOREIGN,
    NO_PERSONS,
    NO_PLACES,
    NOUN_TYPES,
    PLACE_ENDS,
    SURNAMES,
    THING_ENDS,
    ChineseType,
)
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.memoization import remembered

__all__ = [
    "ChineseType",
    "foreign_kind",
    "is_place_beside",
    "organisation_type",
    "person_kind",
    "place_type",
    "thing_type",
    "type_of_chinese_noun",
    "type_of_chinese_subject",
]


_WITH_WORD_BEFORE = 4  # characters that no Chinese name has which begins with such a word
_LONGEST_END = max(map(len, NOUN_TYPES))

PersonKind = Literal["person", "foreign", "place", "thing"]


@remembered
def person_kind(word: str) -> PersonKind | None:
    """What a word is that jieba tags as a person's name; `foreign` is a person or a place."""
    if is_stop_word(word):
        return None
    if word in NO_PERSONS or len(word) > 8:
        return "thing"
    if word[-1] in PLACE_ENDS:
        return "place" if len(word) > 2 else "thing"
    if FOREIGN.issuperset(word):
        return "foreign"
    if len(word) >= _WITH_WORD_BEFORE and word[0] in BEFORE_PERSONS:
        return person_kind(word[1:])
    if len(word) > 2 and word[-1] in THING_ENDS:
        return "thing"
    is_person = (len(word) < 4 and word[0] in SURNAMES) or (word[:2] in DOUBLE_SURNAMES and len(word) < 5)
    return "person" if is_person or word in _KNOWN else "thing"


# Persons whose names have no surname.
_KNOWN = frozenset("老子 墨子 释迦牟尼 努尔哈赤".split())


@remembered
def foreign_kind(word: str) -> PersonKind | None:
    """What a word is that jieba tags as a foreign person's name."""
    kind = person_kind(word)
    is_common = word in NO_PERSONS or (len(word) > 2 and word[-1] in THING_ENDS)
    return "foreign" if kind == "thing" and not is_common else kind


@remembered
def place_type(word: str) -> ChineseType | None:
    """What a word is that jieba tags as a place's name."""
    if is_stop_word(word):
        return None
    return "thing" if word in NO_PLACES else "place"


@remembered
def organisation_type(word: str) -> ChineseType | None:
    """What a word is that jieba tags as an organisation's name."""
    return None if is_stop_word(word) else "organisation"


@remembered
def thing_type(word: str) -> ChineseType | None:
    """What a word is that jieba tags as another name."""
    return None if is_stop_word(word) else "thing"


_PLACE_BEFORE = ("在", "位于", "於", "于", "到", "往", "抵达", "自", "从", "赴", "驻", "离开", "返回", "经")
_OF_PERSON = frozenset("之的看身眼带领率手家心等时说任与和及为以先给把被")
"""What follows on a person in `在爱因斯坦之后`, `从爱因斯坦的…`."""
_PLACE_BEHIND = ("市", "省", "州", "县", "岛", "城", "境内", "地区", "大学", "以北", "以南", "以东", "以西")


def is_place_beside(text: str, start: int, end: int) -> bool:
    """Whether a foreign name stands where the text speaks of a place: `在里昂`, `位于里昂`, `里昂地区`."""
    if text.startswith(_PLACE_BEHIND, end):
        return True
    return text.endswith(_PLACE_BEFORE, max(0, start - 2), start) and text[end : end + 1] not in _OF_PERSON


def type_of_chinese_noun(noun: str) -> ChineseType:
    """What is a `作家`, a `长篇小说`, a `港口城市`: told by how the noun ends, the longest end first."""
    for size in range(min(_LONGEST_END, len(noun)), 0, -1):
        if type_ := NOUN_TYPES.get(noun[-size:]):
            return type_
    return "thing"


_ASIDE = r"[\s』》”」]*(?:[（(](?P<aside>[^（）()]{0,120})[)）][，,]?|[，,])\s*"
_OF_PERSON_BEHIND = re.compile(
    rf"{_ASIDE}(?:(?:本名|表字|小名|幼名|艺名|笔名|字|谥号?|出生|生于|[男女][，,])|[^，。；]{{2,12}}人[，。；])"
)
_LIFE = re.compile(
    r"(?<!\d)(?P<born>1?\d{3})年?[^－—–~～-]{0,16}[－—–~～-]{1,2}[^\d]{0,8}(?P<died>1?\d{3}|20\d\d)?"
)
_ABOUT = re.compile(rf"(?:{_ASIDE})?(?P<what>[^，。；、（）]{{0,24}})")
_NEAR = 8  # characters of a text before its subject
_LONGEST_LIFE, _LEAST_LIFE = 110, 15


def type_of_chinese_subject(title: str, text: str) -> ChineseType:
    """What the subject of a passage is, by its name (`关帝庙`, `艾蒂安·拉莫特`) or what stands behind it.

    Args:
        title: its name.
        text: the passage, which tells years of life or other names: `王处直（862年－922年），字允明`.
    """
    if len(title) > 2 and (type_ := type_of_chinese_noun(title)) != "thing":
        return type_
    if "·" in title[1:-1]:
        return "person"
    start = text.find(title, 0, len(title) + _NEAR)
    if start < 0:
        return "thing"
    end = start + len(title)
    if _OF_PERSON_BEHIND.match(text, end):
        return "person"
    match = _ABOUT.match(text, end)
    if match is None:
        return "thing"
    if match.start("what") > end and (type_ := type_of_chinese_noun(match["what"])) != "thing":
        return type_
    life = _LIFE.search(match["aside"] or "")
    if life and life["died"] and _LEAST_LIFE <= int(life["died"]) - int(life["born"]) <= _LONGEST_LIFE:
        return "person"
    return "thing"
