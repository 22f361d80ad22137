"""The embedder of a knowledge base, whichever that is by now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store import Record

__all__ = ["CurrentEmbedder"]


class CurrentEmbedder(EmbeddingProvider):
    """Follows the record: when another embedder has taken over, it is that one from the next `follow` on.

    Args:
        record: says who made its vectors.
        provider: the one that did when it was opened.
    """

    def __init__(self, record: Record, provider: EmbeddingProvider) -> None:
        self._record = record
        self._provider = provider
        self._known = {provider.id: provider}

    @property
    def id(self) -> str:
        """Name of the exact vector space."""
        return self._provider.id

    @property
    def config(self) -> dict[str, str]:
        """What makes it again."""
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

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts, see `EmbeddingProvider.embed`."""
        return await self._provider.embed(texts, kind=kind)

    def made(self, id_: str, config: dict[str, str]) -> EmbeddingProvider:
        """An embedder by its id, made from its configuration unless it is known; blocks for a moment.

        Where that is impossible, it is one that says so when it is asked.
        """
        if id_ not in self._known:
            try:
                made = create_embedder(config)
            except ConfigError as error:
                made = _Unavailable(id_, str(error))
            self._known[id_] = made if made.id == id_ else _Unavailable(id_, f"{made.id} is another one.")
        return self._known[id_]

    def learn(self, provider: EmbeddingProvider) -> None:
        """Know an embedder that may take over, so that it need not be made from its configuration."""
        self._known[provider.id] = provider

    def follow(self) -> None:
        """Become the embedder that the record names, if that is another by now. Blocks for microseconds."""
        id_ = self._record.get("embedder")
        if id_ and id_ != self._provider.id:
            self._provider = self.made(id_, json.loads(self._record.get("embedding_config") or "{}"))


class _Unavailable(EmbeddingProvider):
    """Stands for an embedder that cannot be made here."""

    def __init__(self, id_: str, reason: str) -> None:
        self._id = id_
        self._reason = reason

    @property
    def id(self) -> str:
        return self._id

    @property
    def dimension(self) -> int:
        return 0

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        raise EmbeddingError(
            f"The embedder {self._id!r} of this knowledge base cannot be had here: {self._reason}",
            advice="Install it, or have another take its place: loom-kb rebuild --embedder NAME.",
        )
