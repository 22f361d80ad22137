"""The tokens of passages, as lexical indexes hold them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from loom_core.knowledge.indexes.engines.token_text import join_tokens
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.text.passage_text import index_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loom_core.knowledge.interface import LexicalSearch
    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["PassageTokens", "holds_passages"]

_MAX_PROVIDED = 20_000  # chunks, some 40 MB


class PassageTokens:
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


def holds_passages(index: LexicalSearch, passages: Iterable[tuple[int, str]]) -> bool:
    """Whether an index finds each passage by its tokens, which are joined by spaces."""
    chosen = [(key, tokens.split(" ")) for key, tokens in passages if tokens]
    found = index.search([LexicalQuery(tokens, match="all", among=[key]) for key, tokens in chosen])
    return all(found)
