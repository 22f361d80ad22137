"""Cache of question vectors, for several knowledge bases that are asked the same at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider, ForwardingEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["QueryCache"]

_MOST = 64  # questions; those of one moment are enough


class QueryCache(ForwardingEmbedder):
    """An embedder that embeds each of the last questions once, also if several ask at the same time.

    Args:
        provider: the embedder.
    """

    def __init__(self, provider: EmbeddingProvider) -> None:
        super().__init__(provider)
        self._turns: dict[str, anyio.Lock] = {}
        self._vectors: dict[str, NDArray[np.float32]] = {}

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts, see `EmbeddingProvider.embed`; one question may be from the cache."""
        if kind != "query" or len(texts) != 1:
            return await self._provider.embed(texts, kind=kind)
        text = texts[0]
        try:
            async with self._turns.setdefault(text, anyio.Lock()):
                vectors = self._vectors.get(text)
                if vectors is None:
                    vectors = self._vectors[text] = await self._provider.embed(texts, kind=kind)
        finally:
            if text not in self._vectors:  # the embedder has failed
                self._turns.pop(text, None)
        while len(self._vectors) > _MOST:
            oldest = next(iter(self._vectors))
            del self._vectors[oldest]
            self._turns.pop(oldest, None)
        return vectors
