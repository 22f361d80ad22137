"""Alias statements in a text: `World Health Organization (WHO)`, `北京大学，简称北大`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.cjk import has_cjk
from loom_core.knowledge.model import Alias
from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.scripts import to_simplified

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom_core.knowledge.model import Mention

__all__ = ["aliases_in"]

_STATED = 0.9
_TRANSLATION = 0.5  # unsure: 小明（Python） is not a translation, so a user has to decide
_MOST_WORDS = 12  # of the expansion of an acronym
_MOST_CHARACTERS = 12  # of a Chinese name that no other rule found

_ACRONYM = r"[A-Z][A-Za-z0-9&]{0,8}[A-Z0-9]s?"
_OPENING = re.compile("[(（]")
_SHORT_INSIDE = re.compile(rf"[(（]\s*(?:or\s+)?(?P<short>{_ACRONYM})\s*[)）;,；，]")
# After anything that may end an acronym, even a space.
_LONG_INSIDE = re.compile(r"(?:(?<=[A-Z0-9s])|(?<=[A-Z0-9s]\s))[(（](?P<long>[^()（）\n]{4,120})[)）]")
_SHORT_BEFORE = re.compile(rf"\b(?P<short>{_ACRONYM})\s?$")
_CORPORATE = frozenset("co company corp corporation group inc incorporated limited llc ltd plc".split())
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")

_CAPITALISED = r"[A-ZÀ-ÖØ-ÞĀ-Ž][\w’'&.-]*"
_NAME = rf"{_CAPITALISED}(?:[ ](?:(?:of|the|de|la|van|von|and|for)[ ]){{0,2}}(?:{_CAPITALISED}|\d+)){{0,7}}"
_CUES = ("known", "called", "referred")
_BEFORE_CUES = ("also", "otherwise", "formerly", "better", "commonly")
_WHOLE_CUES = ("abbreviated", "k.a", "aka")
_CUE = re.compile(
    r"\b(?:(?:also|otherwise|formerly|better|commonly)\s+(?:known|called|referred\s+to)(?:\s+as)?"
    rf"|abbreviated(?:\s+(?:as|to))?|a\.?k\.?a\.?)\s+[\"“']?(?P<other>{_NAME})"
)
_NAME_BEFORE = re.compile(rf"\b(?P<name>{_NAME}),?\s*[(,]?\s*$")

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LABEL = (
    "(?:(?:以下)?简称|全称|又称|亦称|也称|别称|又名|别名|俗称|旧称|原名|本名|曾用名"
    "|缩写|英文名|英语|英文)(?:为|是|作|叫)?"
)
_LABELLED = rf"{_LABEL}[:：]?\s*[“「《\"]?(?P<other>[{_HAN}A-Za-z0-9·&. '-]{{2,60}}?)[”」》\"]?\s*"
_LABELLED_PART = re.compile(rf"\s*{_LABELLED}")
_FOREIGN_PART = re.compile(r"\s*(?P<other>[A-Z][A-Za-z.&'-]*(?: [A-Za-z.&'-]+){0,7})\s*")
_APPOSITION = re.compile(rf"[，,]\s*{_LABELLED}(?=[，,、；;。])")
_PARENTHESES = re.compile(r"[（(][^（）()\n]{2,160}[)）]")
_PART = re.compile(r"[^，,；;（）()]+")
_RUN = re.compile(rf"[{_HAN}A-Za-z0-9·]{{2,24}}$")
_BOUNDARIES = frozenset("《“「 \n\t，。；：、！？,;:!?")
_PARTICLES = frozenset("的是在和与为了由于从向对将把被及或")


def aliases_in(text: str, mentions: Sequence[Mention], *, title: str = "") -> list[Alias]:
    """Return the statements of a passage about different names for the same thing, in the order of the text.

    Only an explicit statement is sure: an acronym whose letters are the initials of the words next to it,
    or words such as "also known as" and `简称`. A foreign name in parentheses after a Chinese one has a low
    confidence.

    Args:
        text: the passage.
        mentions: the names found in it, which help to find the start of a Chinese name.
        title: title of its document, which helps likewise.
    """
    found = [*_acronyms(text), *_find_stated(text)]
    if has_cjk(text):
        found += _chinese(text, mentions, title)
    surest = {(alias.name, alias.other): alias for alias in sorted(found, key=lambda a: a.confidence)}
    return sorted(surest.values(), key=lambda alias: alias.start)


def _acronyms(text: str) -> Iterator[Alias]:
    if "(" not in text and "（" not in text:
        return
    openings = [opening.start() for opening in _OPENING.finditer(text)]
    for match in filter(None, (_SHORT_INSIDE.match(text, place) for place in openings)):
        start = _find_expansion(text, match.start(), match["short"])
        if start is not None:
            long = text[start : match.start()].rstrip()
            yield Alias(long, match["short"], "acronym", start, match.end("short"), _STATED)
    for match in filter(None, (_LONG_INSIDE.match(text, place) for place in openings)):
        before = _SHORT_BEFORE.search(text, max(0, match.start() - 12), match.start())
        words = _WORD.findall(match["long"]) if before is not None else []
        if before is not None and len(words) > 1 and _spell(words, before["short"]):
            long = match["long"].strip()
            yield Alias(long, before["short"], "acronym", before.start(), match.end(), _STATED)


def _find_expansion(text: str, end: int, short: str) -> int | None:
    """Find the start of the expansion of an acronym before `end`; None if there is none."""
    line = text.rfind("\n", 0, end) + 1
    words = list(_WORD.finditer(text, max(line, end - 120), end))[-_MOST_WORDS:]
    for first in range(len(words) - 2, -1, -1):
        if words[first].group()[0].casefold() == short[0].casefold():
            told = [word.group() for word in words[first:]]
            if not is_stop_word(told[0].casefold()) and _spell(told, short):
                return words[first].start()
    return None


def _spell(words: Sequence[str], short: str) -> bool:
    """Whether an acronym's letters are the initials of words, also without "of" and "Company"."""
    letters = (short[:-1] if short.endswith("s") else short).replace("&", "").casefold()
    folded = [word.casefold() for word in words]
    told = [word for word in folded if not is_stop_word(word)]
    bare = [word for word in told if word not in _CORPORATE]
    return any("".join(word[0] for word in some) == letters for some in (folded, told, bare))


def _find_stated(text: str) -> Iterator[Alias]:
    if not _may_state(text):  # avoids the slow pattern for most texts
        return
    for cue in _CUE.finditer(text):
        before = _NAME_BEFORE.search(text, max(0, cue.start() - 80), cue.start())
        if before is None:
            continue
        name, other = before["name"].rstrip(" .,'’"), cue["other"].rstrip(" .,'’")
        if name.casefold() != other.casefold() and not is_stop_word(name.casefold()):
            yield Alias(name, other, "also_called", before.start(), cue.end(), _STATED)


def _may_state(text: str) -> bool:
    if any(word in text for word in _CUES) and any(word in text for word in _BEFORE_CUES):
        return True
    return any(word in text for word in _WHOLE_CUES)


def _chinese(text: str, mentions: Sequence[Mention], title: str) -> Iterator[Alias]:
    folded = to_simplified(text)  # of the same length, so that offsets are those of the text
    for match in _APPOSITION.finditer(folded):
        yield from _same(text, match.start(), [(match, True)], mentions, title)
    for match in _PARENTHESES.finditer(folded):
        parts = _PART.finditer(folded, match.start(), match.end())
        said = [(labelled, True) for part in parts if (labelled := _whole(_LABELLED_PART, folded, part))]
        parts = _PART.finditer(folded, match.start(), match.end())
        said += [(foreign, False) for part in parts if (foreign := _whole(_FOREIGN_PART, folded, part))]
        if said:
            yield from _same(text, match.start(), said, mentions, title)


def _whole(pattern: re.Pattern[str], text: str, part: re.Match[str]) -> re.Match[str] | None:
    return pattern.fullmatch(text, part.start(), part.end())


def _same(
    text: str,
    end: int,
    others: Iterable[tuple[re.Match[str], bool]],
    mentions: Sequence[Mention],
    title: str,
) -> Iterator[Alias]:
    """Return the alias statements about the name that ends at a place."""
    place = _name_before(text, end, mentions, title)
    if place is None:
        return
    start, stop = place
    name = text[start:stop]
    for match, is_said in others:
        other = text[match.start("other") : match.end("other")].strip()
        if other != name:
            kind, confidence = ("also_called", _STATED) if is_said else ("translation", _TRANSLATION)
            yield Alias(name, other, kind, start, match.end(), confidence)


def _name_before(text: str, end: int, mentions: Sequence[Mention], title: str) -> tuple[int, int] | None:
    """Return the span of the Chinese name that ends at a place, without a quotation mark.

    Nothing marks the start of a Chinese name, so it must be text in quotation marks, the title, a short run
    after a punctuation mark, or a mention after a particle.
    """
    if text[end - 1 : end] in {"》", "”", "」"}:
        start = max(text.rfind(mark, max(0, end - 40), end) for mark in "《“「") + 1
        return (start, end - 1) if 0 < start < end - 1 else None
    if title and has_cjk(title) and text.endswith(title, 0, end):
        return end - len(title), end
    run = _RUN.search(text, max(0, end - 24), end)
    if run is None or not has_cjk(run.group()):
        return None
    is_short = len(run.group()) <= _MOST_CHARACTERS and _PARTICLES.isdisjoint(run.group())
    if is_short and _begins(text, run.start(), _BOUNDARIES):
        return run.start(), end
    starts = sorted(mention.start for mention in mentions if mention.end == end)
    return next(((s, end) for s in starts if _begins(text, s, _BOUNDARIES | _PARTICLES)), None)


def _begins(text: str, start: int, after: frozenset[str]) -> bool:
    return start == 0 or text[start - 1] in after
