"""Search one source by one channel, with the scores that fusion needs."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.engines.token_text import is_searchable
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.retrieval.fusion import min_max
from loom_core.knowledge.retrieval.retrievers.passages import with_scores
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.languages import detect_language
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import Channel, PassageSource
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.retrieval.retrievers.base import RetrievalRequest

__all__ = [
    "DenseChannel",
    "LexicalChannel",
    "PassageLexicalIndex",
    "PassageLexicalIndexCache",
    "ask_channel",
    "merge_channel_items",
]


async def ask_channel(
    channel: Channel,
    source: PassageSource,
    request: RetrievalRequest,
    *,
    limit: int,
    vector: NDArray[np.float32] | None = None,
) -> list[KnowledgeItem]:
    """Search one channel of a source; the channel's score is kept in `metadata["scores"]`."""
    items = await source.ask(channel, request.text, limit=limit, filters=request.filters, vector=vector)
    return [with_scores(item, item.relevance, {channel: item.relevance}) for item in items]


def merge_channel_items(
    found: Iterable[Sequence[KnowledgeItem]], scores: Mapping[str, float]
) -> list[KnowledgeItem]:
    """Return the hits of several channels of one source, each passage once, in no order.

    Args:
        found: what each channel found.
        scores: the fused score by id of the passage.
    """
    items: dict[str, KnowledgeItem] = {}
    for item in chain.from_iterable(found):
        others: dict[str, float] = items[item.id].metadata["scores"] if item.id in items else {}
        items[item.id] = with_scores(item, scores[item.id], others)
    return list(items.values())


class DenseChannel:
    """The dense channel; a given model may embed the question instead of the source.

    Args:
        sources: the sources to search.
        embedding_config: the model, see `create_embedder`; None lets each source embed the question.

    Raises:
        ConfigError: there is no such model, or the vectors of a source were made by another.
    """

    def __init__(
        self, sources: Sequence[PassageSource], embedding_config: Mapping[str, str] | str | None = None
    ) -> None:
        self._embedder = None if embedding_config is None else create_embedder(embedding_config)
        for source in sources:
            made_by = source.embedder_id if "dense" in source.channels else ""
            if self._embedder is not None and made_by and made_by != self._embedder.id:
                raise ConfigError(
                    f"`embedding_config` makes vectors of {self._embedder.id}, but the passages' vectors"
                    f" of {source.name!r} were made by {made_by}.",
                    advice="Name the model that made them, or leave `embedding_config` out.",
                )

    async def ask(
        self, source: PassageSource, request: RetrievalRequest, *, limit: int
    ) -> list[KnowledgeItem]:
        """Return the passages nearest to the question; `relevance` is the cosine.

        Empty for a question in a language that the given model does not cover.
        """
        if self._embedder is None:
            return await ask_channel("dense", source, request, limit=limit)
        languages = self._embedder.languages
        if languages is not None and detect_language(request.text) not in {*languages, "und"}:
            return []
        vectors = await self._embedder.embed([request.text], kind="query")
        return await ask_channel("dense", source, request, limit=limit, vector=vectors[0])


class LexicalChannel:
    """The BM25 channel, whether or not the source has a lexical index.

    The passages of a source without one are read and indexed in memory.

    Args:
        max_chunks: maximum number of passages to read from such a source.
        cache_ttl: for how many seconds that index is reused.
        clock: monotonic clock, in seconds.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(
        self,
        *,
        max_chunks: int = 5000,
        cache_ttl: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words = PassageLexicalIndexCache(max_chunks=max_chunks, ttl=cache_ttl, clock=clock)

    async def ask(
        self, source: PassageSource, request: RetrievalRequest, *, limit: int
    ) -> list[KnowledgeItem]:
        """Return the passages that share words with the question; `relevance` is BM25 by `min_max`."""
        if "bm25" in source.channels:
            items = await ask_channel("bm25", source, request, limit=limit)
        else:
            words = await self._words.of(source, request.filters)
            items = await to_thread.run_sync(words.search, request.text, limit)
        stretched = min_max({item.id: item.relevance for item in items})
        return [replace(item, relevance=stretched[item.id]) for item in items]


_log = logging.getLogger(__name__)

_MAX_KEPT = 16  # indexes; one is some 15 MB at 5,000 passages


class PassageLexicalIndex:
    """In-memory lexical index of some passages. Building one blocks: about 0.7 ms per 400 characters."""

    def __init__(self, items: Sequence[KnowledgeItem]) -> None:
        self.items = items
        self._index = MemoryLexicalIndex()
        self._index.add((key, _tokens(item)) for key, item in enumerate(items, start=1))
        self._index.commit()

    def search(self, query: str, limit: int) -> list[KnowledgeItem]:
        """Return the passages that share words with a question, best first, by raw BM25. Blocks."""
        [hits] = self._index.search([LexicalQuery(analyse(query), limit)])
        return [with_scores(self.items[key - 1], score, {"bm25": score}) for key, score in hits]


class PassageLexicalIndexCache:
    """Cache of the lexical index of each source and filters, built on demand.

    Concurrent callers share one index: the first builds it and the others wait.

    Args:
        max_chunks: maximum number of passages to read from a source.
        ttl: for how many seconds an index is used before the passages are read again, and indexed again
            if they have changed.
        clock: monotonic clock, in seconds.

    Raises:
        ConfigError: `max_chunks` is below 1, or `ttl` below 0.
    """

    def __init__(self, *, max_chunks: int, ttl: float, clock: Callable[[], float]) -> None:
        if max_chunks < 1:
            raise ConfigError(f"max_chunks is {max_chunks}.", advice="Use 1 or more.")
        if not ttl >= 0:
            raise ConfigError(f"cache_ttl is {ttl}.", advice="Use 0 or more seconds.")
        self._max_chunks = max_chunks
        self._ttl = ttl
        self._clock = clock
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()

    async def of(self, source: PassageSource, filters: dict[str, Any] | None) -> PassageLexicalIndex:
        """Return the index of the passages that the filters allow.

        Raises:
            LoomError: the source cannot list its passages.
        """
        slot = self._slot(source.name, filters or {})
        async with slot.making:
            now = self._clock()
            if slot.words is None or now - slot.read_at >= self._ttl:
                slot.words = await self._read(source, filters, known=slot.words)
                slot.read_at = now
            return slot.words

    async def _read(
        self, source: PassageSource, filters: dict[str, Any] | None, *, known: PassageLexicalIndex | None
    ) -> PassageLexicalIndex:
        items = await source.passages(limit=self._max_chunks, filters=filters)
        if known is not None and known.items == items:
            return known  # reading is cheap compared to indexing
        if len(items) >= self._max_chunks:
            _log.info("Only the first %d passages of %s are searched by words.", len(items), source.name)
        return await to_thread.run_sync(PassageLexicalIndex, items)

    def _slot(self, name: str, filters: Mapping[str, Any]) -> _Slot:
        key = name, json.dumps(filters, sort_keys=True, default=repr)
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        while len(self._slots) > _MAX_KEPT:
            self._slots.popitem(last=False)
        return slot


class _Slot:
    """Cache entry of one index, with the lock under which it is built."""

    def __init__(self) -> None:
        self.making = anyio.Lock()
        self.read_at = 0.0
        self.words: PassageLexicalIndex | None = None


def _tokens(item: KnowledgeItem) -> list[str]:
    title, headings = item.metadata.get("title") or "", item.metadata.get("heading_path") or ()
    return [token for token in index_tokens(title, headings, item.content) if is_searchable(token)]
