"""Links between passages of different sources: what one mentions, and another is about.

A knowledge base follows such links inside itself (`rag.links`); where the two passages that a question needs
are in two sources, nobody else can. Followed are those among the candidates that the sources gave.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.cjk import holds_cjk
from loom_core.knowledge.rerankers.ranking import reading
from loom_core.knowledge.text import analyse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["CrossLink", "cross_links"]

# As `LinkSettings`, but for the base, which is higher: there is no vector of the residual question here.
_SEEDS = 6
_BASE, _FOUND, _RESIDUAL = 0.5, 0.34, 0.9
_CAP = 0.9
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
    query: str, candidates: Sequence[tuple[str, KnowledgeItem]], scores: Sequence[float]
) -> list[CrossLink]:
    """The best link to each candidate that gains by one.

    The best six candidates are looked through for the titles of documents of other sources; what is found so
    is judged by what the question still asks once the mentioning passage is read, and by its own score.

    Args:
        query: the question.
        candidates: source and passage.
        scores: of the candidates, 1 for the best.
    """
    named = list(_named(query, candidates))
    asked = frozenset(analyse(query))
    best: dict[int, CrossLink] = {}
    for seed in sorted(range(len(candidates)), key=lambda place: -scores[place])[:_SEEDS]:
        source, item = candidates[seed]
        left: frozenset[str] | None = None
        for target, name, pattern in named:
            if candidates[target][0] == source or not pattern.search(item.content):
                continue
            left = asked.difference(analyse(reading(item))) if left is None else left
            told = left.intersection(analyse(reading(candidates[target][1]))) if left else left
            share = len(told) / len(left) if left else 0.0
            worth = min(_CAP, _BASE + _FOUND * scores[target] + _RESIDUAL * share) * scores[seed]
            if worth > max(scores[target], best[target].score if target in best else 0.0):
                title = item.metadata.get("title") or item.source
                why = f"“{title}” ({source}) mentions “{name}”, which this passage is about"
                best[target] = CrossLink(target, worth, why)
    return list(best.values())


def _named(
    query: str, candidates: Sequence[tuple[str, KnowledgeItem]]
) -> Iterator[tuple[int, str, re.Pattern[str]]]:
    """The candidates whose document's title is a name that the question does not say, and how to find it."""
    documents: defaultdict[str, set[str]] = defaultdict(set)
    names: dict[int, str] = {}
    for place, (_, item) in enumerate(candidates):
        title: object = item.metadata.get("title")
        name = _PARENTHESES.sub("", title).strip() if isinstance(title, str) else ""
        # Names begin with a capital letter, or are written in a script that has none.
        if len(name) > 1 and not name[0].islower() and name.casefold() not in query.casefold():
            names[place] = name
            documents[name].add(item.source)
    for place, name in names.items():
        if len(documents[name]) <= _MOST_NAMESAKES:
            written = re.escape(name)
            yield place, name, re.compile(written if holds_cjk(name) else rf"(?<!\w){written}(?!\w)")
