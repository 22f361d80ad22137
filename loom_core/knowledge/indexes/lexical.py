"""The lexical (full-text) index: tantivy on disk, dictionaries in memory, or in a search engine.

A search engine of the team's own is given Loom's own tokens, so that Chinese, identifiers and ranking are as
with the index on this machine.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.engines.servers import LEXICAL, open_lexical_index
from loom_core.knowledge.indexes.engines.token_text import join_tokens
from loom_core.knowledge.indexes.remote import RemoteIndex, ServerChoice
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.knowledge.interface import LexicalIndex, LexicalSearch, LexicalServerIndex
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges


__all__ = ["DerivedLexicalIndex", "LexicalIndexes", "RemoteLexicalIndex", "RemoteLexicalSearch"]

_BATCH = 2000
_CHANGES = 10_000  # changes per commit, which takes as long as indexing forty chunks

# Passages whose words are compared with the store when an index is opened.
_COMPARED = 8
_COMPARED_REMOTE = 64


class LexicalIndexes:
    """The lexical index of a knowledge base: tantivy here, or one in a search engine, by its setting.

    The setting is in the store, so that all processes have the same; it may change at any time. An index in a
    search engine replaces the one here once it is built, and the other way round.

    Args:
        store: the store.
        folder: where the index goes; None keeps it in memory.

    Attributes:
        server: the index in the search engine that the setting names, if it names one.
    """

    def __init__(self, store: KnowledgeStore, folder: Path | None) -> None:
        self._store = store
        self._folder = folder
        self._tokens = _PassageTokens(store)
        self._local = DerivedLexicalIndex(store, folder, tokens=self._tokens)
        self.server = ServerChoice(
            store, folder, LEXICAL, name="remote_words", load=lambda: RemoteLexicalIndex, tokens=self._tokens
        )

    @property
    def maintained(self) -> list[DerivedIndex]:
        """The indexes that are kept in sync with the store. Blocks."""
        remote = self.server.find()
        local: list[DerivedIndex] = [self._local] if self._needs_local(remote) else []
        return local if remote is None else [*local, remote]

    def provide_tokens(self, tokens: Mapping[int, str]) -> None:
        """Provide the `index_tokens` of chunks of the next changes; see `_PassageTokens.provide`."""
        self._tokens.provide(tokens)

    def searcher(self) -> LexicalSearch | None:
        """Return the index as of the last sync, for searching; None before it is built. Blocks."""
        remote = self.server.find()
        if remote is not None and ((found := remote.searcher()) or not self._needs_local(remote)):
            return found
        return self._local.searcher()

    def explain_absence(self) -> str:
        """Return why `searcher` is None for longer than a moment; or empty. Blocks."""
        remote = self.server.find()
        if remote is None:
            return ""
        return remote.problem or f"The words are being written to {remote.setting}: ask again later."

    def complete(self) -> LexicalSearch:
        """Return the index once it holds all chunks; for the worker process. Blocks.

        Raises:
            IndexDamagedError: it does not open.
            StoreUnavailableError: it is in a search engine that cannot be asked.
        """
        self.sync_all()
        remote = self.server.find()
        if remote is not None and not self._needs_local(remote) and remote.lag() > 0:
            raise StoreUnavailableError(self.explain_absence(), advice="Ask again later.")
        found = self.searcher()
        if found is None:
            raise IndexDamagedError("The lexical index does not open.")
        return found

    def report_damage(self, error: IndexDamagedError) -> None:
        """Mark the index here as damaged: some damage shows only in use. A search engine's marks itself."""
        self._local.report_damage(error)

    def sync(self) -> bool:
        """Bring the index a step closer to the store; for the holder of the lock. Blocks.

        Returns:
            Whether there may be more to do.
        """
        remote = self.server.find()
        if self._needs_local(remote) and self._local.sync():
            return True
        if remote is None:
            self.server.leave()
            return False
        if self.server.sync():
            return True
        if not self._needs_local(remote):
            self._local.discard()
        return False

    def sync_all(self) -> None:
        """Apply all pending changes, but those that a search engine cannot take now. Blocks."""
        while self.sync():
            pass

    def files_have(self, head: int) -> bool:
        """Whether the index here has applied the changes up to `head`, or is not searched. Blocks."""
        return not self._needs_local(self.server.find()) or self._local.has(head)

    def lag(self) -> int:
        """Return how many changes the index that is furthest behind has still to apply. Blocks."""
        return max(index.lag() for index in self.maintained)

    def close(self) -> None:
        """Release files and connections; the next use opens them again."""
        self._local.close()
        self.server.close()

    def _needs_local(self, remote: RemoteLexicalIndex | None) -> bool:
        """Whether the index here is searched: there is no other, or it is not built yet."""
        state = self._store.changes.state
        return remote is None or (state("words").generation > 0 and not state("remote_words").built)


class DerivedLexicalIndex(DerivedIndex):
    """Lexical index of the chunks on this machine. Any process may search; see `DerivedIndex`."""

    name = "words"

    def __init__(
        self, store: KnowledgeStore, folder: Path | None, *, tokens: _PassageTokens | None = None
    ) -> None:
        super().__init__(store, folder)
        self._tokens = tokens or _PassageTokens(store)
        self._index: LexicalIndex | None = None
        self._generation = 0
        self._writable = False

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
            index.add(self._tokens.of(keys))
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
        index.add(self._tokens.of(pending.keys["chunk+"]))
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
        keys = self._spread_chunks(_COMPARED)
        return _holds_passages(index, self._tokens.of(keys))

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


class RemoteLexicalIndex(RemoteIndex["LexicalServerIndex"]):
    """The words of a knowledge base in a search engine; see `RemoteIndex`."""

    name = "remote_words"
    kind = LEXICAL
    noted_as = "words_collection"

    def __init__(
        self, store: KnowledgeStore, folder: Path, setting: str, *, tokens: _PassageTokens | None = None
    ) -> None:
        super().__init__(store, folder, setting)
        self._tokens = tokens or _PassageTokens(store)

    def searcher(self) -> RemoteLexicalSearch | None:
        """Return the index as of the last sync, for searching; None before it is built."""
        return RemoteLexicalSearch(self, self._store) if self.is_built else None

    def _finish(self, generation: int) -> None:
        self._index(generation).commit()

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        # Adding replaces a key, so applying the same changes twice is harmless.
        index = self._index(generation)
        index.delete(pending.keys["chunk-"])
        index.add(self._tokens.of(pending.keys["chunk+"]))
        index.commit()

    def _take(self, keys: Sequence[int], generation: int) -> None:
        self._index(generation).add(self._tokens.of(keys))

    def _is_consistent(self) -> bool:
        if self.ask(lambda index: index.count()) != self._store.vectors.coverage()[1]:
            return False
        passages = list(self._tokens.of(self._spread_chunks(_COMPARED_REMOTE)))
        return self.ask(lambda index: _holds_passages(index, passages))

    def _open(self, collection: str, secret: SecretStr | None) -> LexicalServerIndex:
        return open_lexical_index(self.setting, secret=secret, collection=collection)


class RemoteLexicalSearch:
    """`LexicalSearch` over an index of a search engine.

    Args:
        index: the index.
        store: the store.

    Raises:
        StoreUnavailableError: by its methods: the search engine cannot be asked.
    """

    def __init__(self, index: RemoteLexicalIndex, store: KnowledgeStore) -> None:
        self._index = index
        self._store = store

    def search(self, queries: Sequence[LexicalQuery]) -> list[list[tuple[int, float]]]:
        """Return the hits of each query, all by one request; see `LexicalSearch`."""
        try:
            return self._index.ask(lambda index: index.search(queries))
        except IndexDamagedError as error:
            self._index.report_damage(error)
            raise StoreUnavailableError(
                f"{error.message} It is written again from the store.", advice="Ask again in a moment."
            ) from error

    def count(self) -> int:
        """Return how many passages the store has: as many as the index holds, without asking it."""
        return self._store.vectors.coverage()[1]


_MAX_PROVIDED = 20_000  # chunks, some 40 MB


class _PassageTokens:
    """The tokens of passages, as the lexical index has them; those of new ones are kept for a while.

    Args:
        store: the store of the passages.
    """

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._provided: dict[int, str] = {}

    def provide(self, tokens: Mapping[int, str]) -> None:
        """Provide the `index_tokens` of chunks, joined by spaces: they need not be read and analysed again.

        A cache: the store decides which chunks are indexed.
        """
        with self._lock:
            if len(self._provided) > _MAX_PROVIDED:
                self._provided.clear()
            self._provided |= tokens

    def of(self, keys: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield the tokens of chunks, joined by spaces; deleted chunks are left out."""
        there = self._store.documents.existing(keys)
        with self._lock:
            provided = {key: tokens for key in there if (tokens := self._provided.pop(key, None)) is not None}
        yield from provided.items()
        missing = [key for key in there if key not in provided]
        for key, row in self._store.documents.chunks(missing).items():
            yield key, join_tokens(index_tokens(row.title, row.heading_path, row.text))


def _holds_passages(index: LexicalSearch, passages: Iterable[tuple[int, str]]) -> bool:
    """Whether an index finds each passage by its tokens, which are joined by spaces."""
    chosen = [(key, tokens.split(" ")) for key, tokens in passages if tokens]
    found = index.search([LexicalQuery(tokens, match="all", among=[key]) for key, tokens in chosen])
    return all(found)
