"""Searching a knowledge base by a strategy: a question in, an answer that says how it was found out."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, get_args

from anyio import to_thread

from loom_core.errors import EmbeddingError, IndexDamagedError, InvalidInputError
from loom_core.knowledge.match import assess_match
from loom_core.knowledge.rag.answer import Answer, Searched, items
from loom_core.knowledge.rag.channels import Channels, Question
from loom_core.knowledge.rag.config import Strategy
from loom_core.knowledge.rag.refining import Refinement, Refiner
from loom_core.knowledge.rag.strategies import retrieve
from loom_core.observability.content import hidden, records_content
from loom_core.observability.families import CHANNEL_SECONDS, SEARCH_SECONDS
from loom_core.observability.spans import KNOWLEDGE_SEARCH
from loom_core.observability.tracing import AttributeValue, LoomTracer, span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexing import WordIndex
    from loom_core.knowledge.interface import Reranker
    from loom_core.knowledge.match import Match
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.config import RAGConfig
    from loom_core.knowledge.rag.options import SearchRequest
    from loom_core.knowledge.rag.owner_client import OwnerClient
    from loom_core.knowledge.rag.question import QuestionReader
    from loom_core.knowledge.rag.strategies import Retrieval
    from loom_core.knowledge.rag.vectors import Vectors
    from loom_core.knowledge.rag.worker import Worker
    from loom_core.knowledge.record import Record
    from loom_core.observability.metrics import LoomMetrics

__all__ = ["Searcher"]

_MAX_LIMIT = 100


class Searcher:
    """Answers questions by a strategy, from what the record and its indexes hold at that moment.

    Args:
        name: the knowledge base's name, for traces.
        record: what is searched.
        words: index of words.
        vectors: its vectors.
        reader: reads the questions.
        worker: builds the indexes anew where they are missing.
        owner: asks the process that works for the knowledge base, where it is another; None in memory.
        config: weights, and the settings that a question may override.
        reranker: orders the best passages anew, or None.
        tracer: makes the spans; None for the program's own provider.
        metrics: where searches are counted.
    """

    def __init__(
        self,
        name: str,
        *,
        record: Record,
        words: WordIndex,
        vectors: Vectors,
        reader: QuestionReader,
        worker: Worker,
        owner: OwnerClient | None,
        config: RAGConfig,
        reranker: Reranker | None,
        tracer: LoomTracer | None,
        metrics: LoomMetrics,
    ) -> None:
        self._name = name
        self._record = record
        self._words = words
        self._vectors = vectors
        self._reader = reader
        self._worker = worker
        self._owner = owner
        self._config = config
        self._reranker = reranker
        self._tracer = tracer
        self._metrics = metrics
        self._refiner = Refiner(record, vectors, patience=config.waits.reranker)

    async def search(self, request: SearchRequest) -> Answer:
        """See `GraphRAGKnowledgeBase.search`.

        Every search is a span `KNOWLEDGE_SEARCH`: what was found by which channel and how long it took,
        never what was asked, unless the operator wants that.
        """
        strategy = request.strategy
        if strategy not in (known := get_args(Strategy)):
            raise InvalidInputError(
                f"There is no strategy {strategy!r}.", advice=f"Use one of: {', '.join(known)}."
            )
        attributes: dict[str, AttributeValue | None] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": self._name,
            "loom.knowledge_base": self._name,
            "retrieval.strategy": strategy,
        }
        with span(KNOWLEDGE_SEARCH, attributes, tracer=self._tracer) as current:
            if current.is_recording() and records_content():
                current.set_attribute("gen_ai.retrieval.query.text", hidden(request.query))
            began = time.perf_counter()
            found = await self._asked_of_the_owner(request) or await self.find(request)
            self._metrics.observe(SEARCH_SECONDS, time.perf_counter() - began, strategy)
            current.set_attributes({f"retrieval.{name}": value for name, value in found.told.items()})
            return found.answer

    async def find(self, request: SearchRequest) -> Searched:
        """Answer in this process, without a span."""
        started = time.perf_counter()
        await self._reader.prepare()
        limit, strategy = request.limit, request.strategy
        text = self._reader.text(request.query, limit=limit, most=_MAX_LIMIT)
        wanted = Refinement.of(request.options, config=self._config, reranker=self._reranker)
        among = await self._reader.allowed(request.filters)
        by_vectors = strategy not in {"bm25", "graph_only"}
        embedded, chunks = await to_thread.run_sync(self._vectors.coverage)
        embedding = time.perf_counter()
        vector, notes = None, list[str]()
        space = self._reader.space
        if embedded and by_vectors:
            vector, notes = await self._embedded(text)
        embed_ms = 1000 * (time.perf_counter() - embedding)
        question = Question.of(text, vector=vector, among=among, space=space)
        retrieval, found_notes = await self._retrieved(
            question, wanted.candidates(limit), strategy=strategy, chunks=chunks
        )
        match, found = await to_thread.run_sync(
            partial(self._matched, text, retrieval, chosen=among is not None or strategy == "graph_first")
        )
        passages, refining_notes = await self._refiner.refine(text, found, limit=limit, wanted=wanted)
        notes += [*found_notes, *refining_notes]
        if self._worker.problem:
            notes.append(self._worker.problem)
        total_ms = 1000 * (time.perf_counter() - started)
        answer = Answer(
            items=passages,
            match=match,
            strategy=strategy,
            embedded=embedded,
            chunks=chunks,
            notes=tuple(notes),
            embed_ms=embed_ms,
            retrieve_ms=total_ms - embed_ms,
        )
        self._count(retrieval, embed_ms if vector is not None else None)
        told = _told(retrieval, strategy) if retrieval else {}
        return Searched(
            answer, told | {"embed_ms": embed_ms, "total_ms": total_ms, "result_count": len(passages)}
        )

    def _count(self, retrieval: Retrieval | None, embed_ms: float | None) -> None:
        """How long the channels took that were asked."""
        ms = dict(retrieval.ms) if retrieval is not None else {}
        took = {
            "embedding": embed_ms,
            "lexical": ms.get("lexical"),
            "vector": ms.get("vector"),
            "expansion": ms.get("expansion"),
            "graph": ms.get("walk"),
        }
        for channel, milliseconds in took.items():
            if milliseconds is not None:
                self._metrics.observe(CHANNEL_SECONDS, milliseconds / 1000, channel)

    async def _asked_of_the_owner(self, request: SearchRequest) -> Searched | None:
        """What another process answers that works for the knowledge base; a reranker is asked here only."""
        if self._owner is None or self._worker.holds or self._reranker is not None:
            return None
        if request.options is not None and request.options.reranker is not None:
            return None
        return await self._owner.search(request)

    def _matched(
        self, text: str, retrieval: Retrieval | None, *, chosen: bool
    ) -> tuple[Match, dict[int, KnowledgeItem]]:
        """How well what was found fits, and the passages by key: their relevance is a share of that.

        Args:
            text: the question.
            retrieval: what was found for it.
            chosen: whether filters chose the passages: then they are given however little speaks for them.
        """
        found = items(self._record, retrieval.found if retrieval else ())
        nearness = retrieval.nearness if retrieval and self._reader.is_semantic else None
        match = assess_match(text, list(found.values()), nearness=nearness)
        if match.verdict == "none" and not chosen:
            return match, {}
        return match, {
            key: replace(item, relevance=round(item.relevance * match.confidence, 4))
            for key, item in found.items()
            if item.relevance > 0 or chosen
        }

    async def _embedded(self, text: str) -> tuple[NDArray[np.float32] | None, list[str]]:
        """The question's vector; or none, and why."""
        if reason := self._reader.uncovered(text):
            return None, [f"{reason}: words and graph only"]
        try:
            return await self._reader.embed(text), []
        except EmbeddingError as error:
            return None, [f"the question could not be embedded, words and graph only: {error}"]

    async def _retrieved(
        self, question: Question, limit: int, *, strategy: Strategy, chunks: int
    ) -> tuple[Retrieval | None, list[str]]:
        """What is found, and what to know about it; where an index has gone, once it is back."""
        attempt = partial(self._retrieve, question, limit, strategy)
        retrieval, missing = await to_thread.run_sync(attempt)
        if not missing or not chunks:
            return retrieval, []
        if self._worker.runs or not await self._worker.restore():
            return retrieval, [f"the index of {missing} is being rebuilt: ask again in a moment"]
        retrieval, _ = await to_thread.run_sync(attempt)
        return retrieval, []

    def _retrieve(self, question: Question, limit: int, strategy: Strategy) -> tuple[Retrieval | None, str]:
        """What is found, and which index was not there to find it with, or empty."""
        dense = self._vectors.current() if question.vector is not None else None
        if not self._reader.is_in_space(question):  # asked after `current`, so that it is of this space
            dense = None
        words = self._words.searcher()
        covered = self._reader.covered(question.language)
        languages = frozenset[str]() if dense is None else dense.language_groups()
        centroids = self._reader.centroids(question, languages)
        try:
            retrieval = retrieve(
                question,
                limit,
                strategy=strategy,
                channels=Channels(words, dense, covered=covered, centroids=centroids),
                graph=self._record.graph,
                config=self._config,
            )
        except IndexDamagedError as error:
            self._words.report_damage(error)
            return None, "words"
        if words is None:
            return retrieval, "words"
        return retrieval, "vectors" if question.vector is not None and dense is None else ""


def _told(retrieval: Retrieval, strategy: Strategy) -> dict[str, AttributeValue]:
    """What the span says of a retrieval: the attributes that were agreed on, and how long the walk took."""
    counts, ms = retrieval.counts, retrieval.ms
    told: dict[str, AttributeValue] = {
        "lexical_count": counts.get("lexical", 0),
        "vector_count": counts.get("vector", 0),
        "graph_count": counts.get("graph", 0),
    }
    if strategy == "hybrid":
        told |= {
            "expansion_count": counts.get("expansion", 0),
            "parallel_ms": ms.get("first_stage", 0.0),
            "expansion_ms": ms.get("expansion", 0.0),
            "walk_ms": ms.get("walk", 0.0),
        }
    if strategy == "graph_first":
        told["fallback_to_vector"] = retrieval.fallback_to_vector
    return told
