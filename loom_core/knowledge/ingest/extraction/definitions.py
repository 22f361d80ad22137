"""Definitions at the beginning of a passage: "X is a Y", "X是Y"."""

from __future__ import annotations

import re

from loom_core.knowledge.model import Relation
from loom_core.knowledge.text.analysis import is_stop_word

__all__ = ["chinese_definition", "english_definition"]

# Initials, an abbreviation before a name, or a word. The first letter comes before the alternatives, so
# that the engine skips from capital to capital instead of trying each alternative at every character.
_CAPITALISED = (
    r"(?:[A-ZÀ-ÖØ-ÞĀ-Ž](?:(?<=[A-Z])\.(?:[A-Z]\.)+"
    r"|(?:(?<=M)rs?|(?<=M)s|(?<=[DJS])r|(?<=S)t|(?<=P)rof|(?<=[A-Z]))\.(?=[ \u00a0]?[A-Z])|[\w’'&-]*))"
)
_INNER = r"(?:of|the|de|la|le|du|des|del|della|di|da|dos|von|van|der|den|zu|al|el|bin|ibn|y|e|on|&)"
_ENGLISH = re.compile(
    rf"\s*(?:The |A |An )?(?P<subject>(?:{_CAPITALISED}|[a-z][\w-]+)(?:[ ](?:{_INNER}|[\w’'-]+)){{0,6}}?)"
    r"\s*(?:\([^()]{0,120}\))?,?\s+(?:is|are|was|were|refers to|means)\s+"
    r"(?:an?|the)\s+(?P<object>[^.;\n]{3,160})"
)
_DEICTIC = frozenset("this that these those your our which each".split())
_OBJECT_END = re.compile(
    r",|\(|\s(?:that|which|who|whose|where|in|of|by|from|for|to|on|at|with|and|directed|written|"
    r"produced|based|located|used|known|ensuring|allowing|providing|containing|born|founded|released|published|created|designed|made|is|was)\b"
)
_CHINESE = re.compile(
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


def english_definition(text: str) -> Relation | None:
    """Return the statement "X is a Y" at the beginning of a passage."""
    match = _ENGLISH.match(text)
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


def chinese_definition(text: str) -> Relation | None:
    """Return the statement "X是Y" at the beginning of a passage."""
    match = _CHINESE.match(text)
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
