"""The lexical (full-text) index: tantivy on disk, dictionaries in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.engines.token_text import join_tokens
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from loom_core.knowledge.interface import LexicalIndex
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges

__all__ = ["DerivedLexicalIndex"]

_BATCH = 2000
_MAX_PROVIDED = 20_000  # chunks, some 40 MB
_CHANGES = 10_000  # changes per commit, which takes as long as indexing forty chunks

_COMPARED = 8  # passages whose words are compared with the store when an index is opened


class DerivedLexicalIndex(DerivedIndex):
    """Lexical index of the chunks. Any process may search; see `DerivedIndex`."""

    name = "words"

    def __init__(self, store: KnowledgeStore, folder: Path | None) -> None:
        super().__init__(store, folder)
        self._index: LexicalIndex | None = None
        self._generation = 0
        self._writable = False
        self._offered: dict[int, str] = {}

    def provide_tokens(self, tokens: Mapping[int, str]) -> None:
        """Provide the `index_tokens` of chunks of the next changes, joined by spaces.

        A cache: these chunks need not be read and analysed again. The store decides which chunks are indexed.
        """
        with self._lock:
            if len(self._offered) > _MAX_PROVIDED:
                self._offered.clear()
            self._offered |= tokens

    def sync(self, *, limit: int = _CHANGES) -> bool:
        """Apply up to `limit` changes of the store; see `DerivedIndex.sync`."""
        return super().sync(limit=limit)

    def searcher(self) -> LexicalIndex | None:
        """Return the index as it is now, for searching; None before it is built, and while it is damaged."""
        with self._lock:
            state = self._store.changes.state(self.name)
            if not state.built:
                return None
            try:
                if self._index is None or state.generation != self._generation:
                    self._open(state.generation, writable=False)
                elif not self._writable:
                    self._refresh()
            except IndexDamagedError as error:
                self._mark_damaged(state.generation, error)
                return None
            return self._index

    def report_damage(self, error: IndexDamagedError) -> None:
        """Mark the index that was searched last as damaged: some damage shows only in use."""
        with self._lock:
            self._mark_damaged(self._generation, error)

    def _build(self, generation: int) -> None:
        index = self._open(generation, writable=True)
        after = 0
        while keys := self._store.documents.chunk_keys(after=after, limit=_BATCH):
            index.add(self._tokens(keys))
            after = keys[-1]
        index.commit()

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        if self._index is None or not self._writable or generation != self._generation:
            self._check(generation)
            self._open(generation, writable=True)
        index = self._index
        if index is None:
            raise AssertionError("opened above")
        # Adding replaces a key, so applying the same changes twice is harmless.
        index.delete(pending.keys["chunk-"])
        index.add(self._tokens(pending.keys["chunk+"]))
        index.commit()

    def _check(self, generation: int) -> None:
        # Without this file the engine would create an empty index; it reports other damage itself.
        if self._folder is not None and not (self._path(generation) / "meta.json").is_file():
            raise IndexDamagedError(f"There is no index of words at {self._path(generation)}.")

    def _open_if_wanted(self, generation: int) -> None:
        if self._index is None:  # every question uses it
            self._open(generation, writable=False)

    def _is_consistent(self) -> bool:
        self._refresh()  # it may be open for reading since before another process wrote to it
        index, documents = self._index, self._store.documents
        if index is None or index.count() != documents.counts()[1]:
            return False
        last = documents.last_chunk()
        places = sorted({last * n // _COMPARED for n in range(_COMPARED)})
        keys = [key for place in places for key in documents.chunk_keys(after=place, limit=1)]
        return all(
            not tokens or key in index.containing(tokens.split(" ")) for key, tokens in self._tokens(keys)
        )

    def _is_open(self) -> bool:
        return self._index is not None

    def _close(self) -> None:
        if self._folder is None:
            return
        index, self._index = self._index, None
        self._writable = False
        if index is not None:
            index.close()

    def _open(self, generation: int, *, writable: bool) -> LexicalIndex:
        self._close()
        self._generation = generation
        if self._folder is None:
            from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex

            self._index = MemoryLexicalIndex()
        else:
            from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex

            self._index = TantivyIndex(self._path(generation), read_only=not writable)
        self._writable = writable or self._folder is None
        return self._index

    def _refresh(self) -> None:
        from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex

        if isinstance(self._index, TantivyIndex):
            self._index.reload()

    def _tokens(self, keys: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield the tokens of chunks, joined by spaces; deleted chunks are left out."""
        there = self._store.documents.existing(keys)
        offered = {key: tokens for key in there if (tokens := self._offered.pop(key, None)) is not None}
        yield from offered.items()
        missing = [key for key in there if key not in offered]
        for key, row in self._store.documents.chunks(missing).items():
            yield key, join_tokens(index_tokens(row.title, row.heading_path, row.text))
