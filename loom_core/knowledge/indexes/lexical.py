"""The lexical (full-text) index: tantivy on disk, dictionaries in memory, or in a search engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.engines.servers import LEXICAL
from loom_core.knowledge.indexes.passage_tokens import PassageTokens, holds_passages
from loom_core.knowledge.indexes.remote import ServerChoice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom_core.knowledge.indexes.remote_lexical import RemoteLexicalIndex
    from loom_core.knowledge.interface import LexicalIndex, LexicalSearch
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges

__all__ = ["DerivedLexicalIndex", "LexicalIndexes"]

_BATCH = 2000
_CHANGES = 10_000  # changes per commit, which takes as long as indexing forty chunks

_COMPARED = 8  # passages whose words are compared with the store when an index is opened


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
        self._tokens = PassageTokens(store)
        self._local = DerivedLexicalIndex(store, folder, tokens=self._tokens)
        self.server = ServerChoice(
            store, folder, LEXICAL, name="remote_words", load=_load_remote, tokens=self._tokens
        )

    @property
    def maintained(self) -> list[DerivedIndex]:
        """The indexes that are kept in sync with the store. Blocks."""
        remote = self.server.find()
        local: list[DerivedIndex] = [self._local] if self._needs_local(remote) else []
        return local if remote is None else [*local, remote]

    def provide_tokens(self, tokens: Mapping[int, str]) -> None:
        """Provide the `index_tokens` of chunks of the next changes; see `PassageTokens.provide`."""
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


def _load_remote() -> type[RemoteLexicalIndex]:
    from loom_core.knowledge.indexes.remote_lexical import RemoteLexicalIndex

    return RemoteLexicalIndex


class DerivedLexicalIndex(DerivedIndex):
    """Lexical index of the chunks on this machine. Any process may search; see `DerivedIndex`."""

    name = "words"

    def __init__(
        self, store: KnowledgeStore, folder: Path | None, *, tokens: PassageTokens | None = None
    ) -> None:
        super().__init__(store, folder)
        self._tokens = tokens or PassageTokens(store)
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
        return holds_passages(index, self._tokens.of(keys))

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
