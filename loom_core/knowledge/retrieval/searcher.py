"""Search by a strategy: a request in, an answer of cited passages out, with their provenance.

`Searcher` embeds the question and asks the channels; what they find is ranked by `retrieve`, judged by
`assess_match` and refined by `Refiner`. `SearchContext` is the store and the indexes that it works with.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, get_args

import anyio
from anyio import from_thread, to_thread

from loom_core.errors import EmbeddingError, IndexDamagedError, InvalidInputError, StoreUnavailableError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.overview.global_questions import parse_global_question
from loom_core.knowledge.retrieval.answer_sentence import mark_answer_sentences
from loom_core.knowledge.retrieval.channels import ChannelHits, Channels, PreparedQuestion
from loom_core.knowledge.retrieval.confidence import Match, assess_match
from loom_core.knowledge.retrieval.config import Strategy
from loom_core.knowledge.retrieval.global_search import (
    overview_hits,
    overview_note,
    spread_by_topic,
    spread_note,
)
from loom_core.knowledge.retrieval.query_translation import TRANSLATED_INTO, translate_query
from loom_core.knowledge.retrieval.refinement import Refinement, Refiner
from loom_core.knowledge.retrieval.strategies import ScoreScale, retrieve
from loom_core.knowledge.text.bilingual_dictionary import load_dictionary
from loom_core.observability.families import CHANNEL_SECONDS, SEARCH_SECONDS
from loom_core.observability.spans import KNOWLEDGE_SEARCH
from loom_core.observability.tracing import AttributeValue, LoomTracer, records_content, redact_content, span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes import LexicalIndexes
    from loom_core.knowledge.indexes.links import LinkIndex
    from loom_core.knowledge.indexes.vectors import VectorIndexes
    from loom_core.knowledge.interface import Channel, Reranker
    from loom_core.knowledge.overview.topics import TopicIndex, TopicMap
    from loom_core.knowledge.retrieval.config import RAGConfig, SearchRequest
    from loom_core.knowledge.retrieval.question import QuestionPreparer
    from loom_core.knowledge.retrieval.strategies import ChunkHit, Retrieval
    from loom_core.knowledge.store import ChunkRow, KnowledgeStore
    from loom_core.knowledge.store.chunk_keys import ChunkKeys
    from loom_core.knowledge.store.store import StoreGlance
    from loom_core.observability.metrics import LoomMetrics

__all__ = ["SearchAnswer", "SearchContext", "Searcher", "channel_items", "item", "items"]

_log = logging.getLogger(__name__)

_MAX_LIMIT = 100
_SUB_QUESTION_SECONDS = 5.0  # for embedding them, as an answer does not depend on it
_SPREAD = 8  # times as many passages are found for a question about all documents as are chosen


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The answer to a question, with its provenance.

    Attributes:
        items: the passages, best first.
        strategy: how they were found.
        embedded: how many chunks had a vector, of `chunks`.
        chunks: how many chunks there were.
        match: how well the passages fit the question; `items` is empty where its verdict is `none`.
        notes: warnings for the reader, such as a channel that was left out, and why.
        embed_ms: time for embedding the question and its sub-questions, in milliseconds.
        retrieve_ms: the rest of the time; `hybrid` searches words while the question is embedded.
        measures: how many passages each channel brought and how long each step took, by the names of the
            attributes of the search's span.
        scale: the scale of the passages' scores, unless these were reordered after that.
    """

    items: list[KnowledgeItem]
    match: Match
    strategy: Strategy
    embedded: int
    chunks: int
    notes: tuple[str, ...]
    embed_ms: float
    retrieve_ms: float
    measures: dict[str, AttributeValue] = field(default_factory=dict[str, AttributeValue], compare=False)
    scale: ScoreScale | None = field(default=None, compare=False)


class IndexWorker(Protocol):
    """The worker of a knowledge base, as far as searches depend on it."""

    @property
    def problem(self) -> str:
        """Why work or a part of it has stopped for now; or empty."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether this process works in the background."""
        ...

    @property
    def is_owner(self) -> bool:
        """Whether this process is the owner."""
        ...

    async def restore(self) -> bool:
        """Bring the lexical index and the vectors up to date; False where another process does it."""
        ...

    async def drain(self) -> None:
        """Work until nothing is left to do."""
        ...


class OwnerPeer(Protocol):
    """The owner process, queried from another one; None if it does not answer."""

    async def search(self, request: SearchRequest) -> SearchAnswer | None:
        """Answer a question by a strategy."""
        ...

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None,
        vector: NDArray[np.float32] | None,
    ) -> list[KnowledgeItem] | None:
        """Ask one channel."""
        ...


@dataclass(frozen=True, slots=True)
class SearchContext:
    """Shared state of the searches of one knowledge base.

    Attributes:
        store: the store to search.
        words: its lexical index.
        vectors: its vectors.
        links: its links of entities and passages, where they are indexed.
        topics: its topics, for global questions.
        reader: prepares the questions.
        worker: rebuilds the indexes where they are missing.
        owner: client of the owner process, if it is another one; None in memory.
        metrics: where searches are counted and timed.
    """

    store: KnowledgeStore
    words: LexicalIndexes
    vectors: VectorIndexes
    links: LinkIndex
    topics: TopicIndex
    reader: QuestionPreparer
    worker: IndexWorker
    owner: OwnerPeer | None
    metrics: LoomMetrics

    @property
    def peer(self) -> OwnerPeer | None:
        """The owner, where it is another process than this one."""
        return None if self.worker.is_owner else self.owner


class Searcher:
    """Searches by a strategy, in what the store and its indexes hold at that moment.

    Args:
        name: the knowledge base's name, for traces.
        context: the store and its indexes.
        config: weights, and defaults of the options of a request.
        reranker: reorders the best passages, or None.
        tracer: makes the spans; None for the program's own provider.
    """

    def __init__(
        self,
        name: str,
        context: SearchContext,
        *,
        config: RAGConfig,
        reranker: Reranker | None,
        tracer: LoomTracer | None,
    ) -> None:
        self._name = name
        self._context = context
        self._config = config
        self._reranker = reranker
        self._tracer = tracer
        self._refiner = Refiner(context.store, context.vectors, reranker_timeout=config.waits.reranker)

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """See `GraphRAGKnowledgeBase.search`.

        Every search is a span `KNOWLEDGE_SEARCH` with the hits and time of each channel. The question is
        not part of it, unless the operator enables that.
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
                current.set_attribute("gen_ai.retrieval.query.text", redact_content(request.query))
            began = time.perf_counter()
            answer = await self._ask_owner(request) or await self.find(request)
            self._context.metrics.observe(SEARCH_SECONDS, time.perf_counter() - began, strategy)
            current.set_attributes({f"retrieval.{name}": value for name, value in answer.measures.items()})
            return answer

    async def find(self, request: SearchRequest) -> SearchAnswer:
        """Answer in this process, without a span."""
        store, worker = self._context.store, self._context.worker
        follows = store.sharing is not None and not worker.is_running  # else it may begin during the glance
        glance = await to_thread.run_sync(store.glance)
        if follows and await self._follow(glance):
            glance = await to_thread.run_sync(store.glance)
        with store.remember(glance.meta):
            return await self._find(request, glance)

    async def _find(self, request: SearchRequest, glance: StoreGlance) -> SearchAnswer:
        started = time.perf_counter()
        await self._context.reader.prepare()
        limit, strategy = request.limit, request.strategy
        text = self._context.reader.text(request.query, limit=limit, most=_MAX_LIMIT)
        wanted = Refinement.of(request.options, config=self._config, reranker=self._reranker)
        among = await self._context.reader.filter_chunks(request.filters)
        embedded, chunks = glance.embedded, glance.chunks
        overall = parse_global_question(text)
        topics = await to_thread.run_sync(self._context.topics.current) if overall is not None else None
        if overall is not None and topics is not None and topics.topics:
            if not overall.focus:
                return await self._give_overview(request, topics, among, embedded=embedded, started=started)
            text = overall.focus
        else:
            topics = None
        thorough = self._config.thorough
        if request.options is not None and request.options.thorough is not None:
            thorough = request.options.thorough
        embeds = bool(embedded) and strategy not in {"bm25", "graph_only"}
        asked = await self._ask(text, among, strategy, embeds=embeds)
        asked.thorough = thorough
        retrieval, found_notes = await self._retrieve_when_ready(
            asked,
            glance,
            wanted.candidates(limit if topics is None else _SPREAD * limit),
            strategy=strategy,
        )
        chosen = among is not None or strategy == "graph_first"
        match, passages, refining_notes = await to_thread.run_sync(
            partial(self._choose, text, retrieval, topics, limit=limit, wanted=wanted, chosen=chosen)
        )
        notes = [*asked.notes, *found_notes, *refining_notes]
        if topics is not None and passages:
            notes.append(spread_note(passages))
        if self._context.worker.problem and not asked.away:
            notes.append(self._context.worker.problem)
        total_ms = 1000 * (time.perf_counter() - started)
        embed_ms = asked.embed_ms + asked.channels.embed_ms
        self._count(retrieval, embed_ms if asked.question.vector is not None else None)
        measures = _measures(retrieval, strategy) if retrieval else {}
        return SearchAnswer(
            items=passages,
            match=match,
            strategy=strategy,
            embedded=embedded,
            chunks=chunks,
            notes=tuple(notes),
            embed_ms=embed_ms,
            retrieve_ms=total_ms - embed_ms,
            measures=measures | {"embed_ms": embed_ms, "total_ms": total_ms, "result_count": len(passages)},
            scale=retrieval.scale if retrieval and not wanted.diversity and not wanted.reranker else None,
        )

    async def _give_overview(
        self,
        request: SearchRequest,
        topics: TopicMap,
        among: ChunkKeys | None,
        *,
        embedded: int,
        started: float,
    ) -> SearchAnswer:
        """Answer a question about all documents by their topics."""
        hits, overview = await to_thread.run_sync(
            partial(overview_hits, self._context.store, topics, limit=request.limit, among=among)
        )
        passages = await to_thread.run_sync(partial(items, self._context.store, hits))
        total_ms = 1000 * (time.perf_counter() - started)
        return SearchAnswer(
            items=[
                replace(item, metadata={**item.metadata, "why": ["represents one of the largest topics"]})
                for item in passages.values()
            ],
            match=Match(1.0 if passages else 0.0),
            strategy=request.strategy,
            embedded=embedded,
            chunks=topics.chunks,
            notes=(overview_note(overview),) if passages else (),
            embed_ms=0.0,
            retrieve_ms=total_ms,
            measures={"total_ms": total_ms, "result_count": len(passages)},
        )

    def _count(self, retrieval: Retrieval | None, embed_ms: float | None) -> None:
        """Report the time of each channel to the metrics."""
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
                self._context.metrics.observe(CHANNEL_SECONDS, milliseconds / 1000, channel)

    async def _ask_owner(self, request: SearchRequest) -> SearchAnswer | None:
        """Ask the owner, if it is another process; a reranker runs here."""
        peer = self._context.peer
        if peer is None or self._reranker is not None:
            return None
        if request.options is not None and request.options.reranker is not None:
            return None
        return await peer.search(request)

    def _choose(
        self,
        text: str,
        retrieval: Retrieval | None,
        topics: TopicMap | None,
        *,
        limit: int,
        wanted: Refinement,
        chosen: bool,
    ) -> tuple[Match, list[KnowledgeItem], list[str]]:
        """Return the match, the passages of the answer, and notes on steps that failed. Blocks."""
        match, found = self._assess(text, retrieval, chosen=chosen)
        if topics is not None and found:
            found = spread_by_topic(found, topics, limit=wanted.candidates(limit))
        passages, notes = self._refiner.refine(text, found, limit=limit, wanted=wanted)
        return match, mark_answer_sentences(text, passages), notes

    def _assess(
        self, text: str, retrieval: Retrieval | None, *, chosen: bool
    ) -> tuple[Match, dict[int, KnowledgeItem]]:
        """Assess the match, and scale the passages' relevance by its confidence.

        Args:
            text: the question.
            retrieval: the hits; None if there is no index.
            chosen: whether filters selected the passages: then they are returned even if they match poorly.
        """
        found = items(self._context.store, retrieval.found if retrieval else ())
        nearness = self._context.reader.calibrate_nearness(text, retrieval.nearness) if retrieval else None
        match = assess_match(text, list(found.values()), nearness=nearness)
        if match.verdict == "none" and not chosen:
            return match, {}
        return match, {
            key: replace(item, relevance=round(item.relevance * match.confidence, 4))
            for key, item in found.items()
            if item.relevance > 0 or chosen
        }

    async def _follow(self, glance: StoreGlance) -> bool:
        """Apply the changes of other machines, which do not keep the indexes of this one in step.

        Returns:
            Whether there were any.
        """
        context = self._context
        files, head = (context.words, context.vectors), glance.head
        with context.store.remember(glance.meta):
            is_behind = await to_thread.run_sync(lambda: not all(each.files_have(head) for each in files))
        if is_behind:
            await context.worker.restore()
        return is_behind

    async def _ask(
        self, text: str, among: ChunkKeys | None, strategy: Strategy, *, embeds: bool
    ) -> _PendingSearch:
        """Embed a question if necessary; for `hybrid`, search words in parallel, and vectors afterwards."""
        in_parallel = embeds and strategy == "hybrid"

        def prepare() -> PreparedQuestion:
            question = PreparedQuestion.of(text, among=among, space=self._context.reader.space)
            return self._translate(question) if in_parallel else question

        question = await to_thread.run_sync(prepare)
        asked = _PendingSearch(question, self._channels(question))
        if in_parallel:
            asked.hits = hits = ChannelHits()
            await _in_parallel(
                lambda: to_thread.run_sync(self._ask_words, asked, hits),
                lambda: self._ask_vectors(asked, hits),
            )
        elif embeds:
            await self._embed(asked)
        return asked

    def _translate(self, question: PreparedQuestion) -> PreparedQuestion:
        """Translate a question if there are passages with vectors in the other language. Blocks."""
        into = TRANSLATED_INTO.get(question.language)
        comparable = self._context.reader.comparable_groups(question.language)
        if into is None or (comparable is not None and into not in comparable):
            return question
        try:
            dense = self._context.vectors.current()
            if dense is None or into not in dense.language_groups():
                return question
        except StoreUnavailableError:  # said when the vectors are searched
            return question
        translation = translate_query(question.text, question.language, load_dictionary())
        return replace(question, translation=translation)

    def _channels(self, question: PreparedQuestion) -> Channels:
        return Channels(
            None,
            None,
            covered=self._context.reader.comparable_groups(question.language),
            read=self._context.store.documents.texts_with_headings,
            embed=self._embed_more,
        )

    def _embed_more(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """Embed sub-questions, from a thread of the event loop; None if that fails, as they are optional."""
        try:
            return from_thread.run(
                partial(self._context.reader.embed_all, texts, seconds=_SUB_QUESTION_SECONDS)
            )
        except EmbeddingError as error:
            _log.warning("Sub-questions could not be embedded: %s", error)
            return None

    def _ask_words(self, asked: _PendingSearch, hits: ChannelHits) -> None:
        try:
            self._open_words(asked)
            hits.ask_words(asked.question, asked.channels, self._config.first_stage)
        except IndexDamagedError as error:
            asked.damage = error
        except StoreUnavailableError as error:
            asked.leave_out_words(error.message)

    def _open_words(self, asked: _PendingSearch) -> None:
        """Set the lexical index, if there is one that can be asked."""
        if not asked.lacks_words:
            asked.channels.words = self._context.words.searcher()
            if asked.channels.words is None and (reason := self._context.words.explain_absence()):
                asked.leave_out_words(reason)

    async def _ask_vectors(self, asked: _PendingSearch, hits: ChannelHits) -> None:
        await self._embed(asked)

        def search() -> None:
            try:
                self._open_vectors(asked)
                hits.ask_vectors(asked.question, asked.channels, self._config.first_stage)
            except StoreUnavailableError as error:
                asked.leave_out_vectors(error.message)

        await to_thread.run_sync(search)

    def _open_vectors(self, asked: _PendingSearch) -> None:
        """Set the vectors that are comparable with a question, if any, and their languages' centroids."""
        question = asked.question
        dense = self._context.vectors.current() if question.vector is not None else None
        absent = question.vector is not None and dense is None
        if absent and (reason := self._context.vectors.explain_absence()):
            asked.leave_out_vectors(reason)
        if not self._context.reader.is_in_space(question):  # after `current`, so that it is of this space
            dense = None
        languages = frozenset[str]() if dense is None else dense.language_groups()
        asked.channels.centroids = self._context.reader.centroids(question, languages)
        asked.channels.dense = dense

    async def _embed(self, asked: _PendingSearch) -> None:
        """Embed a question; on failure, add a note."""
        began = time.perf_counter()
        text = asked.question.text
        if reason := self._context.reader.explain_language_gap(text):
            asked.notes = [f"{reason}: words and graph only"]
        else:
            try:
                asked.question = await self._context.reader.with_vectors(asked.question)
            except EmbeddingError as error:
                asked.notes = [f"the question could not be embedded, words and graph only: {error}"]
        asked.embed_ms = 1000 * (time.perf_counter() - began)

    async def _retrieve_when_ready(
        self, asked: _PendingSearch, glance: StoreGlance, limit: int, *, strategy: Strategy
    ) -> tuple[Retrieval | None, list[str]]:
        """Return the retrieval and its notes; if an index is missing, wait until it is rebuilt."""
        retrieval, missing = await to_thread.run_sync(self._retrieve, asked, glance, limit, strategy)
        if not missing or not glance.chunks:
            return retrieval, []
        with self._context.store.remember(None):
            restored = not self._context.worker.is_running and await self._context.worker.restore()
        if not restored:
            return retrieval, [f"the index of {missing} is being rebuilt: ask again in a moment"]
        again = _PendingSearch(asked.question, self._channels(asked.question), thorough=asked.thorough)
        retrieval, _ = await to_thread.run_sync(self._retrieve, again, glance, limit, strategy)
        return retrieval, []

    def _retrieve(
        self, asked: _PendingSearch, glance: StoreGlance, limit: int, strategy: Strategy
    ) -> tuple[Retrieval | None, str]:
        """Return the retrieval, and the name of the index that was missing for it, or empty."""
        channels = asked.channels
        try:
            if asked.hits is None:
                self._open_vectors(asked)
                self._open_words(asked)
            if asked.lacks_vectors and strategy == "vector_first":
                strategy = "bm25"
            asked.check_answerable(strategy)
            if asked.damage is not None:
                raise asked.damage
            retrieval = retrieve(
                asked.question,
                limit,
                strategy=strategy,
                channels=channels,
                graph=self._context.links.current(glance.head) or self._context.store.graph,
                config=self._config,
                hits=asked.hits,
                thorough=asked.thorough,
            )
        except StoreUnavailableError as error:
            if asked.lacks_all:
                raise
            if self._context.words.server.problem and not asked.lacks_words:
                asked.leave_out_words(error.message)
            else:
                asked.leave_out_vectors(error.message)
            return self._retrieve(asked, glance, limit, strategy)
        except IndexDamagedError as error:
            self._context.words.report_damage(error)
            return None, "words"
        if channels.words is None and not asked.lacks_words:
            return retrieval, "words"
        return retrieval, "vectors" if asked.question.vector is not None and channels.dense is None else ""


@dataclass(slots=True)
class _PendingSearch:
    """State of a search in progress.

    Attributes:
        question: with its vector, once it is embedded.
        channels: the channels to search.
        hits: their hits, if they are searched first; else None.
        notes: why the question was not embedded, or what is left out; empty if all is searched.
        away: why servers cannot be asked.
        embed_ms: how long embedding the question took.
        damage: the damage of the lexical index.
        lacks_vectors: whether the question is answered without vectors, as their database cannot be asked.
        lacks_words: whether it is answered without words, as their search engine cannot be asked.
        thorough: whether to ask more sub-questions.
    """

    question: PreparedQuestion
    channels: Channels
    hits: ChannelHits | None = None
    notes: list[str] = field(default_factory=list[str])
    away: list[str] = field(default_factory=list[str])
    embed_ms: float = 0.0
    damage: IndexDamagedError | None = None
    lacks_vectors: bool = False
    lacks_words: bool = False
    thorough: bool = False

    @property
    def lacks_all(self) -> bool:
        """Whether there is nothing left to search in."""
        return self.lacks_words and self.question.vector is None

    def check_answerable(self, strategy: Strategy) -> None:
        """Check that there is something left to search in.

        Raises:
            StoreUnavailableError: what the strategy needs is in servers that cannot be asked now.
        """
        if self.lacks_all or (self.lacks_words and strategy == "bm25"):
            raise StoreUnavailableError(" ".join(self.away), advice="Ask again once it answers.")

    def leave_out_vectors(self, reason: str) -> None:
        """Continue without vectors, and say so: they are in a database that cannot be asked now."""
        self.question = replace(self.question, vector=None)
        self.channels.dense = None
        self.lacks_vectors = True
        self.away.append(reason)
        self.notes.append(f"{reason.removesuffix('.')}: words and graph only")

    def leave_out_words(self, reason: str) -> None:
        """Continue without words, and say so: they are in a search engine that cannot be asked now."""
        self.channels.words = None
        self.lacks_words = True
        self.away.append(reason)
        self.notes.append(f"{reason.removesuffix('.')}: vectors and graph only")


async def _in_parallel(*parts: Callable[[], Awaitable[None]]) -> None:
    """Run functions concurrently; the first error cancels the others, and is raised unwrapped."""
    failures: list[Exception] = []

    async def run(part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - raised below, out of the task group
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for part in parts:
            tasks.start_soon(run, part)
    if failures:
        raise failures[0]


def _measures(retrieval: Retrieval, strategy: Strategy) -> dict[str, AttributeValue]:
    """Return the metrics of a retrieval: attributes of the specification, and the time of the walk."""
    counts, ms = retrieval.counts, retrieval.ms
    measures: dict[str, AttributeValue] = {
        "lexical_count": counts.get("lexical", 0),
        "vector_count": counts.get("vector", 0),
        "graph_count": counts.get("graph", 0),
    }
    if strategy == "hybrid":
        measures |= {
            "expansion_count": counts.get("expansion", 0),
            "parallel_ms": ms.get("first_stage", 0.0),
            "expansion_ms": ms.get("expansion", 0.0),
            "walk_ms": ms.get("walk", 0.0),
            "sub_questions_ms": ms.get("sub_questions", 0.0),
        }
    if strategy == "graph_first":
        measures["fallback_to_vector"] = retrieval.fallback_to_vector
    return measures


_WORDS = "shares words with the question"
_TRANSLATED = "holds words of the question in another language"
_MEANING = "is close to the question in meaning"
_CHANNELS: dict[Channel, tuple[str, str]] = {
    "dense": ("vector", _MEANING),
    "bm25": ("bm25", _WORDS),
    "keyword": ("keyword", "holds keywords of the question"),
    "graph": ("graph", "is connected with what the question names"),
}
"""Name of each channel's score in an item, and the reason that it gives for a hit."""


def items(store: KnowledgeStore, found: Sequence[ChunkHit]) -> dict[int, KnowledgeItem]:
    """Return the hits as items by key, in the same order, without those deleted in the meantime."""
    keys = {hit.key for hit in found} | {
        key for hit in found for link in hit.links for key in (link.seed, link.chunk)
    }
    rows = store.documents.chunks(sorted(keys))
    names = store.graph.names_of(sorted({hit.named for hit in found if hit.named}))
    return {
        hit.key: item(
            rows[hit.key],
            relevance=round(hit.score, 4),
            scores=hit.scores,
            why=_why(hit, rows, names),
        )
        for hit in found
        if hit.key in rows
    }


def channel_items(
    store: KnowledgeStore, scores: Sequence[tuple[int, float]], channel: Channel | None
) -> list[KnowledgeItem]:
    """Return the hits of one channel, or a list of chunks without a query, as items.

    Args:
        store: the store; deleted chunks are left out.
        scores: keys and the channel's raw scores, in the order of the result.
        channel: the channel, or None.
    """
    rows = store.documents.chunks([key for key, _ in scores])
    name, why = _CHANNELS[channel] if channel else ("", "")
    return [
        item(
            rows[key],
            relevance=score,
            scores={name: score} if channel else {},
            why=[why] if channel else [],
        )
        for key, score in scores
        if key in rows
    ]


def item(
    row: ChunkRow,
    *,
    relevance: float = 0.0,
    scores: dict[str, float] | None = None,
    why: Sequence[str] = (),
) -> KnowledgeItem:
    """Convert a chunk to an item."""
    own = {
        "title": row.title,
        "heading_path": list(row.heading_path),
        "start": row.start,
        "end": row.end,
        "page": row.page,
        "kind": row.kind,
        "document_id": row.document_id,
        "language": row.language,
        "keywords": list(row.keywords),
        "scores": {name: round(value, 4) for name, value in (scores or {}).items()},
        "why": list(why),
    }
    return KnowledgeItem(
        id=row.id,
        content=row.text,
        source=row.uri,
        relevance=relevance,
        metadata={**row.metadata, **own},
    )


def _why(hit: ChunkHit, rows: dict[int, ChunkRow], names: dict[int, str]) -> list[str]:
    reasons: list[str] = []
    for link in hit.links:
        if link.seed not in rows or link.chunk not in rows:
            continue
        seed, target = f"“{_place(rows[link.seed])}”", f"“{_place(rows[link.chunk])}”"
        if link.chunk == hit.key:
            target = "this passage"
        if link.kind == "forward":
            reasons.append(f"{seed} mentions “{link.name}”, which {target} is about")
        elif link.kind == "back":
            reasons.append(f"{target} mentions “{link.name}”, which {seed} is about")
        elif link.kind == "asked":
            reasons.append(
                f"{seed} mentions “{link.name}”, about which {target} answers the rest of the question"
            )
        else:
            reasons.append(f"{seed} mentions “{link.name}”, and so does {target}")
    if hit.named and hit.named in names:
        reasons.append(f"the question names “{names[hit.named]}”, which it is about")
    if "bm25" in hit.scores:
        reasons.append(_WORDS)
    if "translation" in hit.scores:
        reasons.append(_TRANSLATED)
    if "vector" in hit.scores:
        reasons.append(_MEANING)
    if not reasons:
        reasons.append("is connected with several of the best passages")
    return reasons


def _place(row: ChunkRow) -> str:
    parts = [part for part in (row.title, *row.heading_path) if part]
    return " › ".join(parts) if parts else row.text[:40].strip() + "…"
