"""What a passage would be looked up by: its identifiers, and its significant Chinese words."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from loom_core.knowledge.remembered import remembered
from loom_core.knowledge.tagging import tagged_words
from loom_core.knowledge.text import holds_cjk, is_stop_word, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["extract_chunk_keywords"]

# Letters include accented Latin ones, so that `ÉcoleNormale` is not read as `coleNormale`.
_LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_PART = f"[{_LETTER}0-9_]++"
# A plain word is no candidate; it is matched by itself, outside the group.
_CANDIDATE = re.compile(f"[{_LETTER}][a-zß-öø-ÿ]*+(?![.-]?[{_LETTER}0-9_])|({_PART}(?:[.-]{_PART})*+)")
_OPTION = re.compile(f"(?<![{_LETTER}0-9_-])--[A-Za-z][A-Za-z0-9_]*+(?:-[A-Za-z0-9_]++)*+")
# Stretches that both patterns see as a whole; the first character stands alone, so that the engine leaps.
_STRETCH = re.compile(f"[{_LETTER}0-9_.-][{_LETTER}0-9_.-]*")

_CAPITALS = re.compile(r"[A-Z][A-Z0-9]+s?(?:-[A-Z0-9]+)*")
_CAMEL = re.compile(f"[{_LETTER}][{_LETTER}0-9]*")
_HUMP = re.compile(r"[a-zß-öø-ɏ0-9][A-Z]|[A-Z]{2}[a-z]")
_SNAKE = re.compile(r"__\w+__|_*[^\W_]\w*_\w*[^\W_]|_+[^\W_]+")
_VERSION = re.compile(r"[vV]\d+(?:\.\d+)+(?:[.-]?\w+)*")
_HYPHENED_FILE = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[a-z][a-z0-9]{0,4}")
_CHINESE_NUMBER = re.compile(
    "[第前后上下]?[一二三四五六七八九十百千万亿零〇两几数]+[年月日时分秒个名位次种条点岁号]*"
)

# What a form says by itself: an option or a path means one thing, capitals may be mere emphasis.
_PATH_WEIGHT = 3.0
_NAME_WEIGHT = 2.5
_CAPITALS_WEIGHT = 2.0
# Longer Chinese words are rarer and say more.
_CHINESE_WEIGHTS = {2: 1.0, 3: 1.5}
_LONG_CHINESE_WEIGHT = 2.0

_AROUND = ",;:!?.()[]\"“”'‘’-–—/"  # what no identifier begins or ends with
_LONGEST = 80  # anything longer is data, such as base64
_ROMAN = frozenset("II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX".split())
_ABBREVIATIONS = frozenset(
    "a.d a.k.a a.m b.a b.c b.sc d.c e.g i.e m.a m.d m.sc p.m p.s ph.d q.e.d w.r.t".split()
)
_BEFORE_NAMES = frozenset(
    "dr eq eqs fig figs mr mrs ms no nos p pp prof ref refs sec st tab table vol vs".split()
)
# Beyond stop words: Chinese words that any text may hold, whatever it is about.
_GENERIC = frozenset(
    """
    使用 需要 包括 具有 认为 成为 作为 根据 按照 为了 随着 以来 以便 从而 因此 因而 于是 然而 不过 虽然 尽管
    即使 只有 只要 无论 不仅 甚至 尤其 特别 非常 十分 比较 更加 最后 首先 其次 开始 继续 出现 发生 表示 称为
    得到 得以 属于 位于 来自 达到 受到 用于 有关 相关 不同 相同 主要 重要 一般 一样 一直 一起 一定 许多 很多
    大量 部分 全部 所有 任何 当时 后来 如此 例如 比如 等等 方面 情况 问题 今天 今年 现有 左右 能够 应该 必须
    可能性 看到 知道 觉得 东西 事情 有些 有时 不再 为主 随后 此后 至今 期间 之中
    仍然 曾经 正在 将会 并未 并不 之一 其实 当中 本身 及其
    這個 那個 這些 那些 這樣 這種 我們 你們 他們 她們 它們 沒有 什麼 怎麼 為了 為何 為什麼 因為 所以 但是 如果
    還是 還有 就是 對於 關於 由於 通過 進行 之後 然後 後來 時候 當時 雖然 儘管 不過 並且 並不 以及 或者 許多
    一個 一些 一種 可以 可能 已經 開始 認為 成為 作為 稱為 屬於 於是 因此 根據 隨著 需要 使用 包括 問題 方面
    """.split()
)


def extract_chunk_keywords(text: str, *, limit: int = 20) -> list[str]:
    """The identifiers and significant Chinese words of a passage, the most significant first.

    Identifiers are told by their form: `HTTPServer`, `iPhone`, `snake_case`, `SHA256`, `UTF-8`,
    `dotted.path`, `settings.toml`, `v2.3.1`, `--flag-name`. Chinese words have two characters or more
    and are not common ones. Significance is how often a form occurs times the weight of its kind;
    among equals, what comes first. Forms that differ only in case are one, written as at first.

    Args:
        text: a passage.
        limit: how many at the most.
    """
    return list(_ranked(text)[: max(0, limit)])


@lru_cache(maxsize=16)  # a passage is asked about twice: for its keywords, and for its mentions
def _ranked(text: str) -> tuple[str, ...]:
    forms: dict[str, str] = {}
    scores: dict[str, float] = {}
    for form, score in _scored(text):
        key = form.casefold()
        forms.setdefault(key, form)
        scores[key] = scores.get(key, 0.0) + score
    ranked = sorted(forms, key=lambda key: (-scores[key], text.find(forms[key])))
    return tuple(forms[key] for key in ranked)


def _scored(text: str) -> Iterator[tuple[str, float]]:
    stretches = _STRETCH.findall(text) if holds_cjk(text) else pieces(text)
    yield from chain.from_iterable(filter(None, map(_forms_in, stretches)))
    for word, _, _ in tagged_words(text):
        weight = _chinese_weight(word)
        if weight:
            yield word, weight


@remembered
def _forms_in(stretch: str) -> tuple[tuple[str, float], ...]:
    """The identifiers and options in a stretch of text, each with its weight."""
    if _is_prose(stretch):
        return ()
    found: list[tuple[str, float]] = []
    for candidate in _CANDIDATE.findall(stretch):
        plain = candidate[1:].islower() and candidate.isalpha()
        if not plain and 1 < len(candidate) <= _LONGEST:
            found += _identifiers(candidate)
    if "--" in stretch:
        found += [(o, _PATH_WEIGHT) for o in _OPTION.findall(stretch) if len(o) <= _LONGEST]
    return tuple(found)


def _is_prose(stretch: str) -> bool:
    """Whether a stretch is no identifier, as most are: a number, or small letters but for the first.

    Marks may stand around it, and single hyphens or apostrophes between letters.
    """
    bare = stretch.strip(_AROUND)
    if "-" in bare or "'" in bare:
        bare = bare.replace("-", "").replace("'", "")
    is_plain = (bare.isalpha() and bare[1:].islower()) or bare.isdecimal()
    return is_plain and "--" not in stretch


@remembered
def _chinese_weight(word: str) -> float:
    if not _is_significant(word):
        return 0.0
    return _CHINESE_WEIGHTS.get(len(word), _LONG_CHINESE_WEIGHT)


def _is_significant(word: str) -> bool:
    if word in _GENERIC or is_stop_word(word):
        return False
    return _CHINESE_NUMBER.fullmatch(word) is None


def _identifiers(candidate: str) -> tuple[tuple[str, float], ...]:
    """The identifiers in parts joined by dots and hyphens, each with its weight: one, several or none."""
    if _VERSION.fullmatch(candidate):
        return ((candidate, _NAME_WEIGHT),)
    if "." in candidate:
        if _is_path(candidate):
            return ((candidate, _PATH_WEIGHT),)
        return _each(candidate.split("."))
    if _CAPITALS.fullmatch(candidate):
        plain = candidate in _ROMAN or is_stop_word(candidate.casefold())
        return () if plain else ((candidate, _CAPITALS_WEIGHT),)
    if "-" in candidate:
        return _each(candidate.split("-"))
    named = _SNAKE.fullmatch(candidate) or (_CAMEL.fullmatch(candidate) and _HUMP.search(candidate))
    return ((candidate, _NAME_WEIGHT),) if named else ()


def _each(candidates: list[str]) -> tuple[tuple[str, float], ...]:
    return tuple(found for candidate in candidates for found in _identifiers(candidate))


def _is_path(candidate: str) -> bool:
    """Whether dots join the parts of a path or a file name, rather than end something."""
    first, *rest = parts = candidate.split(".")
    if candidate.casefold() in _ABBREVIATIONS or first.casefold() in _BEFORE_NAMES:
        return False
    if all(len(part) == 1 and part.isupper() for part in parts):
        return False  # initials
    if "-" in candidate and not _HYPHENED_FILE.fullmatch(candidate):
        return False
    if first.isdecimal():
        return len(rest) == 1 and len(rest[0]) > 1 and rest[0].isalpha() and rest[0].islower()  # 404.html
    if first[0].isdecimal() or (first.isalpha() and rest[0].isdecimal()):
        return False  # a number with a unit, or `Section.3`
    # A sentence, the space after its full stop left out.
    return not any(part.istitle() and is_stop_word(part.casefold()) for part in rest)
