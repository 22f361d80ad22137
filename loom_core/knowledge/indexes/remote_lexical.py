"""The lexical index in a search engine of the team's own: Elasticsearch, OpenSearch, or another one.

It is given Loom's own tokens, so that Chinese, identifiers and ranking are as with the index on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, StoreUnavailableError
from loom_core.knowledge.indexes.engines.servers import LEXICAL, open_lexical_index
from loom_core.knowledge.indexes.passage_tokens import PassageTokens, holds_passages
from loom_core.knowledge.indexes.remote import RemoteIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.knowledge.interface import LexicalQuery, LexicalServerIndex
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import PendingChanges

__all__ = ["RemoteLexicalIndex", "RemoteLexicalSearch"]

_COMPARED = 64  # passages whose words are compared with the store when an index is opened


class RemoteLexicalIndex(RemoteIndex["LexicalServerIndex"]):
    """The words of a knowledge base in a search engine; see `RemoteIndex`."""

    name = "remote_words"
    kind = LEXICAL
    noted_as = "words_collection"

    def __init__(
        self, store: KnowledgeStore, folder: Path, setting: str, *, tokens: PassageTokens | None = None
    ) -> None:
        super().__init__(store, folder, setting)
        self._tokens = tokens or PassageTokens(store)

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
        passages = list(self._tokens.of(self._spread_chunks(_COMPARED)))
        return self.ask(lambda index: holds_passages(index, passages))

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
