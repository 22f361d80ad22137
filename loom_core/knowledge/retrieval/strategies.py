"""Search strategies: how channels combine into an answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING

from loom_core.knowledge.retrieval.channels import FirstStage, first_stage
from loom_core.knowledge.retrieval.graph_expansion import (
    GraphExpansion,
    Neighbourhood,
    PassageLink,
    expand,
    graph_channel,
    link_entities,
    walk,
)
from loom_core.knowledge.retrieval.sub_questions import ask_sub_questions

if TYPE_CHECKING:
    from loom_core.knowledge.retrieval.channels import ChannelHits, Channels, PreparedQuestion
    from loom_core.knowledge.retrieval.confidence import LanguageSimilarity
    from loom_core.knowledge.retrieval.config import RAGConfig, Strategy
    from loom_core.knowledge.retrieval.graph_expansion import LinkReader

__all__ = ["ChunkHit", "Retrieval", "ScoreScale", "retrieve"]

_NAMED_EACH = 4  # passages about one entity that the question names
_SURE = 0.8  # minimum confidence that a passage is about the entity
_OF_BOILERPLATE = 0.5  # factor for a passage that is boilerplate
_GRAPH_FIRST_POOL = 200  # passages of the graph that are ranked by their vectors


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A chunk that was found, with its scores.

    Attributes:
        key: the chunk's key in the store.
        score: the score of the ranking, 0 to 1.
        scores: score of each channel: `bm25` (raw), `translation` (the same of the question's translation),
            `vector` (cosine), `links`, `graph`.
        links: the path that led to it, from the seed on; empty if it was found directly.
        named: the entity that the question names and the chunk is about, or 0.
    """

    key: int
    score: float
    scores: dict[str, float] = field(default_factory=dict[str, float])
    links: tuple[PassageLink, ...] = ()
    named: int = 0


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """Scale of the scores of one answer, by which those of other shards can be compared with them.

    Attributes:
        top: the score of the best passage, before all were divided by it.
        per_graph: what the score `graph` contributes, by its square root.
        per_bm25: see `FirstStage`, as the others.
    """

    top: float
    per_graph: float
    per_bm25: float
    per_rise: float
    rise: float
    zeros: dict[str, float]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Result of a retrieval, and how it was found.

    Attributes:
        found: the best passages, best first.
        counts: how many passages each step brought: `lexical`, `vector`, `graph`, `expansion`.
        ms: milliseconds of `first_stage` (of it `lexical` and `vector`), `expansion`, `walk`,
            `sub_questions` and `total`.
        fallback_to_vector: whether `graph_first` found nothing in the graph, and used vectors instead.
        nearness: see `FirstStage`.
        scale: the scale of the scores.
    """

    found: list[ChunkHit]
    counts: dict[str, int]
    ms: dict[str, float]
    fallback_to_vector: bool = False
    nearness: tuple[LanguageSimilarity, ...] = ()
    scale: ScoreScale | None = None


def retrieve(
    question: PreparedQuestion,
    limit: int,
    *,
    strategy: Strategy,
    channels: Channels,
    graph: LinkReader,
    config: RAGConfig,
    hits: ChannelHits | None = None,
    thorough: bool = False,
) -> Retrieval:
    """Retrieve the best passages for a question, best first.

    Args:
        question: the question.
        limit: how many passages at most.
        strategy: how the channels combine.
        channels: words and vectors.
        graph: entities, mentions, subjects and relations.
        config: weights.
        hits: hits of words and vectors, if these were searched already; only for `hybrid`.
        thorough: whether to ask more sub-questions, see `SubQuestionSettings`.
    """
    draft = _RetrievalRun(question, channels, graph, config, hits)
    if strategy == "graph_first":
        fallback = not draft.from_graph()
        if fallback:
            draft.from_channels(by_words=channels.dense is None or question.vector is None)
    else:
        fallback = False
        draft.from_channels(by_words=strategy != "vector_first")
    if strategy in {"hybrid", "graph_only"}:
        draft.expand()
        draft.walk()
        draft.ask_sub_questions(thorough=thorough)
    return draft.finish(limit, fallback=fallback)


class _RetrievalRun:
    """One retrieval, step by step."""

    def __init__(
        self,
        question: PreparedQuestion,
        channels: Channels,
        graph: LinkReader,
        config: RAGConfig,
        hits: ChannelHits | None,
    ) -> None:
        self._hits = hits
        self._question = question
        self._channels = channels
        self._graph = graph
        self._config = config
        self._neighbourhood = Neighbourhood(
            graph,
            mentions_each=max(config.links.rare + 1, config.walk.mentions_each),
            abouts_each=max(config.links.targets_each, config.walk.targets_each, _NAMED_EACH + 1),
        )
        self._started = self._step_started = time.perf_counter() if hits is None else hits.began
        self._ms: dict[str, float] = {}
        self._scores: dict[int, float] = {}
        self._first = FirstStage({}, {}, {})
        self._expansion = GraphExpansion({}, {}, {})
        self._near: dict[int, float] = {}
        self._entities: list[int] = []
        self._named: dict[int, int] = {}

    def from_channels(self, *, by_words: bool) -> None:
        """Search words and vectors."""
        config = self._config
        self._first = first_stage(
            self._question,
            self._channels,
            lexical_weight=config.lexical_weight,
            vector_weight=config.vector_weight,
            by_words=by_words,
            settings=config.first_stage,
            hits=self._hits,
        )
        self._scores = dict(self._first.scores)
        self._demote_boilerplate()
        self._ms |= self._first.ms
        self._measure("first_stage")

    def from_graph(self) -> bool:
        """Search by the graph, ranked by vectors if there are any; return whether there are hits."""
        question, dense = self._question, self._channels.dense
        self._near = graph_channel(question, self._graph, settings=self._config.walk)
        self._scores = dict(self._near)
        if dense is not None and question.vector is not None:
            best = nsmallest(_GRAPH_FIRST_POOL, self._near, key=lambda key: (-self._near[key], key))
            semantic = dense.scores(question.vector, self._channels.has_vector(best))
            # Passages without a comparable vector come last.
            self._scores = {key: semantic.get(key, 0.0) for key in best}
            self._first = FirstStage(semantic, {}, semantic)
        self._demote_boilerplate()
        self._measure("walk")
        return bool(self._scores)

    def _demote_boilerplate(self) -> None:
        """Lower the scores of boilerplate passages, which rank high by the title of their document.

        They stay findable: a question about the licence itself is answered by little else.
        """
        for key in self._graph.boilerplate_among(self._scores):
            self._scores[key] *= _OF_BOILERPLATE if self._scores[key] > 0 else 1.0

    def _link_entities(self) -> None:
        """Link the question's entities: passages about them become seeds, and gain if the link is sure."""
        among, named = self._question.among, link_entities(self._question.text, self._graph)
        self._entities = [entity.key for entity in named]
        abouts = self._neighbourhood.abouts_of(self._entities)
        for entity in named:
            edges = abouts[entity.key][: _NAMED_EACH + 1]
            chunks = [(chunk, confidence) for chunk, confidence in edges if confidence >= _SURE]
            for chunk, confidence in chunks[:_NAMED_EACH]:
                if among is not None and chunk not in among:
                    continue
                self._named.setdefault(chunk, entity.key)
                if entity.sure:
                    gain = self._config.links.named * confidence / len(chunks) ** 0.5
                    self._scores[chunk] = self._scores.get(chunk, 0.0) + gain

    def expand(self) -> None:
        """Expand along the links of the best passages, and of those about the question's entities."""
        question, config = self._question, self._config
        self._link_entities()
        self._expansion = expand(
            question,
            self._scores,
            channels=self._channels,
            neighbourhood=self._neighbourhood,
            named=list(self._named),
            weight=config.expansion_weight,
            settings=config.links,
        )
        self._scores = self._expansion.scores
        self._measure("expansion")

    def walk(self) -> None:
        """Raise passages that are connected with several of the best ones."""
        among, config = self._question.among, self._config
        near = walk(self._neighbourhood, self._scores, entities=self._entities, settings=config.walk)
        self._near = {key: weight for key, weight in near.items() if among is None or key in among}
        self._scores = dict(self._scores)
        for key, weight in self._near.items():
            self._scores[key] = self._scores.get(key, 0.0) + config.graph_weight * weight**0.5
        self._measure("walk")

    def ask_sub_questions(self, *, thorough: bool) -> None:
        """Raise passages that answer what the best ones leave open about the names that they mention."""
        config, expansion = self._config, self._expansion
        answers = ask_sub_questions(
            self._question,
            self._scores,
            self._first,
            channels=self._channels,
            neighbourhood=self._neighbourhood,
            named=self._named,
            most=config.sub_questions.thorough if thorough else config.sub_questions.most,
            settings=config.sub_questions,
        )
        for chunk, (score, link) in answers.items():
            expansion.gained[chunk] = expansion.gained.get(chunk, 0.0) + score - self._scores.get(chunk, 0.0)
            self._scores[chunk] = score
            expansion.links[chunk] = link
        self._measure("sub_questions")

    def finish(self, limit: int, *, fallback: bool) -> Retrieval:
        """Rank the passages, those that hold identifiers of the question first; return the best."""
        highest = max(self._scores.values(), default=0.0)
        for key, number in self._first.held.items():
            self._scores[key] += highest * number
        ranked = nsmallest(limit, ((-score, key) for key, score in self._scores.items()))
        best = [key for _, key in ranked]
        top = self._scores[best[0]] if best else 0.0
        self._ms["total"] = 1000 * (time.perf_counter() - self._started)
        return Retrieval(
            found=[self._hit(key, top) for key in best],
            counts={
                "lexical": len(self._first.lexical) + len(self._first.translated),
                "vector": len(self._first.semantic),
                "graph": len(self._near),
                "expansion": len(self._expansion.gained),
            },
            ms=self._ms,
            fallback_to_vector=fallback,
            nearness=self._first.nearness,
            scale=self._scale(top),
        )

    def _scale(self, top: float) -> ScoreScale:
        first = self._first
        return ScoreScale(
            top,
            per_graph=self._config.graph_weight,
            per_bm25=first.per_bm25,
            per_rise=first.per_rise,
            rise=first.rise,
            zeros=first.zeros,
        )

    def _hit(self, key: int, top: float) -> ChunkHit:
        parts = {
            "bm25": self._first.lexical.get(key),
            "translation": self._first.translated.get(key),
            "vector": self._first.semantic.get(key),
            "links": self._expansion.gained.get(key),
            "graph": self._near.get(key),
        }
        return ChunkHit(
            key=key,
            score=max(0.0, self._scores[key] / top) if top > 0 else 0.0,  # a cosine may be negative
            scores={name: value for name, value in parts.items() if value is not None},
            links=self._way(key),
            named=self._named.get(key, 0),
        )

    def _way(self, key: int) -> tuple[PassageLink, ...]:
        """Return the links that led to a chunk, from the first seed on."""
        way: list[PassageLink] = []
        seen = {key}
        while (link := self._expansion.links.get(key)) is not None and link.seed not in seen:
            way.insert(0, link)
            key = link.seed
            seen.add(key)
        return tuple(way)

    def _measure(self, step: str) -> None:
        now = time.perf_counter()
        self._ms[step] = 1000 * (now - self._step_started)
        self._step_started = now
