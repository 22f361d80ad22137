"""`GraphRAGKnowledgeBase`: documents in, cited passages out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from anyio import to_thread

from loom_core import plugin_registry
from loom_core.embedding.numpy_import import import_numpy
from loom_core.errors import InvalidInputError, LoomError
from loom_core.knowledge.indexes import GraphIndexes, LexicalIndexes
from loom_core.knowledge.indexes.engines.servers import GRAPH, LEXICAL, VECTORS, save_setting
from loom_core.knowledge.indexes.links import LinkIndex
from loom_core.knowledge.indexes.vectors import VectorIndexes
from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.runner import IngestRunner
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.overview.associations import Associations
from loom_core.knowledge.overview.overview import KnowledgeOverview, summarise
from loom_core.knowledge.overview.topics import TopicIndex, TopicMap
from loom_core.knowledge.rag.embedder_choice import (
    choose_embedder,
    load_embedder_config,
    save_metadata,
)
from loom_core.knowledge.rag.entity_aliases import EntityAliases
from loom_core.knowledge.rag.extraction_plan import ExtractionPlan
from loom_core.knowledge.rag.maintenance import KnowledgeBaseMaintenance
from loom_core.knowledge.rag.owner.client import OwnerClient
from loom_core.knowledge.rag.owner.protocol import PeerSettings, settings_digest
from loom_core.knowledge.rag.owner.server import OwnerServer
from loom_core.knowledge.rag.owner_methods import OwnerMethods
from loom_core.knowledge.rag.worker import KnowledgeBaseWorker
from loom_core.knowledge.retrieval.channel_search import ChannelSearch
from loom_core.knowledge.retrieval.config import RAGConfig, SearchRequest
from loom_core.knowledge.retrieval.current_embedder import CurrentEmbedder
from loom_core.knowledge.retrieval.question import QuestionPreparer
from loom_core.knowledge.retrieval.searcher import SearchAnswer, SearchContext, Searcher, item
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.opening import open_store
from loom_core.knowledge.store.place import StorePlace, place_in, place_of
from loom_core.knowledge.store.shard import read_shard, refuse_sharded
from loom_core.observability.metrics import process_metrics
from loom_core.paths import loom_home
from loom_core.storage.ownership import Holder, holder_of, lock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
    from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
    from loom_core.knowledge.interface import Channel, EntityEdge, Extractor, GraphStore, Reranker, Retriever
    from loom_core.knowledge.maintenance.archive import Manifest
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.owner.protocol import OwnerRequest
    from loom_core.knowledge.retrieval.config import SearchOptions, Strategy
    from loom_core.knowledge.store import DocumentReader, DuplicateReader, EntityReader, JobReader
    from loom_core.knowledge.store.shard import Shard
    from loom_core.llm.interface import LLMProvider
    from loom_core.observability.metrics import LoomMetrics
    from loom_core.observability.tracing import LoomTracer

__all__ = ["GraphRAGKnowledgeBase", "KnowledgeBase"]

_Found = TypeVar("_Found")
_MOST_NEAR = 400  # relations of an entity that are looked at


class GraphRAGKnowledgeBase(KnowledgeBaseMaintenance, KnowledgeBaseProvider):
    """A named, searchable set of documents, in a folder or in memory.

        kb = KnowledgeBase("notes")
        kb.add_sync("~/notes")
        print(kb.query_sync("Who approved the budget?")[0].content)

    Given only a name, it is in the folder of the loom-kb knowledge base of that name; both may have it open
    at the same time. Added documents become jobs of the store: lexical index and graph find them as soon as
    they are written, vectors follow. In a program, the methods that add wait for that; a server runs `work`
    in the background instead and uses `submit`.

    The methods whose names end in `_sync` are for scripts and notebooks: they need no `await`, and work where
    an event loop is running, too. They share an event loop in a separate thread, so do not call them while
    async methods of the same object are running.

    Any number of processes may have one folder open. One of them works for it, and answers the questions of
    the others, which then load neither model nor vectors; without it each searches by itself.

    It is also a `PassageSource`, so that retrievers can search its channels.

    Args:
        name: its name among other sources.
        embedder: makes vectors. `auto` is the one that made the stored vectors, or else the best installed;
            an embedder, or any choice of `create_embedder` such as `hashing`; `stored` is the one that made
            the stored vectors, or None. None searches by words and graph alone.
        llm: a language model that finds entities and relations, in addition to rules, or its configuration
            (see `create_model`); None uses rules alone. Retrievers that need a model take it, too.
        extractor: finds entities and relations, instead of rules and `llm`.
        reranker: reranks the best passages of every answer; None leaves their order.
        config: settings.
        description: of its content, in one sentence; stored.
        search_hints: what to search in it for; stored.
        path: another folder for it, created if absent.
        memory: whether to keep everything in memory instead.
        database: URL of a PostgreSQL database for its store, such as `postgresql://loom@db.example/loom`, so
            that several machines may use and change it; the folder then has this one's indexes alone. The
            password is in LOOM_DATABASE_SECRET, see `PostgresDatabase`.
        tracer: makes the spans of searches; None for the program's own OpenTelemetry provider.
        metrics: where searches are counted; None for the metrics of this process.
        peers: name of this process for the others that share the folder, and its socket and timeouts.

    Raises:
        InvalidInputError: no knowledge base can have this name; or it is split, see `ShardedKnowledgeBase`;
            or `memory` is given with a place.
        ConfigError: there is no such embedder or language model, or its vectors were made by another
            embedder than the one given.
        StoreError: the folder cannot be written, or its store cannot be opened.
    """

    def __init__(
        self,
        name: str,
        *,
        embedder: EmbeddingProvider | str | None = "auto",
        llm: LLMProvider | str | None = None,
        extractor: Extractor | None = None,
        reranker: Reranker | None = None,
        config: RAGConfig | None = None,
        description: str = "",
        search_hints: Sequence[str] = (),
        path: Path | str | None = None,
        memory: bool = False,
        database: str = "",
        tracer: LoomTracer | None = None,
        metrics: LoomMetrics | None = None,
        peers: PeerSettings | None = None,
    ) -> None:
        config = config or RAGConfig()
        place = _place(name, path, memory=memory, database=database)
        folder = None if place is None else place.folder
        if isinstance(llm, str):
            from loom_core.llm.factory import create_provider

            llm = create_provider(llm)
        extractor = _extractor(extractor, llm, config.extraction)
        store = KnowledgeStore(None) if place is None else open_store(place)
        try:
            refuse_sharded(name, store.get("shards"))
            provider = choose_embedder(store, embedder)
            known_as = name if database or (folder is not None and path is None) else ""
            save_metadata(store, provider, name=known_as, description=description, search_hints=search_hints)
            save_setting(store, VECTORS, config.vectors, on_disk=folder is not None)
            save_setting(store, LEXICAL, config.lexical, on_disk=folder is not None)
            save_setting(store, GRAPH, config.graph, on_disk=folder is not None)
        except LoomError:
            store.close()
            raise
        self._name = name
        self._llm = llm
        self._config = config
        current = CurrentEmbedder(store, provider) if provider is not None else None
        self._embedder = current
        rules = extractor.settings if type(extractor) is RuleExtractor else None
        pipeline = Pipeline.of(
            PipelineSpec(config.chunker, config.chunker_options, rules), extractor=extractor
        )
        lock = server = owner = None
        if folder is not None:
            peers = peers or PeerSettings()
            digest = settings_digest(
                config,
                embeds=provider is not None,
                extractor_id=extractor.id if extractor is not None else "",
                reranks=reranker is not None,
            )
            lock = lock_of(folder)
            server = OwnerServer(folder, settings=peers, digest=digest, answer=self._answer_peer)
            owner = OwnerClient(folder, settings=peers, digest=digest)
        self._owner = owner
        self._words = LexicalIndexes(store, folder)
        self._graph = GraphIndexes(store, folder)
        self._vectors = VectorIndexes(
            store,
            folder=folder,
            lock=lock,
        )
        self._links = LinkIndex(store, folder)
        worker = KnowledgeBaseWorker(
            store,
            ingest=IngestRunner(store, pipeline, self._words, extraction=config.extraction),
            words=self._words,
            graph=self._graph,
            vectors=self._vectors,
            links=self._links,
            embedder=current,
            lock=lock,
            server=server,
            owner=owner,
            waits=config.waits,
        )
        plan = ExtractionPlan(store, pipeline, config.extraction)
        super().__init__(store, worker, pipeline=pipeline, plan=plan, folder=folder, embedder=current)
        self._reader = QuestionPreparer(store, current, timeout=config.waits.embedder)
        self._topics = TopicIndex(store)
        context = SearchContext(
            store,
            words=self._words,
            vectors=self._vectors,
            links=self._links,
            topics=self._topics,
            reader=self._reader,
            worker=worker,
            owner=owner,
            metrics=metrics or process_metrics,
        )
        self._searcher = Searcher(name, context, config=config, reranker=reranker, tracer=tracer)
        self._channel_search = ChannelSearch(_channels(provider, config), context)
        self._methods = OwnerMethods(self._searcher, self._channel_search, embedder=current, worker=worker)

    @classmethod
    def from_config(
        cls,
        *,
        embedding_provider: EmbeddingProvider | Literal["stored"] | None = None,
        llm_provider: LLMProvider | None = None,
        extractor: Extractor | None = None,
        reranker: Reranker | None = None,
        config: RAGConfig | None = None,
        name: str = "default",
        description: str = "",
        search_hints: Sequence[str] = (),
        path: Path | None = None,
        database: str = "",
        tracer: LoomTracer | None = None,
        metrics: LoomMetrics | None = None,
        peers: PeerSettings | None = None,
    ) -> GraphRAGKnowledgeBase:
        """Open or create a knowledge base: the constructor with older names of its parameters.

        It is in memory without a `path` and a `database`, and has no vectors without an `embedding_provider`.

        Raises:
            LoomError: as for the constructor.
        """
        return cls(
            name,
            embedder=embedding_provider,
            llm=llm_provider,
            extractor=extractor,
            reranker=reranker,
            config=config,
            description=description,
            search_hints=search_hints,
            path=path,
            memory=path is None and not database,
            database=database,
            tracer=tracer,
            metrics=metrics,
            peers=peers,
        )

    # -- what it is --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def host(self) -> str:
        """Name of this machine, as `Job.host` has it, where several share the store; else empty."""
        return self.store.host

    @property
    def shard(self) -> Shard | None:
        """Which shard of another knowledge base it is; None if it is none. Blocks."""
        return read_shard(self.store)

    @property
    def description(self) -> str:
        """Description of its content."""
        return self.store.get("description")

    @property
    def search_hints(self) -> Sequence[str]:
        """Hints on what to search in it for."""
        return [hint for hint in self.store.get("search_hints").split("\n") if hint]

    @property
    def supported_filters(self) -> Sequence[str]:
        """Fields of every document, such as `path` and `language`, and every field that some have."""
        return self._reader.filter.names()

    @property
    def relevance_is_absolute(self) -> bool:
        """True: relevance is scaled by the confidence that the passages answer the question."""
        return True

    @property
    def strategy(self) -> Strategy:
        """Its default search strategy."""
        wanted = self._config.strategy
        if self._embedder is not None:
            return wanted if self._config.extraction.enabled else "vector_first"
        return "graph_only" if self._config.extraction.enabled else "bm25"

    @property
    def language_model(self) -> LLMProvider | None:
        """The language model that it was opened with, for retrievers that need one; None without."""
        return self._llm

    @property
    def embedding_config(self) -> dict[str, str]:
        """Configuration that recreates its embedder (`create_embedder`); empty before there is one."""
        return load_embedder_config(self.store)

    # -- asking ------------------------------------------------------------------------------------

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`."""
        return (await self.search(query, limit=limit, filters=filters)).items

    async def search(
        self,
        query: str,
        *,
        limit: int = 5,
        filters: dict[str, Any] | None = None,
        strategy: Strategy | None = None,
        options: SearchOptions | None = None,
    ) -> SearchAnswer:
        """Find passages, and say how they were found.

        Args:
            query: a question or keywords.
            limit: maximum number of passages, 1 to 100.
            filters: field to value, list of allowed values, or comparison; see docs/knowledge.md.
            strategy: a strategy other than the knowledge base's own.
            options: refinement of the results, if other than the knowledge base's settings.

        Raises:
            InvalidInputError: see `KnowledgeBaseProvider.query`; or the strategy is unknown, or reranking is
                requested without a reranker.
        """
        return await self._searcher.search(
            SearchRequest(
                query=query,
                limit=limit,
                filters=filters,
                strategy=strategy or self.strategy,
                options=options,
            )
        )

    def query_sync(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """`query` without `await`, for scripts and notebooks."""
        return self._run_blocking(self.query, query, limit=limit, filters=filters)

    def search_sync(
        self,
        query: str,
        *,
        limit: int = 5,
        filters: dict[str, Any] | None = None,
        strategy: Strategy | None = None,
        options: SearchOptions | None = None,
    ) -> SearchAnswer:
        """`search` without `await`, for scripts and notebooks."""
        return self._run_blocking(
            self.search, query, limit=limit, filters=filters, strategy=strategy, options=options
        )

    def topics(self) -> TopicMap:
        """Return its topics, which `overview` describes. Blocks, see `map_topics`."""
        return self._topics.current()

    async def overview(
        self, *, limit: int = 12, sentences: int = 2, filters: dict[str, Any] | None = None
    ) -> KnowledgeOverview:
        """Summarise its documents: topics with their terms, documents and representative sentences.

        No language model is needed. The first overview takes 2 s for 10,000 passages; later ones reuse the
        topics.

        Args:
            limit: maximum number of topics.
            sentences: how many for each topic.
            filters: as in `search`; only these documents are summarised.

        Raises:
            InvalidInputError: a filter is not supported, or malformed.
        """
        await import_numpy()
        among = await self._reader.filter_chunks(filters)
        topics = await to_thread.run_sync(self._topics.current)
        return await to_thread.run_sync(
            partial(summarise, self.store, topics, limit=limit, sentences=sentences, among=among)
        )

    def overview_sync(
        self, *, limit: int = 12, sentences: int = 2, filters: dict[str, Any] | None = None
    ) -> KnowledgeOverview:
        """`overview` without `await`, for scripts and notebooks."""
        return self._run_blocking(self.overview, limit=limit, sentences=sentences, filters=filters)

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """Return the passage with an id, or None."""
        return await to_thread.run_sync(self._item, knowledge_id)

    def ask_graph(
        self, ask: Callable[[GraphStore], _Found], *, around: Sequence[int], hops: int = 1
    ) -> _Found:
        """Query a graph that holds at least the neighbourhood of some entities. Blocks.

        The process that works for the knowledge base has Kùzu, and all have a graph database, if there is
        one. Where it is not whole or cannot be asked, the store is read.

        Args:
            ask: queries the graph; it may be called twice.
            around: keys of the entities.
            hops: how many hops from them `ask` follows.
        """
        return self._graph.ask(ask, around=around, hops=hops, owner=self.worker.is_owner)

    def associations(self) -> Associations:
        """Return the associations of entities: relations of the graph, and names together beyond chance."""

        def stated(entity: int) -> list[EntityEdge]:
            _, edges = self.ask_graph(
                lambda graph: graph.neighbours(entity, limit=_MOST_NEAR), around=[entity]
            )
            return [edge for edge in edges if entity in {edge.subject, edge.object}]

        return Associations(self.graph, passages=self.coverage()[1], stated=stated)

    def coverage(self) -> tuple[int, int]:
        """Return how many chunks have a vector, and how many there are. Blocks."""
        return self._vectors.coverage()

    @property
    def vectors(self) -> str:
        """Where its vectors are searched: a setting of `RAGConfig.vectors`. Blocks."""
        return self._vectors.server.setting

    @property
    def lexical(self) -> str:
        """Where its words are searched: a setting of `RAGConfig.lexical`. Blocks."""
        return self._words.server.setting

    @property
    def graph_setting(self) -> str:
        """Where its graph is: a setting of `RAGConfig.graph`. Blocks."""
        return self._graph.server.setting

    def graph_problem(self) -> str:
        """Ask the graph database, if there is one; return why it cannot be asked, or empty. Blocks."""
        return self._graph.find_problem()

    def move(self, *, vectors: str = "", lexical: str = "", graph: str = "") -> None:
        """Search vectors or words somewhere else from now on, or the graph; the worker moves them. Blocks.

        Questions are answered from where they are until all are there; of the graph, from the store.

        Args:
            vectors: see `RAGConfig.vectors`; empty leaves them where they are.
            lexical: see `RAGConfig.lexical`; empty leaves it where it is.
            graph: see `RAGConfig.graph`; empty leaves it where it is.

        Raises:
            ConfigError: there is no such place, or the knowledge base is in memory.
        """
        on_disk = self._folder is not None
        save_setting(self.store, VECTORS, vectors, on_disk=on_disk)
        save_setting(self.store, LEXICAL, lexical, on_disk=on_disk)
        save_setting(self.store, GRAPH, graph, on_disk=on_disk)

    def moving_progress(self) -> tuple[int, int]:
        """Return how far what moves to servers is there, in keys, and the end of that. Blocks."""
        moving = [index.server.progress() for index in (self._vectors, self._words, self._graph)]
        return sum(done for done, _ in moving), sum(end for _, end in moving)

    def leave_servers(self) -> None:
        """Delete its collections in servers, those that there are and that can be reached. Blocks.

        For the worker process, before the knowledge base itself is deleted.
        """
        for index in (self._vectors, self._words, self._graph):
            index.server.leave()

    def index_lag(self) -> dict[str, int]:
        """Return how many changes of the store each index has still to apply. Blocks."""
        return {
            index.name: index.lag()
            for index in (*self._words.maintained, *self._graph.maintained, *self._vectors.maintained)
        }

    # -- as a source of passages -------------------------------------------------------------------

    @property
    def channels(self) -> Sequence[Channel]:
        """Channels that `ask` accepts: `dense` with an embedder, `graph` with extraction."""
        return self._channel_search.channels

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages, or empty where there is none."""
        return self._embedder.id if self._embedder is not None else self.store.get("embedder")

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        """Return vectors of texts in the space of its passages, a row each; None without an embedder.

        Raises:
            EmbeddingError: see `EmbeddingProvider.embed`.
        """
        if self._embedder is None:
            return None
        if self._owner is not None and kind == "query" and texts and not self.worker.is_owner:
            vectors = await self._owner.embed(texts)
            if vectors is not None:
                return vectors
        await import_numpy()
        return await self._embedder.embed(texts, kind=kind)

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        """Search one channel, best first, `relevance` being its own score.

        `dense`: the cosine; nothing for a question in a language that the embedder does not cover, and no
        passages in a language whose vectors cannot be compared with the question's. `bm25`: the raw BM25
        score. `keyword`: the share of the question's identifiers and significant words that are among the
        passage's keywords. `graph`: how near the passage is to the entities that the question names, at
        most 1.

        Args:
            channel: one of `channels`.
            query: the question.
            limit: maximum number, 1 to 10,000.
            filters: as in `search`.
            vector: for `dense`, the query vector to use instead of the question's own; of any norm.

        Raises:
            InvalidInputError: as `search`; a channel it does not have, or a vector that does not fit.
            EmbeddingError: `dense` was asked, and the question cannot be embedded.
        """
        return await self._channel_search.ask(channel, query, limit=limit, filters=filters, vector=vector)

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """Its first passages, in the order they came, at most `limit` (1 to 10,000); `relevance` is 0."""
        return await self._channel_search.passages(limit=limit, filters=filters)

    def retriever(self, name: str = "knowledge_base", **params: object) -> Retriever:
        """Return a retriever over this knowledge base alone.

        Args:
            name: `knowledge_base` (its own strategies), or any other registered one: `dense`, `bm25`,
                `hybrid`, `fusion`, `hyde`, `multi_query`…
            params: the retriever's parameters.

        Raises:
            ConfigError: there is no such retriever, it takes other parameters, or it needs a language model
                and there is none.
        """
        return plugin_registry.create("retriever", name, [self], **params)

    # -- reading its content; all of this blocks ---------------------------------------------------

    @property
    def documents(self) -> DocumentReader:
        """Its documents and their passages."""
        return self.store.documents

    @property
    def duplicates(self) -> DuplicateReader:
        """Its duplicate and near-duplicate documents."""
        return self.store.duplicates

    @property
    def graph(self) -> EntityReader:
        """Its entities, where they are mentioned, and the relations between them."""
        return self.store.graph

    @property
    def jobs(self) -> JobReader:
        """Jobs to add documents or keep them in step, with their progress."""
        return self.store.jobs

    def export(self, path: Path, *, progress: Callable[[int, int], None] | None = None) -> Manifest:
        """Export all of it, as it is at one moment, to an archive; see `maintenance.archive`. Blocks."""
        from loom_core.knowledge.maintenance.archive import export

        return export(self.store, path, name=self.name, progress=progress)

    # -- working ------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Do pending work in the background until cancelled."""
        await self.worker.run()

    @property
    def aliases(self) -> EntityAliases:
        """Its entities with several names: which were merged and why; merge and split them."""
        return EntityAliases(self.store)

    def holder(self) -> Holder | None:
        """Return the process that holds its lock, this one or another; None if there is none. Blocks."""
        return None if self._folder is None else holder_of(self._folder)

    def close(self) -> None:
        """Release every file. Nothing is lost: unfinished work continues at the next opening."""
        self.worker.close()
        self._words.close()
        self._graph.close()
        self._vectors.close()
        self._links.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------

    async def _answer_peer(self, request: OwnerRequest) -> object:
        return await self._methods.answer(request)

    def _item(self, id_: str) -> KnowledgeItem | None:
        row = self.store.documents.chunk(id_)
        return None if row is None else item(row)


def _place(name: str, path: Path | str | None, *, memory: bool, database: str) -> StorePlace | None:
    """Return the place of a knowledge base; None in memory."""
    if memory:
        if path is not None or database:
            raise InvalidInputError(
                "A knowledge base is in memory, or in a folder or database, not in both.",
                advice="Give `memory` alone.",
            )
        return None
    if path is None:
        return place_in(loom_home(), name, database=database)
    return place_of(Path(path).expanduser(), name, database=database)


def _extractor(
    given: Extractor | None, llm: LLMProvider | None, config: ExtractionConfig
) -> Extractor | None:
    """Return the extractor of entities and relations; None if there is none."""
    if not config.enabled:
        return None
    if given is not None:
        return given
    if llm is not None:
        return LLMEntityExtractor(llm, config)
    return RuleExtractor(config.rule_settings())


def _channels(embedder: EmbeddingProvider | None, config: RAGConfig) -> list[Channel]:
    channels: list[Channel] = ["bm25", "keyword"]
    if embedder is not None:
        channels.insert(0, "dense")
    if config.extraction.enabled:
        channels.append("graph")
    return channels


KnowledgeBase = GraphRAGKnowledgeBase
"""Short public name of `GraphRAGKnowledgeBase`."""
