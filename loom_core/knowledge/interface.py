"""Interfaces of the knowledge layer: sources, retrieval, chunking, extraction, indexes. No I/O here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.knowledge.model import (
        Chunk,
        DocumentDraft,
        Extraction,
        KnowledgeItem,
        RetrievedPassage,
    )

__all__ = [
    "Channel",
    "Chunker",
    "EntityEdge",
    "EntityNode",
    "Extractor",
    "GraphStore",
    "KnowledgeBaseProvider",
    "LexicalIndex",
    "LexicalQuery",
    "LexicalSearch",
    "LexicalServerIndex",
    "PassageSource",
    "PassageVectors",
    "RemoteGraphStore",
    "Reranker",
    "Retriever",
    "VectorIndex",
    "VectorQuery",
]

Channel = Literal["dense", "bm25", "keyword", "graph"]
"""One way of finding passages: by vectors, by words, by identifiers and keywords, by entities."""


class KnowledgeBaseProvider(ABC):
    """A source of knowledge that can be searched. Everything else consumes this one interface.

    `UnifiedSearchToolBuilder` makes the search tool's description from the first four properties, so that a
    model knows when to search.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name, unique among the sources of one tool; any script (`产品文档` is fine)."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Description of its content, in one sentence."""

    @property
    def search_hints(self) -> Sequence[str]:
        """Topics or kinds of question it is good for."""
        return ()

    @property
    def supported_filters(self) -> Sequence[str]:
        """Names that `filters` may use."""
        return ()

    @property
    def relevance_is_absolute(self) -> bool:
        """Whether `relevance` is a probability that holds across answers, and not only within one."""
        return False

    async def start(self, seconds: float) -> None:  # noqa: B027 - most have nothing to do
        """Get ready for queries, if that takes time; does nothing by default.

        A caller of several sources calls it first: its time does not count as time of the answer.

        Args:
            seconds: how long to wait; the start continues in the background after that.

        Raises:
            SourceStartingError: it is not ready in that time.
            LoomError: it cannot be queried.
        """

    @abstractmethod
    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """Find the passages that answer a question, best first.

        Args:
            query: a question or keywords, in any language.
            limit: maximum number.
            filters: name to value (or list of allowed values); names as in `supported_filters`.

        Raises:
            InvalidInputError: an empty question, a limit below 1, or a filter it does not support.
        """

    @abstractmethod
    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """Return the item with this id, or None."""


class PassageSource(Protocol):
    """A store of passages as retrievers ask it: one channel at a time.

    Loom's own knowledge bases implement it; any other store with at least one channel can.
    """

    @property
    def name(self) -> str:
        """Its name among other sources."""
        ...

    @property
    def channels(self) -> Collection[Channel]:
        """Channels that `ask` accepts."""
        ...

    @property
    def embedder_id(self) -> str:
        """The vector space of its passages (`EmbeddingProvider.id`), or empty where there is none."""
        ...

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        """Return vectors of texts in the space of its passages, a row each; None where it has no embedder."""
        ...

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        """Search one channel, best first; `relevance` is the channel's own, raw score.

        Args:
            channel: one of `channels`.
            query: the question.
            limit: maximum number.
            filters: as in `KnowledgeBaseProvider.query`.
            vector: for `dense`, the vector to search by instead of the question's own.

        Raises:
            InvalidInputError: as `KnowledgeBaseProvider.query`, and for a channel it does not have.
        """
        ...

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        """Return its first passages, in the order they came, at most `limit`."""
        ...


class Retriever(Protocol):
    """Finds passages in one or more knowledge bases. Registered as `register("retriever", name)`."""

    async def retrieve(
        self,
        query: str,
        *,
        top_k: int | None = None,
        kb_ids: Sequence[str] | None = None,
        tenant_id: str | None = None,
        filters: dict[str, Any] | None = None,
    ) -> list[RetrievedPassage]:
        """Find passages, best first.

        Args:
            query: a question or keywords, in any language.
            top_k: maximum number; None takes the retriever's own default.
            kb_ids: names of the knowledge bases to look in; None for all the retriever has.
            tenant_id: only documents whose field `tenant_id` has this value.
            filters: as in `KnowledgeBaseProvider.query`.

        Raises:
            InvalidInputError: an empty question, a `top_k` below 1, or a filter that is not supported.
            NotFoundError: a knowledge base that the retriever does not have.
        """
        ...


class Reranker(Protocol):
    """Reorders passages by reading them. Registered as `register("reranker", name)`."""

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        """Return the best `limit` of some passages, best first, `relevance` set from 0 to 1.

        `metadata["scores"]` gains `rerank`, the reranker's own score. No passage is invented or changed.

        Raises:
            LoomError: it failed (no model, no answer in time); callers keep their order.
        """
        ...


class Chunker(Protocol):
    """Cuts a document into passages."""

    def chunk(self, document: DocumentDraft) -> list[Chunk]:
        """Return passages in order; `text` is `document.text[start:end]`, never only white space.

        `language` and `keywords` are left at their defaults: the pipeline fills them in.
        """
        ...


class Extractor(Protocol):
    """Finds entities, subjects and relations in a passage."""

    @property
    def id(self) -> str:
        """Name and version; a change makes the pipeline extract again."""
        ...

    async def extract(self, chunks: Sequence[Chunk]) -> list[Extraction]:
        """Return one extraction for each chunk, in order.

        Raises:
            LLMError: it cannot extract anything now; work on the job pauses, and continues there later.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PassageVectors:
    """Vectors of passages, with the fields that searches are restricted by; one entry for each passage.

    Attributes:
        keys: their keys in the store: positive integers below 2⁶³, each used once and never again.
        vectors: unit vectors, of shape (passages, dimension).
        languages: their language groups, short ASCII names such as `han` and `alphabetic`.
        documents: keys of their documents in the store.
    """

    keys: Sequence[int]
    vectors: NDArray[np.float32]
    languages: Sequence[str]
    documents: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A search for the passages that are nearest to a vector.

    Attributes:
        vector: a unit vector, of shape (dimension,).
        limit: maximum number of passages.
        language: only passages of this language group; empty for all.
        documents: only passages of documents with these keys; None for all.
    """

    vector: NDArray[np.float32]
    limit: int
    language: str = ""
    documents: Collection[int] | None = None


class VectorIndex(Protocol):
    """One collection of a vector database: nearest neighbours by cosine, derived from the store.

    Registered as `register("vector_index", engine)`. The factory is called as `factory(url, secret=…,
    collection=…, dimension=…)` and must not connect: a server may be away when a knowledge base is opened.
    `url` is the part of the setting after `engine+`, without a password; `secret` (a `SecretStr`) is the
    password or API key, or None. `collection` is a name of at most 60 ASCII letters, digits and underscores
    that begins with a letter.

    All methods block, and any thread may call them; one at a time writes. What `upsert` and `delete` did is
    seen by every later search. `loom_core.testing.VectorIndexContract` is what an implementation must pass.

    Raises:
        StoreUnavailableError: the server cannot be asked now: it is away, does not answer in time, refuses
            the credentials, is too old, or has no room. Nothing is rebuilt for that.
        IndexDamagedError: there is no such collection, its vectors have another dimension, or it is broken:
            it is built again.
    """

    def create(self) -> None:
        """Make the collection, empty; one that has its name is replaced."""
        ...

    def upsert(self, passages: PassageVectors) -> None:
        """Store any number of passages; those with an existing key are overwritten."""
        ...

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        ...

    def build(self) -> None:
        """Build what makes searches fast, at the end of a bulk load; `search` also works before."""
        ...

    def search(self, queries: Sequence[VectorQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their cosine for each query, best first.

        A restricted query has `limit` hits if so many passages fulfil its restrictions. All queries take one
        request if the engine allows that.
        """
        ...

    def vectors(self, keys: Collection[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors of keys; unknown ones are left out."""
        ...

    def keys(self) -> list[int]:
        """Return all keys, in any order."""
        ...

    def count(self) -> int:
        """Return how many passages are stored."""
        ...

    def drop(self) -> None:
        """Delete the collection, if there is one."""
        ...

    def close(self) -> None:
        """Close connections. The index is not used afterwards."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LexicalQuery:
    """A search for the passages that hold some tokens.

    Attributes:
        tokens: made by the same analyser as those of the passages; of a prefix, that alone.
        limit: maximum number of passages; None for all, but where any token is enough.
        match: `any` of the tokens, ranked by BM25, where a repeated one counts as often as it is repeated;
            `all` of them; or a token with a `prefix`. The latter two have no order, and the score 0.
        among: only passages with these keys; None for all.
        holding: of the tokens, those of which a passage must hold all; only where any token is enough.
        common: number of passages that hold these from which there are no hits; None for no bound. An
            engine may count those outside `among`, too.
    """

    tokens: Sequence[str]
    limit: int | None = None
    match: Literal["any", "all", "prefix"] = "any"
    among: Collection[int] | None = None
    holding: Sequence[str] = ()
    common: int | None = None


class LexicalSearch(Protocol):
    """The part of a lexical index that questions need. Both methods block, and any thread may call them.

    Raises:
        IndexDamagedError: there is no such index, or it is broken.
        StoreUnavailableError: the server cannot be asked now.
    """

    def search(self, queries: Sequence[LexicalQuery]) -> list[list[tuple[int, float]]]:
        """Return keys with their score (0 or more) for each query, best first; none for no tokens.

        A query has `limit` hits if so many passages fulfil it, and fewer than `common`. All queries take one
        request to a server.
        """
        ...

    def count(self) -> int:
        """Return how many keys are indexed, as of the last commit."""
        ...


class LexicalIndex(LexicalSearch, Protocol):
    """Lexical (full-text) index: BM25 ranking over token lists. Keys as in `PassageVectors`.

    All methods block, and any thread may call them; one at a time writes.

    Raises:
        InvalidInputError: a token to index is empty, holds ASCII white space, or is not UTF-8.
        IndexDamagedError: there is no such index, or it is broken: it is built again.
        StoreUnavailableError: see `LexicalServerIndex`.
    """

    def add(self, documents: Iterable[tuple[int, Sequence[str] | str]]) -> None:
        """Index token lists under their keys, visible after `commit`; an indexed key is replaced.

        A string is a token list joined by single spaces.
        """
        ...

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys, visible after `commit`; unknown ones are ignored."""
        ...

    def commit(self) -> None:
        """Make everything since the last commit durable and visible to searches."""
        ...

    def keys(self) -> list[int]:
        """Return the indexed keys as of the last commit, as often as they are indexed, in any order."""
        ...

    def close(self) -> None:
        """Release files and connections; additions that were not committed may be lost."""
        ...


class LexicalServerIndex(LexicalIndex, Protocol):
    """One index of a search server: a `LexicalIndex` that is derived from the store.

    Registered as `register("lexical_index", engine)`. The factory is called as `factory(url, secret=…,
    collection=…)` and must not connect: a server may be away when a knowledge base is opened. `url` and
    `secret` are as for a `VectorIndex`; `collection` is a name of at most 60 lower-case ASCII letters, digits
    and underscores that begins with a letter.

    What was not committed when a process ended, or when an error was raised, may become visible at any time:
    the same changes are made again then. Each key is indexed once. A search takes one request, and no request
    is made without need. `loom_core.testing.LexicalServerContract` is what an implementation must pass.

    Raises:
        StoreUnavailableError: the server cannot be asked now: it is away, does not answer in time, refuses
            the credentials, is too old, or has no room. Nothing is rebuilt for that.
        IndexDamagedError: there is no such index, its fields are others, or it is broken: it is built again.
    """

    def create(self) -> None:
        """Make the index, empty; one that has its name is replaced."""
        ...

    def drop(self) -> None:
        """Delete the index, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity as the graph shows it.

    Attributes:
        key: its key in the store.
        name: the name that is used most.
        type: the type that most mentions have.
        mentions: passages whose extractor recognised it, added over its names. Those that are only about it,
            or where its name was looked up, do not count.
    """

    key: int
    name: str
    type: str
    mentions: int


@dataclass(frozen=True, slots=True)
class EntityEdge:
    """A relation between two entities: keys, predicate, how many chunks support it, best confidence."""

    subject: int
    predicate: str
    object: int
    support: int
    confidence: float


class GraphStore(Protocol):
    """Entities and relations. Derived from the store; keys are the store's entity keys."""

    def upsert_entities(self, entities: Sequence[EntityNode]) -> None:
        """Store entities; an existing key is overwritten."""
        ...

    def upsert_relations(self, relations: Sequence[EntityEdge]) -> None:
        """Store relations (identity: subject, predicate, object); both ends must exist."""
        ...

    def delete_entities(self, keys: Collection[int]) -> None:
        """Forget entities with every relation that touches them; unknown ones are ignored."""
        ...

    def delete_relations(self, relations: Collection[tuple[int, str, int]]) -> None:
        """Forget relations by identity; unknown ones are ignored."""
        ...

    def get(self, keys: Collection[int]) -> list[EntityNode]:
        """Return the entities with these keys, unknown ones left out."""
        ...

    def neighbours(
        self, key: int, *, hops: int = 1, limit: int = 50
    ) -> tuple[list[EntityNode], list[EntityEdge]]:
        """Return entities within `hops` (1 to 3) of one, nearest and best supported first, with their edges.

        The edges are those among the entities and to the one asked for, which is not listed itself.
        A hub is cut at `limit` entities a hop, never followed whole.
        """
        ...

    def relations(self, first: int, last: int) -> list[EntityEdge]:
        """Return every relation whose subject's key is from `first` to `last`, in any order."""
        ...

    def touching(self, keys: Collection[int]) -> list[EntityEdge]:
        """Return every relation with an end among the keys, in any order."""
        ...

    def counts(self) -> tuple[int, int]:
        """Return how many entities and how many relations are stored."""
        ...

    def close(self) -> None:
        """Flush and release files. The store is not used afterwards."""
        ...


class RemoteGraphStore(GraphStore, Protocol):
    """One graph of a graph database, derived from the store.

    Registered as `register("graph_store", engine)`. The factory is called as `factory(url, secret=…,
    graph=…)` and must not connect: a server may be away when a knowledge base is opened. `url` is the address
    in the setting, without a password; `secret` (a `SecretStr`) is the password, or None. `graph` is a name
    of at most 60 ASCII letters, digits and underscores that begins with a letter.

    All methods block, and any thread may call them; one at a time writes. What a method wrote is seen by
    every later one. `loom_core.testing.RemoteGraphStoreContract` is what an implementation must pass.

    Raises:
        StoreUnavailableError: the server cannot be asked now: it is away, does not answer in time, refuses
            the credentials, is too old, or has no room. Nothing is rebuilt for that.
        IndexDamagedError: there is no such graph, or it is broken: it is built again.
    """

    def create(self) -> None:
        """Make the graph, empty; one that has its name is replaced."""
        ...

    def version(self) -> int:
        """Return a number that grows with every change, and is kept with the graph.

        So it shows that a server came back with an older state: one that is restarted from its last snapshot,
        or that takes the place of another, may have lost what it had acknowledged.
        """
        ...

    def drop(self) -> None:
        """Delete the graph, if there is one."""
        ...
