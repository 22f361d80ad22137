"""`features`: rerank by the question's words in the passages; no model, a few milliseconds."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from loom_core.cjk import is_cjk
from loom_core.errors import ConfigError
from loom_core.knowledge.retrieval.rerankers.ranking import heading, order_by_relevance
from loom_core.knowledge.text.analysis import analyse, is_stop_word
from loom_core.knowledge.text.keywords import extract_chunk_keywords
from loom_core.knowledge.text.scripts import normalise
from loom_core.knowledge.text.surface_forms import surface_tokens
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["FeatureReranker"]

_COVERAGE, _TITLE, _PROXIMITY, _PHRASE, _EXACT = 0.3, 0.4, 0.1, 0.1, 0.1
"""Weights of the features. Titles matter most where documents are many and short. Measured on the
data sets named at `FeatureReranker`, where any split near this one does as well."""

_MAX_WORDS = 64  # words of a question that are used; a longer one is a pasted document
_NEAR, _NEAR_CJK = 150, 50  # characters: about two lines, and about as much content in CJK

_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_QUOTED = re.compile(
    '“([^“”]{2,80})”|"([^"]{2,80})"|「([^「」]{2,80})」|『([^『』]{2,80})』|《([^《》]{2,80})》'
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")
_WORD = re.compile(r"[^\W_]+(?:['’._-][^\W_]+)*")


@register("reranker", "features")
class FeatureReranker:
    """Reorders passages by lexical features of the question's words, combined with the former order.

    Features are the question's content words (weighted by their rarity among the passages), also
    in title and headings; how many of them are close together; the longest phrase of the question;
    and identifiers, numbers and quoted phrases, which a good passage holds as they are.

    It helps most after a ranking by words alone, and did not hurt on any measured data set: see `weight`.
    """

    def __init__(self, *, weight: float = 0.2) -> None:
        """Set the weight of the features.

        Args:
            weight: from 0 to 1: how much the features count relative to the relevance of the passages.
                Points of nDCG@10 that 0.2 gains on scifact, cmrc2018, 2wiki and (not looked at when it
                was chosen) musique: 0.0, 0.0, 1.4 and 3.1 after BM25; 0.3, 0.1, 0.4 and 1.1 after the
                default hybrid. BM25 gains more from 0.5 (0.7, 0.3, 4.6 and 6.8), at which the hybrid
                loses a point on the questions of several steps in 2wiki.

        Raises:
            ConfigError: the weight is outside 0 to 1.
        """
        if not 0 <= weight <= 1:
            raise ConfigError(f"weight of the reranker features is {weight}.", advice="Use 0 to 1.")
        self._weight = weight

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        """See `Reranker.rerank`. `relevance` is the weighted sum of the former one and the features."""
        own = await to_thread.run_sync(_scores, query, items)
        relevance = {
            place: (1 - self._weight) * min(max(items[place].relevance, 0.0), 1.0) + self._weight * score
            for place, score in own.items()
        }
        return order_by_relevance(items, relevance, limit=limit, own=own)


class _Term(NamedTuple):
    """A content word of the question as `analyse` returns it, with the prefix of its words."""

    key: str
    stem: str
    cjk: bool


@dataclass(frozen=True, slots=True)
class _Question:
    """Features of the question.

    Attributes:
        text: the question in comparable form.
        terms: its content words, each once.
        near: within how many characters words are near each other.
        words: all its words in order: where they begin and end in `text`, and whether they are content.
        exact: identifiers, numbers and quoted phrases.
    """

    text: str
    terms: tuple[_Term, ...]
    near: int
    words: tuple[tuple[int, int, bool], ...]
    exact: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Passage:
    """Features of a passage.

    Attributes:
        text: the passage in comparable form.
        above: terms of its title and headings.
        places: the positions of each of the question's terms; absent terms are left out.
    """

    text: str
    above: frozenset[str]
    places: dict[str, list[int]]


def _scores(query: str, items: Sequence[KnowledgeItem]) -> dict[int, float]:
    """Return the score of each passage by its place, 0 to 1."""
    question = _read(query)
    passages = [_look(question, item) for item in items]
    count = len(passages)
    holding = Counter(term for passage in passages for term in passage.places)
    # The inverse document frequency of BM25, among these passages.
    rarity = {
        term: math.log(1 + (count - holding[term] + 0.5) / (holding[term] + 0.5))
        for term, _, _ in question.terms
    }
    length = sum(len(passage.text) for passage in passages) / max(count, 1) or 1.0
    return {place: _score(question, passage, rarity, length) for place, passage in enumerate(passages)}


def _score(question: _Question, passage: _Passage, rarity: Mapping[str, float], length: float) -> float:
    total = sum(rarity.values())
    if not total and not question.exact:
        return 0.0
    score = weights = 0.0
    if total:
        score += _COVERAGE * _coverage(passage, rarity, length) / total
        score += _PROXIMITY * _proximity(passage, rarity, question.near) / total
        score += _PHRASE * _phrase(question, passage)
        score += _TITLE * _title(passage, rarity, total)
        weights += _COVERAGE + _PROXIMITY + _PHRASE + _TITLE
    if question.exact:
        score += _EXACT * sum(part in passage.text for part in question.exact) / len(question.exact)
        weights += _EXACT
    return min(score / weights, 1.0)


def _coverage(passage: _Passage, rarity: Mapping[str, float], length: float) -> float:
    """Return the weight of the terms it holds, saturating with their frequency, as in BM25."""
    half = 0.5 + 0.5 * len(passage.text) / length
    return sum(rarity[term] * len(places) / (len(places) + half) for term, places in passage.places.items())


def _proximity(passage: _Passage, rarity: Mapping[str, float], near: int) -> float:
    """Return the weight of the terms in the best window."""
    events = sorted((place, term) for term, places in passage.places.items() for place in places)
    inside: Counter[str] = Counter()
    best = weight = 0.0
    first = 0
    for place, term in events:
        weight += 0.0 if inside[term] else rarity[term]
        inside[term] += 1
        while place - events[first][0] > near:
            left = events[first][1]
            inside[left] -= 1
            weight -= 0.0 if inside[left] else rarity[left]
            first += 1
        best = max(best, weight)
    return best


def _phrase(question: _Question, passage: _Passage) -> float:
    """Return the share of the question's content words in its longest phrase that the passage holds."""
    words = question.words
    longest = first = 0
    for last, (_, end, _) in enumerate(words):
        while first <= last and question.text[words[first][0] : end] not in passage.text:
            first += 1
        if last > first:
            longest = max(longest, sum(content for _, _, content in words[first : last + 1]))
    return longest / max(sum(content for _, _, content in words), 1)


def _title(passage: _Passage, rarity: Mapping[str, float], total: float) -> float:
    """Return the average overlap of the question with title and headings, in both directions."""
    shared = passage.above & rarity.keys()
    if not shared:
        return 0.0
    return (sum(rarity[term] for term in sorted(shared)) / total + len(shared) / len(passage.above)) / 2


def _read(query: str) -> _Question:
    text = _fold(query)
    words = [(token.start, token.end, not is_stop_word(token.key)) for token in surface_tokens(text)]
    words = words[:_MAX_WORDS]
    cut = words[-1][1] if words else 0
    exact = [next(filter(None, match.groups())) for match in _QUOTED.finditer(query)]
    exact += [word for word in extract_chunk_keywords(query) if not is_cjk(word[0])]
    exact += [match.group() for match in _NUMBER.finditer(query)]
    terms = [_term(key) for key in dict.fromkeys(analyse(text[:cut]))]
    return _Question(
        text=text,
        terms=tuple(terms),
        near=_NEAR_CJK if any(term.cjk for term in terms) else _NEAR,
        words=tuple(words),
        exact=tuple(dict.fromkeys(_fold(part) for part in exact))[:_MAX_WORDS],
    )


def _look(question: _Question, item: KnowledgeItem) -> _Passage:
    text = _fold(item.content)
    found = ((term.key, list(_places(term, text))) for term in question.terms)
    return _Passage(
        text=text,
        above=_terms(_fold(heading(item))),
        places={term: places for term, places in found if places},
    )


def _term(key: str) -> _Term:
    # A stem is a prefix of its words, except for a final i that was a y.
    stem = key[:-1] if key[-1] == "i" and len(key) > 2 else key
    return _Term(key, stem, is_cjk(key[0]))


def _places(term: _Term, text: str) -> Iterator[int]:
    """Return the positions of the words that `analyse` maps to a term.

    Searching for the few terms of a question is many times faster than analysing whole passages.
    """
    start = text.find(term.stem)
    while start >= 0:
        if term.cjk or _is_word(term.key, text, start):
            yield start
        start = text.find(term.stem, start + len(term.stem))


def _is_word(term: str, text: str, start: int) -> bool:
    if start and text[start - 1].isalnum() and not is_cjk(text[start - 1]):
        return False  # inside another word
    word = _WORD.match(text, start)
    return word is not None and term in _terms(word.group())


@lru_cache(maxsize=65536)
def _terms(text: str) -> frozenset[str]:
    return frozenset(analyse(text))


def _fold(text: str) -> str:
    """Fold case and full-width letters and digits; `normalise` is slower."""
    return normalise(text) if _WIDE.search(text) else text.casefold()
