"""Cache of question vectors, for several knowledge bases that are asked the same at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["QueryCache"]

_MOST = 64  # questions; those of one moment are enough


class QueryCache(EmbeddingProvider):
    """An embedder that embeds each of the last questions once, also if several ask at the same time.

    Args:
        provider: the embedder.
    """

    def __init__(self, provider: EmbeddingProvider) -> None:
        self._provider = provider
        self._turns: dict[str, anyio.Lock] = {}
        self._vectors: dict[str, NDArray[np.float32]] = {}

    @property
    def id(self) -> str:
        """Name of the exact vector space."""
        return self._provider.id

    @property
    def config(self) -> dict[str, str]:
        """Configuration that recreates the embedder."""
        return self._provider.config

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._provider.dimension

    @property
    def languages(self) -> frozenset[str] | None:
        """ISO 639-1 codes the model covers, or None for about every language."""
        return self._provider.languages

    @property
    def cross_lingual(self) -> bool:
        """Whether texts of equal meaning in different languages are near each other."""
        return self._provider.cross_lingual

    @property
    def semantic(self) -> bool:
        """Whether nearness of vectors means nearness in meaning."""
        return self._provider.semantic

    async def prepare(self) -> None:
        """See `EmbeddingProvider.prepare`."""
        await self._provider.prepare()

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts, see `EmbeddingProvider.embed`; one question may be from the cache."""
        if kind != "query" or len(texts) != 1:
            return await self._provider.embed(texts, kind=kind)
        text = texts[0]
        async with self._turns.setdefault(text, anyio.Lock()):
            vectors = self._vectors.get(text)
            if vectors is None:
                vectors = self._vectors[text] = await self._provider.embed(texts, kind=kind)
        while len(self._vectors) > _MOST:
            oldest = next(iter(self._vectors))
            del self._vectors[oldest]
            self._turns.pop(oldest, None)
        return vectors
