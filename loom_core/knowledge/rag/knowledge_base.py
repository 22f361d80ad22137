"""`GraphRAGKnowledgeBase`: documents in, cited passages out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from anyio import to_thread

from loom_core import plugins
from loom_core.errors import LoomError
from loom_core.knowledge.chunking import create_chunker
from loom_core.knowledge.extraction import RuleExtractor
from loom_core.knowledge.graph_reading import neighbourhood
from loom_core.knowledge.indexing import GraphIndex, WordIndex
from loom_core.knowledge.ingest import Ingest
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.pipeline import Pipeline
from loom_core.knowledge.rag.answer import Answer, item
from loom_core.knowledge.rag.channel_search import ChannelSearch
from loom_core.knowledge.rag.config import RAGConfig
from loom_core.knowledge.rag.intake import DocumentIntake
from loom_core.knowledge.rag.opening import make_folder, remember, remembered_config, stored_embedder
from loom_core.knowledge.rag.question import QuestionReader
from loom_core.knowledge.rag.searching import Searcher
from loom_core.knowledge.rag.vectors import Vectors
from loom_core.knowledge.rag.worker import Worker
from loom_core.knowledge.record import Record
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from opentelemetry.trace import Tracer

    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
    from loom_core.knowledge.interface import Channel, Extractor, GraphStore, Reranker, Retriever
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.config import Strategy
    from loom_core.knowledge.rag.options import SearchOptions

__all__ = ["GraphRAGKnowledgeBase"]


class GraphRAGKnowledgeBase(DocumentIntake, KnowledgeBaseProvider):
    """A named set of documents that can be asked, in a folder or in memory.

    Make one with `from_config`. Documents that are added become jobs of the record: they are
    searchable by words and graph as soon as they are written, vectors follow. In a program, the
    methods that add wait for that; a server runs `work` in the background instead and uses `submit_*`.

    Beside `KnowledgeBaseProvider` it is a `PassageSource`, so that retrievers may ask its channels.
    """

    def __init__(
        self,
        *,
        name: str,
        record: Record,
        folder: Path | None,
        embedder: EmbeddingProvider | None,
        extractor: Extractor | None,
        config: RAGConfig,
        reranker: Reranker | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        if embedder is not None:
            # Whole, before worker and questions begin: Chroma and NumPy imported by two threads at once
            # may find each other half made.
            import numpy as np

            np.float32(0)
        self._name = name
        self._config = config
        self._embedder = embedder
        self._embedder_id = embedder.id if embedder is not None else record.get("embedder")
        pipeline = Pipeline(
            create_chunker(config.chunker, **config.chunker_options),
            chunker_id=f"{config.chunker}{sorted(config.chunker_options.items())}",
            extractor=extractor,
        )
        lock = ProcessLock(folder / "lock") if folder is not None else None
        self._words = WordIndex(record, folder)
        self._graph = GraphIndex(record, folder)
        self._vectors = Vectors(
            record,
            folder=folder if embedder is not None else None,
            lock=lock,
            exact_up_to=config.exact_vectors_up_to,
        )
        worker = Worker(
            record,
            ingest=Ingest(record, pipeline, self._words),
            words=self._words,
            graph=self._graph,
            vectors=self._vectors.on_disk,
            embedder=embedder,
            lock=lock,
        )
        super().__init__(record, worker)
        self._reader = QuestionReader(record, embedder)
        self._searcher = Searcher(
            name,
            record=record,
            words=self._words,
            vectors=self._vectors,
            reader=self._reader,
            worker=worker,
            config=config,
            reranker=reranker,
            tracer=tracer,
        )
        self._channel_search = ChannelSearch(
            _channels(embedder, config),
            record=record,
            words=self._words,
            vectors=self._vectors,
            reader=self._reader,
            worker=worker,
        )

    @classmethod
    def from_config(
        cls,
        *,
        embedding_provider: EmbeddingProvider | Literal["stored"] | None = None,
        extractor: Extractor | None = None,
        reranker: Reranker | None = None,
        config: RAGConfig | None = None,
        name: str = "default",
        description: str = "",
        search_hints: Sequence[str] = (),
        path: Path | None = None,
        tracer: Tracer | None = None,
    ) -> GraphRAGKnowledgeBase:
        """Open a knowledge base, or make it.

        Args:
            embedding_provider: makes vectors. None answers by words and graph alone; "stored" is the one
                that made the vectors there are, or None where there are none.
            extractor: finds entities and relations; None uses rules.
            reranker: orders the best passages of every answer anew; None leaves them as they are.
            config: settings.
            name: its name among other sources.
            description: what is in it, in one sentence; remembered.
            search_hints: what to search in it for; remembered.
            path: its folder, made if absent; None keeps everything in memory.
            tracer: where the spans of searches go; None for the program's own OpenTelemetry provider.

        Raises:
            ConfigError: its vectors were made by another embedder than the one given.
            RecordError: the folder cannot be written, or its record not be opened.
        """
        config = config or RAGConfig()
        if path is not None:
            make_folder(path)
        record = Record(path / "record.db" if path is not None else None)
        try:
            embedder = stored_embedder(record) if embedding_provider == "stored" else embedding_provider
            remember(record, embedder, description, search_hints)
        except LoomError:
            record.close()
            raise
        if not config.extraction.enabled:
            extractor = None
        elif extractor is None:
            extractor = RuleExtractor(config.extraction)
        return cls(
            name=name,
            record=record,
            folder=path,
            embedder=embedder,
            extractor=extractor,
            config=config,
            reranker=reranker,
            tracer=tracer,
        )

    # -- what it is --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def description(self) -> str:
        """What is in it."""
        return self.record.get("description")

    @property
    def search_hints(self) -> Sequence[str]:
        """What to search in it for."""
        return [hint for hint in self.record.get("search_hints").split("\n") if hint]

    @property
    def supported_filters(self) -> Sequence[str]:
        """What every document has, such as `path` and `language`, and every field that some have."""
        return self._reader.filter.names()

    @property
    def strategy(self) -> Strategy:
        """How it is asked unless the question says otherwise."""
        wanted = self._config.strategy
        if self._embedder is not None:
            return wanted if self._config.extraction.enabled else "vector_first"
        return "graph_only" if self._config.extraction.enabled else "bm25"

    @property
    def embedding_config(self) -> dict[str, str]:
        """What makes the embedder of its vectors again (`create_embedder`); empty before there is one."""
        return remembered_config(self.record)

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
    ) -> Answer:
        """Find passages, and say how they were found.

        Args:
            query: a question or keywords.
            limit: how many passages at the most, 1 to 100.
            filters: field to value, list of allowed values, or comparison; see docs/knowledge.md.
            strategy: another than the knowledge base's own.
            options: how what is found is refined, where other than the knowledge base is set to.

        Raises:
            InvalidInputError: see `KnowledgeBaseProvider.query`; a strategy that is none, or reranking
                without a reranker.
        """
        return await self._searcher.search(
            query, limit=limit, filters=filters, strategy=strategy or self.strategy, options=options
        )

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """The passage with an id, or None."""
        return await to_thread.run_sync(self._item, knowledge_id)

    def graph_around(self, keys: Sequence[int], *, hops: int) -> GraphStore:
        """A graph that holds at least what is within some hops of entities. Blocks.

        The process that works for the knowledge base has Kùzu; any other reads the record.
        """
        store = self._graph.store() if self.worker.holds else None
        return store or neighbourhood(self.record.graph, keys, hops=hops)

    def coverage(self) -> tuple[int, int]:
        """How many chunks have a vector, and how many there are. Blocks."""
        return self._vectors.coverage()

    def index_lag(self) -> dict[str, int]:
        """How many changes of the record each index has still to take over. Blocks."""
        on_disk = self._vectors.on_disk
        return {index.name: index.lag() for index in (self._words, self._graph, on_disk) if index}

    # -- as a source of passages -------------------------------------------------------------------

    @property
    def channels(self) -> Sequence[Channel]:
        """What `ask` can be asked for: `dense` with an embedder, `graph` with extraction."""
        return self._channel_search.channels

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages, or empty where there is none."""
        return self._embedder_id

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        """Vectors of texts in the space of its passages, a row each; None without an embedder.

        Raises:
            EmbeddingError: see `EmbeddingProvider.embed`.
        """
        return None if self._embedder is None else await self._embedder.embed(texts, kind=kind)

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        """What one channel finds, best first, `relevance` being its own score.

        `dense`: the cosine; nothing for a question in a language that the embedder does not cover, and no
        passages in a language whose vectors cannot be compared with the question's. `bm25`: the raw BM25
        score. `keyword`: the share of the question's identifiers and significant words that are among the
        passage's keywords. `graph`: how near the passage is to the entities that the question names, at
        most 1.

        Args:
            channel: one of `channels`.
            query: the question.
            limit: how many at the most, 1 to 10,000.
            filters: as in `search`.
            vector: for `dense`, what to search by instead of the question's own vector; of any length.

        Raises:
            InvalidInputError: as `search`; a channel it does not have, or a vector that does not fit.
            EmbeddingError: `dense` was asked, and the question cannot be embedded.
        """
        return await self._channel_search.ask(channel, query, limit=limit, filters=filters, vector=vector)

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """Its first passages, in the order they came, at most `limit` (1 to 10,000); `relevance` is 0."""
        return await self._channel_search.passages(limit=limit, filters=filters)

    def retriever(self, name: str = "knowledge_base", **params: object) -> Retriever:
        """A retriever over this knowledge base alone.

        Args:
            name: `knowledge_base` (its own strategies), or any other registered one: `dense`, `bm25`,
                `hybrid`, `fusion`, `hyde`, `multi_query`…
            params: the retriever's parameters.

        Raises:
            ConfigError: there is no such retriever, or it takes other parameters.
        """
        return plugins.create("retriever", name, [self], **params)

    # -- working ------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Do all work that comes, in the background; cancel it to stop."""
        await self.worker.run()

    def close(self) -> None:
        """Release every file. Nothing is lost: what is not finished goes on at the next opening."""
        self.worker.release()
        self._words.close()
        self._graph.close()
        self.record.close()

    # -- inside ------------------------------------------------------------------------------------

    def _item(self, id_: str) -> KnowledgeItem | None:
        row = self.record.documents.chunk(id_)
        if row is None:
            return None
        document = self.record.documents.get(row.document_id)
        return None if document is None else item(row, document)


def _channels(embedder: EmbeddingProvider | None, config: RAGConfig) -> list[Channel]:
    channels: list[Channel] = ["bm25", "keyword"]
    if embedder is not None:
        channels.insert(0, "dense")
    if config.extraction.enabled:
        channels.append("graph")
    return channels
