"""Links between passages of different sources: what one mentions, and another is about or mentions, too.

A knowledge base follows such links inside itself (`rag.links`); where the two passages that a question needs
are in two sources, nobody else can. Followed are those among the candidates that the sources gave.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

from loom_core.cjk import holds_cjk
from loom_core.knowledge.retrieval.rerankers.ranking import reading
from loom_core.knowledge.sources.federation.passage_names import names_in
from loom_core.knowledge.text.analysis import analyse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["CrossLink", "cross_links"]

# As `LinkSettings`, but for the base of links to what a passage is about, which is higher: there is no vector
# of the residual question here.
_SEEDS = 6
_BASE, _FOUND, _RESIDUAL = 0.5, 0.34, 0.9
_CAP = 0.9
_SHARED, _SHARED_BASE, _SHARED_CAP = 0.5, 0.3, 0.75
_RARE = 8  # a name that more candidates mention connects none of them
_MOST_NAMESAKES = 3  # documents of one title; with more of them it is no name: Introduction, 概述

_PARENTHESES = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")


@dataclass(frozen=True, slots=True)
class CrossLink:
    """A candidate that another source's passage leads to.

    Attributes:
        target: its place among the candidates.
        score: what it is worth by the link; never more than 0.9 of what leads there.
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
    """The best link to each candidate that gains by one.

    The best six candidates are looked through for the titles of documents of other sources, and for names
    that passages of other sources mention, too. What is found so is judged by what the question still asks
    once the mentioning passage is read, and by its own score.

    Args:
        query: the question.
        candidates: source and passage.
        scores: of the candidates, 1 for the best.
        led_to: more candidates, whose places come after those. They were found by a `lead`: they are worth
            something by a link only, and no link starts at them.
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
        # What nobody has judged by the question counts by its share of the question's words.
        whole = len(self._asked) or 1
        places = range(len(scores), len(self._candidates))
        self._own = [*scores, *(len(self._asked & self._words_of(place)) / whole for place in places)]
        self._titles = self._named()
        self._holding: dict[str, list[int]] = {}
        self._best: dict[int, CrossLink] = {}

    def best(self) -> dict[int, CrossLink]:
        """The best link to each candidate that gains by one, by its place."""
        for seed in nlargest(_SEEDS, range(len(self._scores)), key=self._scores.__getitem__):
            linked = self._to_titles(seed)
            self._to_mentions(seed, linked)
        return self._best

    def _to_titles(self, seed: int) -> set[int]:
        """Follow a candidate to documents that are about what it mentions; tells which they are."""
        source, item = self._candidates[seed]
        linked: set[int] = set()
        for target, name in self._titles.items():
            if self._candidates[target][0] == source or not _holds(item.content, name):
                continue
            linked.add(target)
            value = _BASE + _FOUND * self._own[target] + _RESIDUAL * self._told(seed, target)
            worth = min(_CAP, value) * self._scores[seed]
            self._offer(seed, target, worth, f"mentions “{name}”, which this passage is about")
        return linked

    def _to_mentions(self, seed: int, linked: set[int]) -> None:
        """Follow a candidate to those that mention the same, but for those it has led to already."""
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
                gain = weight * (_SHARED_BASE + _RESIDUAL * self._told(seed, target)) * strength**2
                worth = min(_SHARED_CAP * strength, self._own[target] + gain)
                self._offer(seed, target, worth, f"mentions “{name}”, and so does this passage")

    def _offer(self, seed: int, target: int, worth: float, why: str) -> None:
        known = self._best.get(target)
        has = self._scores[target] if target < len(self._scores) else 0.0
        if worth > max(has, known.score if known else 0.0):
            source, item = self._candidates[seed]
            title = item.metadata.get("title") or item.source
            self._best[target] = CrossLink(target, worth, f"“{title}” ({source}) {why}")

    def _told(self, seed: int, target: int) -> float:
        """How much a candidate says of what the question still asks once another one is read, 0 to 1."""
        left = self._asked - self._words_of(seed)
        return len(left & self._words_of(target)) / len(left) if left else 0.0

    def _words_of(self, place: int) -> frozenset[str]:
        if place not in self._words:
            self._words[place] = frozenset(analyse(reading(self._candidates[place][1])))
        return self._words[place]

    def _mentioning(self, name: str) -> list[int]:
        """The candidates whose text holds a name."""
        if name not in self._holding:
            contents = (item.content for _, item in self._candidates)
            self._holding[name] = [place for place, text in enumerate(contents) if _holds(text, name)]
        return self._holding[name]

    def _named(self) -> dict[int, str]:
        """The candidates whose document's title is a name that the question does not say, and that name."""
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
    """Whether a text holds a name as it is written, and not inside another word."""
    if name not in text:  # nearly always so, and many times as fast as a pattern
        return False
    return holds_cjk(name) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
