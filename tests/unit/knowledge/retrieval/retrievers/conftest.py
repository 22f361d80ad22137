"""Stores of passages that are not Loom's own: real indexes over a few passages in two languages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError, LoomError
from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.retrievers.passages import with_scores
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.passage_text import embedding_text, index_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
    from loom_core.knowledge.interface import Channel

HARBOURS = {
    "Lübeck": "Lübeck is a port on the Trave, known for marzipan and for its harbour festival.",
    "Visby": "Visby lies on the island of Gotland. Its wall is from the thirteenth century.",
    "厦门": "厦门是福建省的海滨城市，有鼓浪屿和一个大港口。",
    "泉州": "泉州曾是海上丝绸之路的起点，港口停满商船。",
    "Brno": "Brno is a city in Moravia with two rivers and no harbour.",
    "Retries": "Set `max_retries` in `HTTPClient` to 3 when the harbour gateway times out.",
}


class MemorySource:
    """A `PassageSource` over a few texts, with the channels it is told to have.

    `asked` and `listed` count what it was asked; `failure` is raised instead of any answer.
    """

    def __init__(
        self,
        name: str = "harbours",
        texts: Mapping[str, str] = HARBOURS,
        *,
        channels: Collection[Channel] = ("dense", "bm25", "keyword"),
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        embedder: str = "hashing",
    ) -> None:
        self._name = name
        self._channels = frozenset(channels)
        self._embedder: EmbeddingProvider = create_embedder(embedder)
        self._fields = fields or {}
        self._items = [self._item(title, text) for title, text in texts.items()]
        self._vectors: ExactVectorIndex | None = None
        self._words = MemoryLexicalIndex()
        self._words.add(
            (key, index_tokens(item.metadata["title"], (), item.content))
            for key, item in enumerate(self._items, start=1)
        )
        self._words.commit()
        self.asked: list[tuple[Channel, int]] = []
        self.listed = 0
        self.failure: LoomError | None = None

    def _item(self, title: str, text: str) -> KnowledgeItem:
        metadata = {"title": title, "document_id": f"d-{title}", **self._fields.get(title, {})}
        return KnowledgeItem(id=f"c-{title}", content=text, source=f"text:{title}", metadata=metadata)

    @property
    def name(self) -> str:
        return self._name

    @property
    def channels(self) -> Collection[Channel]:
        return self._channels

    @property
    def embedder_id(self) -> str:
        return self._embedder.id if "dense" in self._channels else ""

    async def embed(
        self, texts: Sequence[str], *, kind: EmbeddingKind = "query"
    ) -> NDArray[np.float32] | None:
        return await self._embedder.embed(texts, kind=kind) if "dense" in self._channels else None

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None = None,
        vector: NDArray[np.float32] | None = None,
    ) -> list[KnowledgeItem]:
        self.asked.append((channel, limit))
        if self.failure is not None:
            raise self.failure
        if channel not in self._channels:
            raise InvalidInputError(f"{self._name} has no channel {channel!r}.")
        among = self._among(filters)
        if channel == "dense":
            index = await self._index()
            if vector is None:
                vector = (await self._embedder.embed([query], kind="query"))[0]
            hits = index.search(vector, limit, among=among)
        elif channel == "bm25":
            [hits] = self._words.search([LexicalQuery(analyse(query), limit, among=among)])
        else:  # keyword: the share of the question's words that a passage has
            words = dict.fromkeys(analyse(query))
            found = {key: len(set(analyse(self._text(key))) & words.keys()) / len(words) for key in among}
            hits = sorted(((key, share) for key, share in found.items() if share), key=lambda hit: -hit[1])
        return [with_scores(self._items[key - 1], score, {}) for key, score in hits[:limit]]

    async def passages(self, *, limit: int, filters: dict[str, Any] | None = None) -> list[KnowledgeItem]:
        self.listed += 1
        if self.failure is not None:
            raise self.failure
        return [self._items[key - 1] for key in sorted(self._among(filters))][:limit]

    async def _index(self) -> ExactVectorIndex:
        if self._vectors is None:
            keys = range(1, len(self._items) + 1)
            vectors = await self._embedder.embed([self._text(key) for key in keys])
            self._vectors = ExactVectorIndex(self._embedder.dimension)
            self._vectors.upsert(keys, vectors)
        return self._vectors

    def _text(self, key: int) -> str:
        item = self._items[key - 1]
        return embedding_text(item.metadata["title"], (), item.content)

    def _among(self, filters: dict[str, Any] | None) -> set[int]:
        wanted = (filters or {}).items()
        return {
            key
            for key, item in enumerate(self._items, start=1)
            if all(item.metadata.get(name) == value for name, value in wanted)
        }


@pytest.fixture
def make_source() -> type[MemorySource]:
    return MemorySource


@pytest.fixture
def harbours() -> MemorySource:
    return MemorySource()
