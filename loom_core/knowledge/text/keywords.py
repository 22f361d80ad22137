"""Lookup terms of a passage: its identifiers, and its significant Chinese words."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from operator import itemgetter

from loom_core.cjk import has_cjk
from loom_core.knowledge.text.analysis import forms_of, is_stop_word
from loom_core.knowledge.text.identifiers import identifiers_between_cjk
from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.segmentation import tag_words

__all__ = ["extract_chunk_keywords"]

_WORD = itemgetter(0)
_CHINESE_NUMBER = re.compile(
    "[第前后上下]?[一二三四五六七八九十百千万亿零〇两几数]+[年月日时分秒个名位次种条点岁号]*"
)

# Longer Chinese words are rarer and more specific.
_CHINESE_WEIGHTS = {2: 1.0, 3: 1.5}
_LONG_CHINESE_WEIGHT = 2.0

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
    """Return the identifiers and significant Chinese words of a passage, the most significant first.

    Identifiers are recognized by their form: `HTTPServer`, `iPhone`, `snake_case`, `SHA256`, `UTF-8`,
    `dotted.path`, `settings.toml`, `v2.3.1`, `--flag-name`. Chinese words have two characters or more
    and are not common ones. Significance is the frequency of a form times the weight of its kind; ties are
    in the order of the text. Forms that differ only in case are one, written as the first of them.

    Args:
        text: a passage.
        limit: maximum number.
    """
    found: list[str] = []
    by_score = _by_score(text)
    for score in sorted(by_score, reverse=True):
        if len(found) >= limit:
            break
        found += sorted(by_score[score], key=text.find)
    return found[: max(0, limit)]


@lru_cache(maxsize=16)  # called twice for a passage: for its keywords and for its mentions
def _by_score(text: str) -> dict[float, list[str]]:
    is_cjk_text = has_cjk(text)
    forms: dict[str, str] = {}
    scores: dict[str, float] = {}
    for form, weight in identifiers_between_cjk(text) if is_cjk_text else forms_of(text).identifiers:
        written = forms.setdefault(form.casefold(), form)
        scores[written] = scores.get(written, 0.0) + weight
    if is_cjk_text:
        for word, times in Counter(map(_WORD, tag_words(text))).items():
            scores[word] = times * _chinese_weight(word)
    found: dict[float, list[str]] = {}
    for form, score in scores.items():
        if score:
            found.setdefault(score, []).append(form)
    return found


@memoize
def _chinese_weight(word: str) -> float:
    if not _is_significant(word):
        return 0.0
    return _CHINESE_WEIGHTS.get(len(word), _LONG_CHINESE_WEIGHT)


def _is_significant(word: str) -> bool:
    if word in _GENERIC or is_stop_word(word):
        return False
    return _CHINESE_NUMBER.fullmatch(word) is None
