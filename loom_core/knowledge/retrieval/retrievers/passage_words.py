"""BM25 in memory over the passages of a source that has no index of words."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.engines.token_text import is_searchable
from loom_core.knowledge.retrieval.retrievers.passages import scored
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loom_core.knowledge.interface import PassageSource
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["PassageWords", "PassageWordsCache"]

_log = logging.getLogger(__name__)

_MAX_KEPT = 16  # indexes; one is some 15 MB at 5,000 passages


class PassageWords:
    """Some passages, indexed by words. Making one blocks: about 0.7 ms a passage of 400 characters."""

    def __init__(self, items: Sequence[KnowledgeItem]) -> None:
        self.items = items
        self._index = MemoryLexicalIndex()
        self._index.add((key, _tokens(item)) for key, item in enumerate(items, start=1))
        self._index.commit()

    def search(self, query: str, limit: int) -> list[KnowledgeItem]:
        """The passages that share words with a question, best first; `relevance` is raw BM25. Blocks."""
        hits = self._index.search(analyse(query), limit)
        return [scored(self.items[key - 1], score, {"bm25": score}) for key, score in hits]


class PassageWordsCache:
    """The index of each source and filters, made when it is asked for and kept for a while.

    Callers at the same time share one index: the first makes it and the others wait.

    Args:
        max_chunks: how many passages of a source are read at the most.
        ttl: for how many seconds an index is used before the passages are read again, and indexed again
            if they have changed.
        clock: seconds that never go backwards.

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

    async def of(self, source: PassageSource, filters: dict[str, Any] | None) -> PassageWords:
        """The index of the passages that the filters allow.

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
        self, source: PassageSource, filters: dict[str, Any] | None, *, known: PassageWords | None
    ) -> PassageWords:
        items = await source.passages(limit=self._max_chunks, filters=filters)
        if known is not None and known.items == items:
            return known  # reading is cheap beside indexing
        if len(items) >= self._max_chunks:
            _log.info("Only the first %d passages of %s are searched by words.", len(items), source.name)
        return await to_thread.run_sync(PassageWords, items)

    def _slot(self, name: str, filters: Mapping[str, Any]) -> _Slot:
        key = name, json.dumps(filters, sort_keys=True, default=repr)
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        while len(self._slots) > _MAX_KEPT:
            self._slots.popitem(last=False)
        return slot


class _Slot:
    """Place of one index."""

    def __init__(self) -> None:
        self.making = anyio.Lock()
        self.read_at = 0.0
        self.words: PassageWords | None = None


def _tokens(item: KnowledgeItem) -> list[str]:
    title, headings = item.metadata.get("title") or "", item.metadata.get("heading_path") or ()
    return [token for token in index_tokens(title, headings, item.content) if is_searchable(token)]
