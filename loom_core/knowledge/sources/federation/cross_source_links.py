"""Links between passages of different sources by shared names, and follow-up queries (multi-hop).

A knowledge base follows such links inside itself (`graph_expansion`); where the two passages that a question
needs are in two sources, the federation has to. `cross_links` follows links among the candidates of all
sources. If a name leads to a passage that no source has found, `plan_follow_up` makes a follow-up query:
one source has the director of a film, another one that person's birthplace, which the question does not find,
as it shares hardly a word with that passage. So one follow-up query per source searches for the names in the
best passages, with the part of the question that is still open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import has_cjk
from loom_core.knowledge.ingest.extraction.tagger import shipped_tagger
from loom_core.knowledge.retrieval.confidence import words_missing
from loom_core.knowledge.retrieval.rerankers.ranking import text_with_headings
from loom_core.knowledge.text.analysis import analyse, words
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["FOLLOW_UP_LIMIT", "cross_links", "names_in", "plan_follow_up", "title_key"]

# As `LinkSettings`, but for the base of links to what a passage is about, which is higher: there is no vector
# of the residual question here.
_SEEDS = 6
_BASE, _FOUND, _RESIDUAL = 0.5, 0.34, 0.9
_CAP = 0.9
_SHARED, _SHARED_BASE, _SHARED_CAP = 0.5, 0.3, 0.75
_RARE = 8  # a name in more candidates than this is not a link
_MOST_NAMESAKES = 3  # documents with the same title; with more, it is not a name: Introduction, 概述

_PARENTHESES = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")


@dataclass(frozen=True, slots=True)
class CrossLink:
    """A candidate that another source's passage leads to.

    Attributes:
        target: its place among the candidates.
        score: its score by the link; at most 0.9 of the score of the passage that leads there.
        why: the link, as a sentence.
    """

    target: int
    score: float
    why: str


def cross_links(
    query: str,
    candidates: Sequence[tuple[str, KnowledgeItem]],
    scores: Sequence[float],
    *,
    led_to: Sequence[tuple[str, KnowledgeItem]] = (),
) -> list[CrossLink]:
    """Return the best link to each candidate that gains by one.

    The best six candidates are searched for the titles of documents of other sources, and for names
    that passages of other sources mention, too. The targets are scored by what the question still asks
    once the mentioning passage is read, and by its own score.

    Args:
        query: the question.
        candidates: source and passage.
        scores: of the candidates, 1 for the best.
        led_to: hits of follow-up queries, numbered after the candidates: only a link gives them a score, and
            no link starts at them.
    """
    return list(_Linking(query, candidates, scores, led_to).best().values())


class _Linking:
    """The links among the candidates of one question; arguments as for `cross_links`."""

    def __init__(
        self,
        query: str,
        candidates: Sequence[tuple[str, KnowledgeItem]],
        scores: Sequence[float],
        led_to: Sequence[tuple[str, KnowledgeItem]],
    ) -> None:
        self._asked = frozenset(analyse(query))
        self._folded = query.casefold()
        self._candidates = [*candidates, *led_to]
        self._words: dict[int, frozenset[str]] = {}
        self._scores = list(scores)
        # Hits of follow-up queries have no score yet: use their share of the question's words.
        whole = len(self._asked) or 1
        places = range(len(scores), len(self._candidates))
        self._own = [*scores, *(len(self._asked & self._words_of(place)) / whole for place in places)]
        self._titles = self._find_named_titles()
        self._holding: dict[str, list[int]] = {}
        self._best: dict[int, CrossLink] = {}

    def best(self) -> dict[int, CrossLink]:
        """Return the best link to each candidate that gains by one, by its place."""
        for seed in nlargest(_SEEDS, range(len(self._scores)), key=self._scores.__getitem__):
            linked = self._to_titles(seed)
            self._to_mentions(seed, linked)
        return self._best

    def _to_titles(self, seed: int) -> set[int]:
        """Follow a candidate's mentions to documents with these titles; return the targets."""
        source, item = self._candidates[seed]
        linked: set[int] = set()
        for target, name in self._titles.items():
            if self._candidates[target][0] == source or not _holds(item.content, name):
                continue
            linked.add(target)
            value = _BASE + _FOUND * self._own[target] + _RESIDUAL * self._residual_coverage(seed, target)
            worth = min(_CAP, value) * self._scores[seed]
            self._offer(seed, target, worth, f"mentions “{name}”, which this passage is about")
        return linked

    def _to_mentions(self, seed: int, linked: set[int]) -> None:
        """Follow a candidate to others with the same mentions, except to those already linked by title."""
        source, item = self._candidates[seed]
        strength = self._scores[seed]
        for name, _, confidence in names_in(item):
            if name.casefold() in self._folded:
                continue
            others = [target for target in self._mentioning(name) if target != seed]
            if len(others) > _RARE:
                continue
            for target in others:
                if self._candidates[target][0] == source or target in linked:
                    continue
                weight = _SHARED * confidence / len(others) ** 0.5
                gain = (
                    weight * (_SHARED_BASE + _RESIDUAL * self._residual_coverage(seed, target)) * strength**2
                )
                worth = min(_SHARED_CAP * strength, self._own[target] + gain)
                self._offer(seed, target, worth, f"mentions “{name}”, and so does this passage")

    def _offer(self, seed: int, target: int, worth: float, why: str) -> None:
        known = self._best.get(target)
        has = self._scores[target] if target < len(self._scores) else 0.0
        if worth > max(has, known.score if known else 0.0):
            source, item = self._candidates[seed]
            title = item.metadata.get("title") or item.source
            self._best[target] = CrossLink(target, worth, f"“{title}” ({source}) {why}")

    def _residual_coverage(self, seed: int, target: int) -> float:
        """Return how much a candidate covers of what the question asks beyond another one, 0 to 1."""
        left = self._asked - self._words_of(seed)
        return len(left & self._words_of(target)) / len(left) if left else 0.0

    def _words_of(self, place: int) -> frozenset[str]:
        if place not in self._words:
            self._words[place] = frozenset(analyse(text_with_headings(self._candidates[place][1])))
        return self._words[place]

    def _mentioning(self, name: str) -> list[int]:
        """Return the candidates whose text holds a name."""
        if name not in self._holding:
            contents = (item.content for _, item in self._candidates)
            self._holding[name] = [place for place, text in enumerate(contents) if _holds(text, name)]
        return self._holding[name]

    def _find_named_titles(self) -> dict[int, str]:
        """Return the candidates whose document's title is a name that the question lacks, and that name."""
        documents: defaultdict[str, set[str]] = defaultdict(set)
        names: dict[int, str] = {}
        for place, (_, item) in enumerate(self._candidates):
            title: object = item.metadata.get("title")
            name = _PARENTHESES.sub("", title).strip() if isinstance(title, str) else ""
            # Names begin with a capital letter, or are written in a script that has none.
            if len(name) > 1 and not name[0].islower() and name.casefold() not in self._folded:
                names[place] = name
                documents[name].add(item.source)
        return {place: name for place, name in names.items() if len(documents[name]) <= _MOST_NAMESAKES}


def _holds(text: str, name: str) -> bool:
    """Whether a text holds a name with this spelling, and not inside another word."""
    if name not in text:  # usually true, and many times faster than the pattern
        return False
    return has_cjk(name) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


_LEAST_SURE = 0.4  # minimum confidence of a name
_NO_LINK = {"date", "clause", "version"}  # types of names that passages share by chance
_MOST = 24  # maximum names of a passage; lists of names would link to everything
_READ = 4000  # characters of a passage that are searched for names


class PassageName(NamedTuple):
    """A name in a passage.

    Attributes:
        name: as written.
        key: see `name_key`.
        confidence: how sure it is that it is a name, 0.4 to 0.8.
    """

    name: str
    key: str
    confidence: float


def names_in(item: KnowledgeItem) -> list[PassageName]:
    """Return the names that a passage holds and its title does not, each once, in the order of the text."""
    own = title_key(item)
    return [name for name in _names(item.content[:_READ]) if not own or not _overlap(name.key, own)]


def title_key(item: KnowledgeItem) -> str:
    """Return the `name_key` of the title above a passage; empty if it has none."""
    title: object = item.metadata.get("title")
    return name_key(title) if isinstance(title, str) else ""


def _overlap(one: str, other: str) -> bool:
    """Whether one key is a part of the other, by whole words where there are words."""
    if not has_cjk(one):
        one, other = f" {one} ", f" {other} "
    return one in other or other in one


@lru_cache(maxsize=256)  # the passages of one question are read for several purposes
def _names(text: str) -> tuple[PassageName, ...]:
    found: dict[str, PassageName] = {}
    for mention in shipped_tagger().mentions(text):
        key = name_key(mention.name)
        if mention.confidence >= _LEAST_SURE and mention.type not in _NO_LINK and len(key) > 1:
            found.setdefault(key, PassageName(mention.name, key, mention.confidence))
    return tuple(islice(found.values(), _MOST))


FOLLOW_UP_LIMIT = 20
"""Number of passages requested from a source by a follow-up query."""

_NAMES = 6
_LEAST = 0.3  # minimum score of a passage whose names are used
_CERTAIN = 0.75  # share of the question's words in the best passage that makes a follow-up unnecessary


@dataclass(frozen=True, slots=True)
class FollowUpQuery:
    """Follow-up query to the sources, by a name found in the first hits.

    Attributes:
        names: names, each with the source whose passage mentions it.
        left: the words of the question that the best passage does not hold, in its order.
    """

    names: tuple[tuple[str, str], ...]
    left: tuple[str, ...]

    def query_for(self, source: str) -> str:
        """Return the query for a source, as plain words for any kind of search; empty for none.

        Names that its own passages mention are left out: it follows its own links.
        """
        names = [name for name, place in self.names if place != source]
        return " ".join([*names, *self.left]) if names else ""


def plan_follow_up(
    query: str, candidates: Sequence[tuple[str, KnowledgeItem]], scores: Sequence[float]
) -> FollowUpQuery | None:
    """Return the follow-up query, or None if none is needed.

    One is needed if the best passage lacks at least a quarter of the question's words, and the best six
    mention names that no candidate is about. It uses the surest names of the best passages.

    Args:
        query: the question.
        candidates: source and passage.
        scores: of the candidates, 1 for the best.
    """
    best = nlargest(_SEEDS, range(len(candidates)), key=scores.__getitem__)
    if not best:
        return None
    content = [word for word in words(query) if analyse(word)]
    left = words_missing(content, [text_with_headings(candidates[best[0]][1])])
    if not content or len(left) <= (1 - _CERTAIN) * len(content):
        return None
    known = {title_key(item) for _, item in candidates}
    folded = query.casefold()
    worth: dict[str, tuple[float, str, PassageName]] = {}
    for place in best:
        if scores[place] < _LEAST:
            break
        source, item = candidates[place]
        for name in names_in(item):
            if name.key not in known and name.name.casefold() not in folded:
                worth.setdefault(name.key, (scores[place] * name.confidence, source, name))
    chosen = nlargest(_NAMES, worth.values(), key=itemgetter(0))  # of equals, those that come first
    names = tuple((name.name, source) for _, source, name in chosen)
    return FollowUpQuery(names, tuple(left)) if names else None
