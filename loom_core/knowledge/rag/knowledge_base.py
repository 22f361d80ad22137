"""`GraphRAGKnowledgeBase`: documents in, cited passages out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import (
    ConfigError,
    EmbeddingError,
    IndexDamagedError,
    InvalidInputError,
    NotFoundError,
)
from loom_core.knowledge.chunking import create_chunker
from loom_core.knowledge.extraction import RuleExtractor
from loom_core.knowledge.graph_reading import neighbourhood
from loom_core.knowledge.indexing import (
    GraphIndex,
    VectorsInMemory,
    VectorsOnDisk,
    VectorsSearched,
    WordIndex,
)
from loom_core.knowledge.ingest import Ingest, draft_payload
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.pipeline import Pipeline, document_id
from loom_core.knowledge.rag.answer import Answer, item, items
from loom_core.knowledge.rag.channels import Channels, DenseSearch, Question
from loom_core.knowledge.rag.config import RAGConfig
from loom_core.knowledge.rag.drafts import text_drafts
from loom_core.knowledge.rag.opening import make_folder, remember
from loom_core.knowledge.rag.strategies import retrieve
from loom_core.knowledge.rag.worker import Worker
from loom_core.knowledge.record import Record
from loom_core.knowledge.text import detect_language
from loom_core.storage import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.interface import Extractor, GraphStore
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.config import Strategy
    from loom_core.knowledge.record import DocumentRow, Job

__all__ = ["GraphRAGKnowledgeBase"]

_MAX_QUESTION = 8000  # characters that are read of a question; more is somebody's document
_MAX_LIMIT = 100
_EMBED_SECONDS = 20.0


class GraphRAGKnowledgeBase(KnowledgeBaseProvider):
    """A named set of documents that can be asked, in a folder or in memory.

    Make one with `from_config`. Documents that are added become jobs of the record: they are
    searchable by words and graph as soon as they are written, vectors follow. In a program, the
    methods that add wait for that; a server runs `work` in the background instead and uses `submit_*`.
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
    ) -> None:
        self._name = name
        self._config = config
        self._embedder = embedder
        self.record = record
        pipeline = Pipeline(
            create_chunker(config.chunker, **config.chunker_options),
            chunker_id=f"{config.chunker}{sorted(config.chunker_options.items())}",
            extractor=extractor,
        )
        self._words = WordIndex(record, folder)
        self._graph = GraphIndex(record, folder)
        self._vectors = VectorsInMemory(record)
        on_disk = VectorsOnDisk(record, folder) if folder is not None and embedder is not None else None
        self._on_disk = on_disk
        self.worker = Worker(
            record,
            ingest=Ingest(record, pipeline, self._words),
            words=self._words,
            graph=self._graph,
            vectors=on_disk,
            embedder=embedder,
            lock=ProcessLock(folder / "lock") if folder is not None else None,
        )
        self._coverage_at = -1
        self._coverage = (0, 0)

    @classmethod
    def from_config(
        cls,
        *,
        embedding_provider: EmbeddingProvider | None = None,
        extractor: Extractor | None = None,
        config: RAGConfig | None = None,
        name: str = "default",
        description: str = "",
        search_hints: Sequence[str] = (),
        path: Path | None = None,
    ) -> GraphRAGKnowledgeBase:
        """Open a knowledge base, or make it.

        Args:
            embedding_provider: makes vectors. None answers by words and graph alone.
            extractor: finds entities and relations; None uses rules.
            config: settings.
            name: its name among other sources.
            description: what is in it, in one sentence; remembered.
            search_hints: what to search in it for; remembered.
            path: its folder, made if absent; None keeps everything in memory.

        Raises:
            ConfigError: its vectors were made by another embedder than the one given.
            RecordError: the folder cannot be written, or its record not be opened.
        """
        config = config or RAGConfig()
        if path is not None:
            make_folder(path)
        record = Record(path / "record.db" if path is not None else None)
        try:
            remember(record, embedding_provider, description, search_hints)
        except ConfigError:
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
            embedder=embedding_provider,
            extractor=extractor,
            config=config,
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
        """`path`, and every field that its documents have."""
        return ["path", *(name for name in self.record.documents.field_names() if name != "path")]

    @property
    def strategy(self) -> Strategy:
        """How it is asked unless the question says otherwise."""
        wanted = self._config.strategy
        if self._embedder is not None:
            return wanted if self._config.extraction.enabled else "vector_first"
        return "graph_only" if self._config.extraction.enabled else "bm25"

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
    ) -> Answer:
        """Find passages, and say how they were found.

        Args:
            query: a question or keywords.
            limit: how many passages at the most, 1 to 100.
            filters: field to value or list of allowed values.
            strategy: another than the knowledge base's own.

        Raises:
            InvalidInputError: see `KnowledgeBaseProvider.query`.
        """
        text = query.strip()[:_MAX_QUESTION]
        if not text:
            raise InvalidInputError("The question is empty.", advice="Ask in a few words or a sentence.")
        if not 1 <= limit <= _MAX_LIMIT:
            raise InvalidInputError(f"limit is {limit}.", advice=f"Use 1 to {_MAX_LIMIT}.")
        chosen = strategy or self.strategy
        allowed = await to_thread.run_sync(self._allowed, filters or {})
        started = time.perf_counter()
        vector, notes = None, list[str]()
        embedded, chunks = await to_thread.run_sync(self.coverage)
        if chosen not in {"bm25", "graph_only"} and embedded:
            vector, notes = await self._embed_question(text)
        embedded_at = time.perf_counter()
        question = Question.of(text, vector=vector, among=allowed)
        found, whole = await to_thread.run_sync(self._retrieve, question, limit, chosen)
        if not whole and chunks:
            if self.worker.runs:
                notes.append("the index of words is being rebuilt: ask again in a moment")
            else:
                await self.worker.drain()
                found, _ = await to_thread.run_sync(self._retrieve, question, limit, chosen)
        if self.worker.problem:
            notes.append(self.worker.problem)
        return Answer(
            items=found,
            strategy=chosen,
            embedded=embedded,
            chunks=chunks,
            notes=tuple(notes),
            embed_ms=1000 * (embedded_at - started),
            retrieve_ms=1000 * (time.perf_counter() - embedded_at),
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
        head = self.record.changes.head()
        if head != self._coverage_at:
            self._coverage, self._coverage_at = self.record.vectors.coverage(), head
        return self._coverage

    def index_lag(self) -> dict[str, int]:
        """How many changes of the record each index has still to take over. Blocks."""
        indexes = [self._words, self._graph, *([self._on_disk] if self._on_disk else [])]
        return {index.name: index.lag() for index in indexes}

    # -- adding and removing -----------------------------------------------------------------------

    async def add_texts(
        self,
        texts: Sequence[str],
        *,
        titles: Sequence[str] | None = None,
        metadatas: Sequence[dict[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        mime: str = "text/markdown",
    ) -> list[str]:
        """Add texts and wait until they are searchable by words, graph and vectors.

        Args:
            texts: Markdown or plain text, one document each.
            titles: a title for each, or an empty one where the text's own first heading is to serve.
            metadatas: fields for each, which filters may use.
            uris: an address for each; a text with a known address replaces the one that was there.
            mime: media type of all the texts.

        Returns:
            The documents' ids.
        """
        drafts = text_drafts(texts, titles=titles, metadatas=metadatas, uris=uris, mime=mime)
        await self.add_documents(drafts)
        return [document_id(draft.uri) for draft in drafts]

    async def add_documents(self, documents: Sequence[DocumentDraft]) -> Job:
        """Add documents and wait as `add_texts` does.

        Returns:
            The finished job; `report` of the record's jobs says what failed.
        """
        job = await to_thread.run_sync(self.submit_documents, documents)
        await self.worker.drain()
        return self.job(job)

    async def add_paths(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        progress: Callable[[], None] | None = None,
    ) -> Job:
        """Add files and folders and wait as `add_texts` does; see `submit_paths`.

        Args:
            paths: files and folders.
            include: patterns as in .gitignore; only what matches is taken, where given.
            exclude: patterns of what is left out.
            metadata: fields for all the documents.
            progress: called after every step of the work.
        """
        job = self.submit_paths(paths, include=include, exclude=exclude, metadata=metadata)
        await self.worker.drain(progress=progress)
        return self.job(job)

    def submit_documents(self, documents: Sequence[DocumentDraft]) -> str:
        """Write documents down to be added. Blocks; when it returns they are safe.

        Returns:
            Id of the job.
        """
        return self.record.jobs.submit(
            {"texts": len(documents)},
            [(draft.uri, draft_payload(draft)) for draft in documents],
            listed=True,
        )

    def submit_paths(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Write files and folders down to be added. Blocks, but reads none of them yet.

        Returns:
            Id of the job.
        """
        return self.record.jobs.submit(
            {
                "paths": [str(path.absolute()) for path in paths],
                "include": list(include),
                "exclude": list(exclude),
                "metadata": metadata or {},
            }
        )

    def job(self, id_: str) -> Job:
        """A job by its id. Blocks.

        Raises:
            NotFoundError: there is none with this id.
        """
        job = self.record.jobs.get(id_)
        if job is None:
            raise NotFoundError(f"There is no job {id_!r}.", advice="List the jobs to see their ids.")
        return job

    async def remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Remove documents by id or URI with everything that only they support, and wait for the indexes.

        Returns:
            The documents that were removed; ids that are not there are passed over.
        """
        removed = await to_thread.run_sync(self._remove, ids)
        if not self.worker.runs:
            await self.worker.drain()
        return removed

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

    def _retrieve(
        self, question: Question, limit: int, strategy: Strategy
    ) -> tuple[list[KnowledgeItem], bool]:
        """What is found, and whether there was an index of words to find it with."""
        dense = self._dense() if question.vector is not None else None
        words = self._words.searcher()
        channels, graph = Channels(words, dense), self.record.graph
        try:
            found = retrieve(
                question, limit, strategy=strategy, channels=channels, graph=graph, config=self._config
            )
        except IndexDamagedError as error:
            self._words.report_damage(error)
            return [], False
        return items(self.record, found), words is not None

    def _dense(self) -> DenseSearch:
        many = self.coverage()[0] > self._config.exact_vectors_up_to
        on_disk = self._on_disk
        # A question does not wait for an index that is behind.
        if many and on_disk is not None and self.worker.holds and not on_disk.lag():
            return VectorsSearched(on_disk, self.record)
        return self._vectors.current()

    def _item(self, id_: str) -> KnowledgeItem | None:
        row = self.record.documents.chunk(id_)
        if row is None:
            return None
        document = self.record.documents.get(row.document_id)
        return None if document is None else item(row, document)

    def _allowed(self, filters: dict[str, Any]) -> frozenset[int] | None:
        if not filters:
            return None
        known = self.supported_filters
        for name in filters:
            if name not in known:
                raise InvalidInputError(
                    f"There is no filter {name!r} in the knowledge base {self.name!r}.",
                    advice=f"Use: {', '.join(known)}.",
                )
        wanted = {
            name: [str(v) for v in value] if isinstance(value, list | tuple | set) else [str(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            for name, value in filters.items()
        }
        return frozenset(self.record.documents.chunk_keys_where(wanted))

    async def _embed_question(self, text: str) -> tuple[Any, list[str]]:
        embedder = self._embedder
        if embedder is None:
            return None, []
        language = detect_language(text)
        if embedder.languages is not None and language not in embedder.languages and language != "und":
            return None, [f"the embedder {embedder.id} does not cover {language!r}: words and graph only"]
        try:
            with anyio.fail_after(_EMBED_SECONDS):
                return (await embedder.embed([text], kind="query"))[0], []
        except TimeoutError:
            return None, [f"embedding the question took over {_EMBED_SECONDS:.0f} s: words and graph only"]
        except EmbeddingError as error:
            return None, [f"the question could not be embedded, words and graph only: {error}"]

    def _remove(self, ids: Sequence[str]) -> list[DocumentRow]:
        removed: list[DocumentRow] = []
        with self.record.database.write():
            for id_ in ids:
                document = self.record.documents.get(id_)
                if document is not None:
                    self.record.documents.remove(document.key)
                    removed.append(document)
        return removed
