"""Rules for Chinese: jieba's tags for names, 《》 for works, 是 for definitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.extraction.chinese_types import (
    ChineseType,
    foreign_kind,
    is_place_in_context,
    organisation_type,
    person_kind,
    place_type,
    thing_type,
)
from loom_core.knowledge.model import Mention, Relation
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.segmentation import tag_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

__all__ = ["chinese_definition", "chinese_mentions"]

_WORK = re.compile(r"[《〈『「]([^《》〈〉『』「」\n]{1,40})[》〉』」]")
_TYPES: dict[str, Callable[[str], ChineseType | Literal["foreign"] | None]] = {
    "nr": person_kind,
    "nrt": foreign_kind,
    "nrfg": person_kind,
    "ns": place_type,
    "nt": organisation_type,
    "nz": thing_type,
}
"""Function from a word to its entity type, by tag; it returns None if the word is not a name."""

_DEFINITION = re.compile(
    r"\s*[《“「]?(?P<subject>[^\s，。；：、！？《》“”「」（）()是为指]{2,20})[》”」]?"
    r"\s*(?:[（(][^（）()]{0,120}[)）])?[，,]?(?:又称[^，。]{1,20}[，,])?"
    r"(?:是指|是|指的是)(?P<object>[^。；\n]{2,60})"
)
_CLAUSE_END = re.compile(r"[，：；？（(]")
_LONGEST_OBJECT = 12  # characters
_GENERIC = frozenset(
    "工具 程序 命令 软件 软件包 系统 文件 函数 选项 平台 元素 部分 东西 内容 功能 情况 方式".split()
)
_UNCLEAR = re.compile(
    r"[的不最这那哪何我你您它其若每\d“”]|如果|什么|怎|为了|因为|可以|可能|应该|一个$|方法$|问题$|原因$|目的$"
)
"""Signs that an end of a definition is no name: "第一个问题是…", "如果…是…"."""


def chinese_mentions(text: str) -> Iterator[Mention]:
    """Yield titles of works, and the words that jieba tags as names of persons, places, organisations."""
    if text.isascii():
        return
    for match in _WORK.finditer(text):
        yield Mention(match[1], match.start(1), match.end(1), "work", "quoted", 0.9)
    foreign: list[tuple[str, int]] = []
    for word, tag, start in tag_words(text):
        type_of = _TYPES.get(tag)
        if type_of is not None and (type_ := type_of(word)) is not None:
            if type_ == "foreign":
                foreign.append((word, start))
            else:
                yield Mention(word, start, start + len(word), type_, "tagged", 0.6)
    if foreign:
        # A name that occurs once in the context of a place is a place in the whole passage.
        places = {word for word, start in foreign if is_place_in_context(text, start, start + len(word))}
        for word, start in foreign:
            type_ = "place" if word in places else "person"
            yield Mention(word, start, start + len(word), type_, "tagged", 0.6)


def chinese_definition(text: str) -> Relation | None:
    """Return the statement "X是Y" at the beginning of a passage."""
    match = _DEFINITION.match(text)
    if match is None or is_stop_word(match["subject"]):
        return None
    what = _CLAUSE_END.split(match["object"])[0]
    name = what.rpartition("的")[2].strip()
    if (
        not 2 <= len(name) <= _LONGEST_OBJECT
        or name in _GENERIC
        or _UNCLEAR.search(match["subject"] + name) is not None
    ):
        return None
    return Relation(
        match["subject"], "is a", name, match.start("subject"), match.end("object"), "definition", 0.6
    )
