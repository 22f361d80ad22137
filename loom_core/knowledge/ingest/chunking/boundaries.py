"""Boundaries to split a text at: paragraphs, sentences, clauses, words, never inside a character.

A grapheme cluster, which a reader sees as one character, may be several code points: a letter with
combining marks, an emoji with modifiers, a flag. A split is never inside such a sequence, except in runs
longer than any real text has, so that hostile input cannot make an endless passage.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from loom_core.cjk import is_cjk

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_split", "is_joined", "sentence_ends"]

# UAX #15 §13 (stream-safe text) allows 30 non-starters in a row; real text has far fewer.
_LONGEST_SEQUENCE = 32
_ZERO_WIDTH_JOINER = "\u200d"

_CLOSERS = "[\"'”’」』）】》〉〕)\\]*_]*+"
# Full-width and Indic or Arabic marks end a sentence anywhere, ASCII ones before a space.
# Possessive, and never from within a run of marks: a line of dots must not cost its length squared.
_SENTENCE_END = re.compile(f"[。！？；…｡।؟۔]++{_CLOSERS}|(?<![.!?])[.!?]++{_CLOSERS}(?=\\s|$)")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n")
_CLAUSE_END = re.compile(r"[，、：]|[,;:](?=\s)|\s[–—-](?=\s)")
_SPACE = re.compile(r"\s")
_LAST_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*$")
_NEXT_WORD = re.compile(r"\s*[\"'“‘(\[]*([^\W_]*)")

# Abbreviations that never end a sentence, as something follows.
_OPEN_ABBREVIATIONS = frozenset(
    "approx ca capt cf col dr e.g eq eqs fig figs gen gov hon i.e lt mr mrs ms mt pp prof rep rev sen sgt "
    "st viz vol vs".split()
)
# Abbreviations that end a sentence only if the next word is a sentence starter, like initials and U.S.
_CLOSED_ABBREVIATIONS = frozenset(
    "al apr art aug ch co corp dec dept ed est etc feb inc jan jr jul jun ltd mar no nos nov oct ref refs "
    "sec sep sept sr tab".split()
)
_SENTENCE_STARTERS = frozenset(
    "a after all although an and as at because before both but by during each for from he her here his how "
    "however i if in instead it its many most my no not on one or our she since so some such that the their "
    "then there these they this those to under until we what when where while who why with yes you".split()
)


def is_joined(text: str, index: int) -> bool:
    """Whether the code points on both sides of an offset belong to one character.

    Combining marks, variation selectors, zero-width joiners, emoji modifiers and tags belong to what
    they follow, regional indicators go in pairs, and so do surrogates, where a string holds them.
    After white space nothing is joined: a mark there has no letter to belong to.
    """
    if not 0 < index < len(text) or text[index] < "\u0300":
        return False
    before, after = text[index - 1], text[index]
    if before.isspace():
        return False
    if before == _ZERO_WIDTH_JOINER or after == _ZERO_WIDTH_JOINER or unicodedata.category(after)[0] == "M":
        return True
    if "\ud800" <= before <= "\udbff":
        return "\udc00" <= after <= "\udfff"
    if _is_flag_letter(before) and _is_flag_letter(after):
        return _flag_letters_before(text, index) % 2 == 1
    return "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f"


def sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yield offsets just after each sentence that ends in `text[start:end]`, closing quotes included.

    A full stop in an abbreviation (`Dr.`, `e.g.`), an initial, a number (`3.14`) or a list marker
    (`1. First`) ends nothing, and neither does a mark before a small letter (`"Why?" he asked`).
    """
    # Read one character more, so that the context of the last mark is known.
    for match in _SENTENCE_END.finditer(text, start, min(end + 1, len(text))):
        if match.end() <= end and not is_joined(text, match.end()) and _is_end(text, match):
            yield match.end()


def find_split(text: str, floor: int, limit: int) -> int:
    """Find the best offset to split a text at: the best kind of boundary, as near to `limit` as possible.

    The last end of a paragraph after `floor` is preferred, then of a sentence, line, clause, word.

    Args:
        text: the text.
        floor: the cut comes after this offset.
        limit: the cut comes at this offset or before it, or else at the end of a sequence of code
            points that fills all the room; `floor < limit < len(text)`.
    """
    for cuts in (_paragraph_cuts, sentence_ends, _line_cuts, _clause_cuts, _word_cuts):
        best = max(cuts(text, floor, limit), default=floor)
        if best > floor:
            return best
    return _split_between_characters(text, floor, limit)


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_letters_before(text: str, index: int) -> int:
    first = index
    while first > 0 and index - first < _LONGEST_SEQUENCE and _is_flag_letter(text[first - 1]):
        first -= 1
    return index - first


def _is_end(text: str, match: re.Match[str]) -> bool:
    mark = text[match.start()]
    if mark not in ".!?…":
        return True
    following = _NEXT_WORD.match(text, match.end())
    next_word = following.group(1) if following else ""
    if next_word[:1].islower():
        return False
    if mark != "." or text[match.start() + 1 : match.start() + 2] == ".":
        return True
    word = _LAST_WORD.search(text, max(0, match.start() - 24), match.start())
    if word is None:
        return True
    if word.group().isdecimal():
        return word.start() > 0 and text[word.start() - 1] != "\n"
    return _may_end(word.group().casefold(), next_word.casefold())


def _may_end(word: str, next_word: str) -> bool:
    if word in _OPEN_ABBREVIATIONS:
        return False
    dotted = "." in word and all(len(part) <= 2 for part in word.split("."))
    if dotted or word in _CLOSED_ABBREVIATIONS or (len(word) == 1 and not is_cjk(word)):
        return not next_word or next_word in _SENTENCE_STARTERS
    return True


def _ends(text: str, floor: int, limit: int, pattern: re.Pattern[str]) -> Iterator[int]:
    for match in pattern.finditer(text, floor, limit + 1):
        if match.end() <= limit and not is_joined(text, match.end()):
            yield match.end()


def _paragraph_cuts(text: str, floor: int, limit: int) -> Iterator[int]:
    return _ends(text, floor, limit, _PARAGRAPH_END)


def _line_cuts(text: str, floor: int, limit: int) -> Iterator[int]:
    yield text.rfind("\n", floor, limit) + 1


def _clause_cuts(text: str, floor: int, limit: int) -> Iterator[int]:
    return _ends(text, floor, limit, _CLAUSE_END)


def _word_cuts(text: str, floor: int, limit: int) -> Iterator[int]:
    return _ends(text, floor, limit, _SPACE)


def _split_between_characters(text: str, floor: int, limit: int) -> int:
    lowest = max(floor, limit - _LONGEST_SEQUENCE)
    last = 0
    for cut in range(limit, lowest, -1):
        if not is_joined(text, cut):
            last = last or cut
            if not _inside_word(text, cut):
                return cut
    highest = min(len(text), limit + _LONGEST_SEQUENCE)
    return last or next((cut for cut in range(limit + 1, highest) if not is_joined(text, cut)), highest)


def _inside_word(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    return before.isalnum() and after.isalnum() and not is_cjk(before) and not is_cjk(after)
