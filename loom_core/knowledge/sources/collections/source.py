"""A collection that others have filled as a source: for retrievers, for federations and for agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio import to_thread

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, IndexDamagedError, InvalidInputError, SourceError
from loom_core.keys import read_password, resolve
from loom_core.knowledge.retrieval.retrievers.passages import to_item, with_scores
from loom_core.knowledge.sources.collections.config import ENGINES, SearchBody
from loom_core.knowledge.sources.collections.port import LexicalCollection
from loom_core.knowledge.sources.collections.rows import RowReader, make_conditions, rank_by_cosine
from loom_core.knowledge.sources.named_source import NamedSource
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.text.languages import detect_language
from loom_core.knowledge.validation import check_limit, check_question
from loom_core.plugin_registry import create

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pydantic import SecretStr

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.knowledge.interface import Channel, PassageSource, Retriever
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.sources.collections.config import CollectionConfig, Engine
    from loom_core.knowledge.sources.collections.port import (
        Condition,
        ForeignCollection,
        Metric,
        Row,
        VectorSpace,
    )

__all__ = ["CollectionReport", "CollectionSource"]

_T = TypeVar("_T")

_SAMPLE = 50  # entries that are looked at for fields, and for the length of vectors
_MAX_LIMIT = 1000
_COMPARED = 1000  # entries; more take longer to fetch than is worth it


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """Facts about a collection.

    Attributes:
        passages: about how many entries it has.
        dimension: length of its vectors; 0 where that is not known.
        metric: how the engine compares them.
        filters: names of the filters.
    """

    passages: int
    dimension: int
    metric: Metric
    filters: list[str]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A collection that was looked up: its vectors, their usual length, and the path of each filter."""

    collection: ForeignCollection
    space: VectorSpace
    length: float
    paths: Mapping[str, tuple[str, ...]]

    def search(self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]) -> list[Row]:
        """Return the nearest entries with their cosine, best first. Blocks.

        Where an approximate index finds too few that fulfil the conditions, all that do are compared, if they
        are not many.
        """
        metric, length = self.space.metric, self.length
        scaled = vector if metric in {"cosine", "dot"} else vector * length
        rows = self.collection.search_vector(scaled, limit, conditions)
        rows = [replace(row, score=_cosine(row.score, metric, length)) for row in rows]
        if len(rows) < limit and conditions:
            allowed = self.collection.read(_COMPARED + 1, conditions, vectors=True)
            if len(rows) < len(allowed) <= _COMPARED:
                rows = rank_by_cosine(vector, allowed)[:limit]
        return rows


class CollectionSource(NamedSource):
    """A collection that others have filled as a `KnowledgeBaseProvider` and a `PassageSource`; read only.

    It is looked up at the first question: its vectors, and the fields of some entries. Retrievers ask it by
    the channel `dense`, and `bm25` if the engine searches by words; else, for `bm25`, they read passages and
    search these. Without an embedder, `query` searches by words.

    Args:
        engine: engine of the server.
        config: the collection.
        name: its name among other sources.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
        retriever: creates the retriever of `query`; by default `dense`, or `bm25` without an embedder.

    Attributes:
        engine: engine of the server.
        config: the collection.

    Raises:
        ConfigError: there is no such engine or embedder, the URL is none of the engine, or its client is not
            installed.
    """

    def __init__(
        self,
        engine: Engine,
        config: CollectionConfig,
        *,
        name: str,
        description: str = "",
        search_hints: Sequence[str] = (),
        retriever: Callable[[PassageSource], Awaitable[Retriever]] | None = None,
    ) -> None:
        super().__init__(name, description=description, search_hints=search_hints)
        self.engine: Engine = engine
        self.config = config
        self._embedder = create_embedder(config.embedding) if config.embedding else None
        self._reader = RowReader(config.fields, source=name)
        checked = _connect(engine, config, None)  # nothing is connected yet
        self._channels: tuple[Channel, ...] = (
            ("dense", "bm25") if isinstance(checked, LexicalCollection) else ("dense",)
        )
        self._make_retriever = retriever
        self._retriever: Retriever = create("retriever", "dense" if self._embedder else "bm25", [self])
        self._turn = anyio.Lock()
        self._collection: ForeignCollection | None = None
        self._opened: _Opened | None = None

    @property
    def supported_filters(self) -> Sequence[str]:
        """The configured filters; else, once it has been looked up, the fields that a sample has."""
        if self.config.filters:
            return tuple(self.config.filters)
        return tuple(self._opened.paths) if self._opened is not None else ()

    @property
    def channels(self) -> Collection[Channel]:
        """See `PassageSource.channels`."""
        return self._channels

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages; empty without an embedder, or if its dimension is not known."""
        try:
            return "" if self._embedder is None else self._embedder.id
        except ConfigError:
            return ""

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`.

        Raises:
            InvalidInputError: as there.
            ConfigError: the vectors have another dimension than those of the embedder.
            StoreUnavailableError: the server cannot be asked now.
            SourceError: there is no such collection, or no text in it.
            EmbeddingError: the question cannot be embedded.
        """
        check_question(query)
        check_limit(limit, most=_MAX_LIMIT)
        retriever = await self._make_retriever(self) if self._make_retriever is not None else self._retriever
        passages = await retriever.retrieve(query, top_k=limit, filters=filters)
        return [to_item(passage) for passage in passages]

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """See `KnowledgeBaseProvider.get_by_id`; errors as those of `query`."""
        collection = (await self._open()).collection
        if self.config.fields.id:
            by_id = make_conditions({"id": knowledge_id}, {"id": JsonPath.of(self.config.fields.id).steps})
            rows = await self._run(partial(collection.read, 1, by_id))
            return self._reader.item(rows[0]) if rows else None
        row = await self._run(partial(collection.get, knowledge_id))
        return None if row is None else self._reader.item(row)

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        """See `PassageSource.embed`."""
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
        """See `PassageSource.ask`; errors as those of `query`.

        `relevance` is the cosine for `dense`, and the engine's score for `bm25`.
        """
        if channel not in self.channels:
            raise InvalidInputError(
                f"{self._name!r} has no channel {channel!r}.", advice=f"Use {', '.join(self.channels)}."
            )
        opened = await self._open()
        conditions = make_conditions(filters, opened.paths)
        if channel == "bm25" and isinstance(opened.collection, LexicalCollection):
            rows = await self._run(partial(opened.collection.search_words, query, limit, conditions))
            return [with_scores(item, item.relevance, {"bm25": item.relevance}) for item in self._items(rows)]
        if vector is None:
            vector = await self._embed_question(query)
        if vector is None:
            return []
        if opened.space.dimension not in {0, len(vector)}:
            raise ConfigError(
                f"The vectors of {self._name!r} have {opened.space.dimension} numbers, and those of the "
                f"embedder {len(vector)}.",
                advice="Set `embedding` to the model that made the collection's vectors.",
            )
        rows = await self._run(partial(opened.search, vector, limit, conditions))
        items = self._items(rows)
        return [with_scores(item, item.relevance, {"vector": item.relevance}) for item in items]

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """See `PassageSource.passages`; errors as those of `query`."""
        opened = await self._open()
        conditions = make_conditions(filters, opened.paths)
        return self._items(await self._run(partial(opened.collection.read, limit, conditions)))

    async def describe(self) -> CollectionReport:
        """Look the collection up again, check that its vectors fit the embedder, and return facts about it.

        Raises:
            LoomError: as for `query`.
        """
        self._opened = None
        opened = await self._open()
        if self._embedder is not None:  # hybrid retrievers leave a channel out that fails
            await self.ask("dense", self.name, limit=1)
        count = await self._run(opened.collection.count)
        return CollectionReport(count, opened.space.dimension, opened.space.metric, [*opened.paths])

    async def start(self, seconds: float) -> None:
        """Import the engine's client, which may take a second."""
        await to_thread.run_sync(import_module, _CLIENTS[self.engine])

    def close(self) -> None:
        """Close connections; the next question opens new ones."""
        if self._collection is not None:
            self._collection.close()
            self._collection = self._opened = None

    async def _embed_question(self, query: str) -> NDArray[np.float32] | None:
        """Embed a question; None if its language is none of the model's."""
        if self._embedder is None:
            raise ConfigError(
                f"{self._name!r} names no model for questions.",
                advice="Set `embedding`, or `embedding_config`, to the model that made the vectors.",
            )
        languages = self._embedder.languages
        if languages is not None and detect_language(query) not in {*languages, "und"}:
            return None
        return (await self._embedder.embed([query], kind="query"))[0]

    async def _open(self) -> _Opened:
        async with self._turn:
            if self._opened is None:
                self._opened = await self._run(self._look_up)
            return self._opened

    def _look_up(self) -> _Opened:
        """Connect, if there is no connection, and look the collection up. Blocks."""
        config = self.config
        if self._collection is None:
            self._collection = _connect(self.engine, config, _find_secret(config.secret))
        space = self._collection.describe()
        is_measured = space.metric == "none" or (space.metric == "cosine" and space.dimension > 0)
        sample = self._collection.read(_SAMPLE, (), vectors=not is_measured)
        if sample and not self._items(sample):
            where = f"under {config.fields.text!r}" if config.fields.text else "under any of the usual names"
            names = ", ".join(self._reader.field_names(sample[0])[:30])
            raise SourceError(
                f"No passage of {config.collection!r} has a text {where}.",
                advice=f"Say where it is: `text` in the source's `fields`. There are: {names}.",
            )
        paths = {name: JsonPath.of(path).steps for name, path in config.filters.items()}
        vectors = [row.vector for row in sample if row.vector is not None]
        if vectors:
            space = replace(space, dimension=space.dimension or len(vectors[0]))
        paths = paths or self._reader.filter_paths(sample, space.filters)
        return _Opened(self._collection, space, _mean_length(vectors), paths)

    def _items(self, rows: Sequence[Row]) -> list[KnowledgeItem]:
        return [item for row in rows if (item := self._reader.item(row)) is not None]

    async def _run(self, act: Callable[[], _T]) -> _T:
        """Run a request in a thread; after an error, the collection is looked up again."""
        try:
            return await to_thread.run_sync(act, abandon_on_cancel=True)
        except IndexDamagedError as error:
            self._opened = None
            raise SourceError(
                error.message, advice="Check `collection` and `fields` of the source."
            ) from error


_CLIENTS: Mapping[Engine, str] = {
    "chroma": "chromadb",
    "elasticsearch": "httpx2",
    "milvus": "loom_core.knowledge.indexes.engines.milvus",
    "opensearch": "httpx2",
    "pgvector": "psycopg",
    "qdrant": "qdrant_client",
}


def _connect(engine: Engine, config: CollectionConfig, secret: SecretStr | None) -> ForeignCollection:
    """Return a collection, which is connected to at its first use."""
    if config.index_params and engine != "milvus":
        raise ConfigError("`index_params` are Milvus's alone.", advice="Leave them out.")
    if config.body != SearchBody() and engine not in {"elasticsearch", "opensearch"}:
        raise ConfigError("`body` is for Elasticsearch and OpenSearch.", advice="Leave it out.")
    if engine == "chroma":
        from loom_core.knowledge.sources.collections.chroma import ChromaCollection

        return ChromaCollection(config, secret)
    if engine == "qdrant":
        from loom_core.knowledge.sources.collections.qdrant import QdrantCollection

        return QdrantCollection(config, secret)
    if engine == "milvus":
        from loom_core.knowledge.sources.collections.milvus import MilvusCollection

        return MilvusCollection(config, secret)
    if engine == "pgvector":
        from loom_core.knowledge.sources.collections.pgvector import PgVectorCollection

        return PgVectorCollection(config, secret)
    if engine == "elasticsearch":
        from loom_core.knowledge.sources.collections.elasticsearch import ElasticsearchCollection

        return ElasticsearchCollection(config, secret)
    if engine == "opensearch":
        from loom_core.knowledge.sources.collections.elasticsearch import OpenSearchCollection

        return OpenSearchCollection(config, secret)
    raise ConfigError(f"There is no engine {engine!r}.", advice=f"Choose one of: {', '.join(ENGINES)}.")


def _find_secret(reference: str) -> SecretStr | None:
    """Return the secret of a reference, None for an empty one. Blocks; may read the keyring."""
    if not reference:
        return None
    place, _, name = reference.partition(":")
    return (read_password(name) if place == "env" else None) or resolve(reference)


def _mean_length(vectors: Sequence[Sequence[float]]) -> float:
    """Return the usual length of vectors, 1.0 where it is not known."""
    lengths = [sum(number * number for number in vector) ** 0.5 for vector in vectors]
    return sum(lengths) / len(lengths) or 1.0 if lengths else 1.0


def _cosine(score: float, metric: Metric, length: float) -> float:
    """Return the cosine of a score, as far as the stored vectors have the usual length."""
    match metric:
        case "cosine":
            return score
        case "dot":
            return score / length
        case "l2":
            return 1.0 - score / (2.0 * length * length)
        case _:
            return 1.0 / (1.0 + score)
