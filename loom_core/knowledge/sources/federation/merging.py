"""Merging of several sources' hits: scores made comparable, duplicates merged.

A source's scores are comparable within its answer only. So all candidates are scored again on a common
scale: by the question's words (with their rarity among the candidates of all sources) and, if all sources
have cosines of the same vector space, by these. A source's own scores are then fitted to that scale by least
squares, as in L. Si and J. Callan, "A semisupervised learning method to merge search engine results", TOIS
2003. So a source's own order, which uses more evidence (links, a better model), is kept, while the passages
of a source without an answer do not rank too high. Finally links between the sources are followed, see
`cross_links`; if they lead to passages that no source has found, follow-up queries search for them, see
`plan_follow_up`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import anyio
from anyio import to_thread

from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.fusion import min_max
from loom_core.knowledge.text.languages import language_group
from loom_core.knowledge.text.query_identifiers import MatchGrade, comparable_text, extract_identifiers
from loom_core.knowledge.text.shingles import TextSketch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.knowledge.retrieval.strategies import ScoreScale

__all__ = ["AskAgain", "candidates_for", "merge"]

_MIN_CANDIDATES, _CANDIDATES_PER_HIT = 20, 2
_MAX_CANDIDATES = 100
_MIN_OF_SHARD = 10

# As measured (benchmarks/RESULTS.md).
_OWN = 0.9  # weight of a source's own order against the common scale
_RANK_HALF = 4.0  # rank at which a passage of a source without scores counts half as much as its first
_FEW = 4  # with fewer passages, the fitted line goes through the origin


AskAgain = Callable[[str, str, int], Awaitable[Sequence[KnowledgeItem]]]
"""Sends a source, by its name, another query with a limit of passages.

It returns the hits, best first; none if the source fails or times out.
"""


def candidates_for(limit: int, *, shards: int = 0) -> int:
    """Return how many passages to request from each of several sources for `limit` merged ones.

    Args:
        limit: maximum number of merged passages.
        shards: how many sources there are, if they are shards: each has about the same share of the best.
    """
    most = min(_MAX_CANDIDATES, max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * limit))
    return min(most, _MIN_OF_SHARD + _CANDIDATES_PER_HIT * limit // shards) if shards else most


@dataclass(frozen=True, slots=True)
class _Pool:
    """Candidates of all sources: source and passage of each, and its relevance, 1 for the best."""

    candidates: list[tuple[str, KnowledgeItem]]
    relevance: list[float]


async def merge(
    query: str,
    found: Mapping[str, Sequence[KnowledgeItem]],
    *,
    limit: int,
    spaces: Mapping[str, str] | None = None,
    scales: Mapping[str, ScoreScale | None] | None = None,
    ask: AskAgain | None = None,
    confidence: float = 1.0,
) -> list[KnowledgeItem]:
    """Merge the best passages of several sources, best first, each once; see `KnowledgeItem.of_source`.

    `relevance` becomes comparable among all of them; the source's own is in `metadata["own_relevance"]`. If
    only one source has hits, its order and relevances stay unchanged.

    Args:
        query: the question.
        found: the hits of each source, best first, by its name. Relevances may be on any scale, or all the
            same if a source has none; where they contradict the order, the order counts.
        limit: maximum number.
        spaces: the vector space of the source's cosines (`scores["vector"]`), by its name.
        scales: the scales of the sources' relevances, by name; if all that found something have one, they are
            shards, and their relevances are brought to one scale and taken as they are.
        ask: sends the follow-up queries of `plan_follow_up`; None sends none.
        confidence: relevance of the best passage, where several sources found something.
    """
    having = {name: list(items) for name, items in found.items() if items}
    if not having:
        return []
    pool = await _pool_hits(query, having, spaces or {}, scales or {})
    more = pool if ask is None or len(found) == 1 else await _run_follow_ups(query, pool, list(found), ask)
    if len(having) == 1 and more is pool:
        return [item.of_source(name) for name, item in pool.candidates[:limit]]
    return await to_thread.run_sync(_best, more, limit, confidence)


async def _pool_hits(
    query: str,
    having: Mapping[str, Sequence[KnowledgeItem]],
    spaces: Mapping[str, str],
    scales: Mapping[str, ScoreScale | None],
) -> _Pool:
    """Pool the hits of the sources on one scale, and follow the links among them."""
    candidates = [(name, item) for name, items in having.items() for item in items]
    if len(having) == 1:
        return _Pool(candidates, [score for items in having.values() for score in _own(items)])
    known = {name: scale for name in having if (scale := scales.get(name)) is not None}
    if len(known) == len(having):
        scores = _rescale(candidates, known)
    else:
        scores = await _score_on_common_scale(query, having, spaces)
    scores = await to_thread.run_sync(_boost_identifiers, query, candidates, scores)
    top = max(scores)
    relevance = [max(score / top, 0.0) if top > 0 else 0.0 for score in scores]
    return await to_thread.run_sync(_apply_links, query, _Pool(candidates, relevance))


def _rescale(
    candidates: Sequence[tuple[str, KnowledgeItem]], scales: Mapping[str, ScoreScale]
) -> list[float]:
    """Return the scores that passages of shards would have in the whole.

    There the highest BM25 and the nearest passage of all shards count as 1, and cosines are compared with
    the average passage of all. The walk over the graph starts from the best passages of each shard: it counts
    as much less as these are worse than the best of all.
    """
    per_bm25 = min((scale.per_bm25 for scale in scales.values() if scale.per_bm25), default=0.0)
    zeros: dict[str, float] = {}
    for language in {language for scale in scales.values() for language in scale.zeros}:
        known = [scale.zeros[language] for scale in scales.values() if language in scale.zeros]
        zeros[language] = sum(known) / len(known)
    rise = max(scale.rise for scale in scales.values())
    scores: list[float] = []
    walked: list[float] = []
    best = dict.fromkeys(scales, 0.0)
    for name, item in candidates:
        scale, bm25, cosine = scales[name], _score(item, "bm25") or 0.0, _score(item, "vector")
        by_graph = scale.per_graph * (_score(item, "graph") or 0.0) ** 0.5
        rest = item.relevance * scale.top - bm25 * scale.per_bm25 - by_graph
        near = 0.0
        language = language_group(str(item.metadata.get("language", "")))
        if cosine is not None and rise and scale.rise and language in scale.zeros:
            rest -= scale.per_rise * max(0.0, cosine - scale.zeros[language]) / scale.rise
            near = scale.per_rise * max(0.0, cosine - zeros[language]) / rise
        score = bm25 * per_bm25 + near + rest * (scale.rise / rise if rise else 1.0)
        best[name] = max(best[name], score)
        scores.append(score)
        walked.append(by_graph)
    top = max(best.values()) or 1.0
    return [
        score + by_graph * best[name] / top
        for (name, _), score, by_graph in zip(candidates, scores, walked, strict=True)
    ]


async def _score_on_common_scale(
    query: str, having: Mapping[str, Sequence[KnowledgeItem]], spaces: Mapping[str, str]
) -> list[float]:
    """Score passages on a common scale, to which the scores of their sources are fitted."""
    words = await _score_by_words(query, [item for items in having.values() for item in items])
    common = _common(having, words, spaces)
    if not any(common):  # only the sources' own scores are known
        common = [score for items in having.values() for score in _own(items)]
    scores: list[float] = []
    for items in having.values():
        judged = common[len(scores) : len(scores) + len(items)]
        own = _calibrate(_own(items), judged)
        scores += [_OWN * mine + (1 - _OWN) * theirs for mine, theirs in zip(own, judged, strict=True)]
    return scores


def _boost_identifiers(
    query: str, candidates: Sequence[tuple[str, KnowledgeItem]], scores: Sequence[float]
) -> list[float]:
    """Boost passages that hold an identifier of the question above all others, if at most half hold it."""
    top = max(scores)
    lifted = list(scores)
    identifiers = [identifier for identifier in extract_identifiers(query) if identifier.is_distinctive]
    texts = [comparable_text(item.content) for _, item in candidates] if identifiers else []
    for identifier in identifiers:
        grades = [identifier.grade_in(text) / MatchGrade.WHOLE for text in texts]
        if 2 * sum(map(bool, grades)) <= len(grades):
            lifted = [score + top * grade for score, grade in zip(lifted, grades, strict=True)]
    return lifted


async def _run_follow_ups(query: str, pool: _Pool, sources: Sequence[str], ask: AskAgain) -> _Pool:
    """Run follow-up queries for the names in the best candidates, concurrently, and add their hits.

    A hit is scored by the link to it, and left out without a link. Without any link, the same pool is
    returned.
    """
    from loom_core.knowledge.sources.federation.cross_source_links import FOLLOW_UP_LIMIT, plan_follow_up

    following = await to_thread.run_sync(plan_follow_up, query, pool.candidates, pool.relevance)
    if following is None:
        return pool
    answers: dict[str, Sequence[KnowledgeItem]] = {}

    async def ask_one(source: str, question: str) -> None:
        answers[source] = await ask(source, question, FOLLOW_UP_LIMIT)

    async with anyio.create_task_group() as tasks:
        for source in sources:
            if question := following.query_for(source):
                tasks.start_soon(ask_one, source, question)
    known = {(source, item.id) for source, item in pool.candidates}
    new = [(name, item) for name in sources for item in answers.get(name, ()) if (name, item.id) not in known]
    return await to_thread.run_sync(_apply_links, query, pool, new) if new else pool


def _apply_links(query: str, pool: _Pool, led_to: Sequence[tuple[str, KnowledgeItem]] = ()) -> _Pool:
    """Apply the links among candidates to their relevance; add hits of follow-up queries with a link.

    Without any link, the same pool is returned.
    """
    from loom_core.knowledge.sources.federation.cross_source_links import cross_links

    links = {link.target: link for link in cross_links(query, pool.candidates, pool.relevance, led_to=led_to)}
    if not links:
        return pool
    candidates: list[tuple[str, KnowledgeItem]] = []
    relevance: list[float] = []
    for place, (source, item) in enumerate([*pool.candidates, *led_to]):
        if (link := links.get(place)) is not None:
            candidates.append((source, _with_explanation(item, link.why)))
            relevance.append(link.score)
        elif place < len(pool.candidates):
            candidates.append((source, item))
            relevance.append(pool.relevance[place])
    return _Pool(candidates, relevance)


def _best(pool: _Pool, limit: int, confidence: float) -> list[KnowledgeItem]:
    """Return the first candidates by relevance, scaled by `confidence`."""
    # The sort is stable: ties keep the order of the sources.
    order = sorted(range(len(pool.candidates)), key=lambda place: -pool.relevance[place])
    return _without_overlaps(
        [pool.candidates[place] for place in order],
        [confidence * pool.relevance[place] for place in order],
        limit,
    )


def _with_explanation(item: KnowledgeItem, why: str) -> KnowledgeItem:
    given: object = item.metadata.get("why")
    reasons = cast("list[str]", given) if isinstance(given, list) else []
    return replace(item, metadata={**item.metadata, "why": [why, *reasons]})


async def _score_by_words(query: str, pool: Sequence[KnowledgeItem]) -> list[float]:
    """Score each passage by the question's words, 0 to 1, in the order of the passages."""
    from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker

    numbered = [replace(item, id=str(place), relevance=0.0) for place, item in enumerate(pool)]
    judged = await FeatureReranker(weight=1.0).rerank(query, numbered, limit=len(numbered))
    by_place = {int(item.id): item.relevance for item in judged}
    return [by_place[place] for place in range(len(pool))]


def _common(
    found: Mapping[str, Sequence[KnowledgeItem]], words: Sequence[float], spaces: Mapping[str, str]
) -> list[float]:
    """Return every passage's score on the common scale, 0 to 1: by words, and by cosine if comparable."""
    pool = [item for items in found.values() for item in items]
    cosines = [_score(item, "vector") for item in pool]
    named = {spaces.get(name, "") for name in found}
    if len(named) > 1 or "" in named or all(cosine is None for cosine in cosines):
        return list(words)
    known = [cosine for cosine in cosines if cosine is not None]
    worst = min(known)  # passages found by links alone may have no cosine
    near = min_max({place: worst if cosine is None else cosine for place, cosine in enumerate(cosines)})
    return [(word + near[place]) / 2 for place, word in enumerate(words)]


def _score(item: KnowledgeItem, channel: str) -> float | None:
    scores: object = item.metadata.get("scores")
    score = cast("Mapping[str, object]", scores).get(channel) if isinstance(scores, dict) else None
    return float(score) if isinstance(score, int | float) else None


def _own(items: Sequence[KnowledgeItem]) -> list[float]:
    """Return a source's own scores of its passages, best first, 1 for the first."""
    given = [item.relevance for item in items]
    usable = all(map(math.isfinite, given)) and given[0] > 0 and (len(given) == 1 or given[-1] < given[0])
    if usable and all(after <= before for before, after in pairwise(given)):
        return [max(score, 0.0) / given[0] for score in given]
    return [1 / (1 + rank / _RANK_HALF) for rank in range(len(items))]


def _calibrate(own: Sequence[float], judged: Sequence[float]) -> list[float]:
    """Fit a source's own scores to the common scale by a straight, non-decreasing line."""
    squares = sum(score * score for score in own)
    factor = sum(score * common for score, common in zip(own, judged, strict=True)) / squares
    if len(own) < _FEW:
        return [factor * score for score in own]
    mean_own, mean_judged = sum(own) / len(own), sum(judged) / len(judged)
    spread = sum((score - mean_own) ** 2 for score in own)
    if spread == 0:
        return [mean_judged] * len(own)
    slope = sum((s - mean_own) * (c - mean_judged) for s, c in zip(own, judged, strict=True)) / spread
    return [max(mean_judged + max(slope, 0.0) * (score - mean_own), 0.0) for score in own]


def _without_overlaps(
    ranked: Sequence[tuple[str, KnowledgeItem]], relevance: Sequence[float], limit: int
) -> list[KnowledgeItem]:
    """Merge duplicates of several sources, and return the first passages."""
    kept: list[tuple[str, KnowledgeItem, float, TextSketch]] = []
    copies: list[list[tuple[str, str]]] = []
    for (source, item), score in zip(ranked, relevance, strict=True):
        sketch = TextSketch(item.content)
        same = next(
            (
                place
                for place, (other, _, _, known) in enumerate(kept)
                if other != source and sketch.is_near_duplicate_of(known)
            ),
            None,
        )
        if same is not None:
            if all(name != source for name, _ in copies[same]):
                copies[same].append((source, item.id))
        elif len(kept) < limit:
            kept.append((source, item, score, sketch))
            copies.append([])
    return [
        _with_relevance(item, score).of_source(source, also_in=others)
        for (source, item, score, _), others in zip(kept, copies, strict=True)
    ]


def _with_relevance(item: KnowledgeItem, relevance: float) -> KnowledgeItem:
    metadata = {**item.metadata, "own_relevance": item.relevance}
    return replace(item, relevance=round(relevance, 4), metadata=metadata)
