"""Interface of embedding models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EmbeddingKind", "EmbeddingProvider", "ForwardingEmbedder"]

EmbeddingKind = Literal["passage", "query"]
"""Role of a text for the model: a passage, or a query."""


class EmbeddingProvider(ABC):
    """Embedding model: turns texts into vectors whose inner product is their semantic similarity.

    Creating an instance is cheap; weights are loaded at the first `embed`.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """Name of the exact vector space, such as `multilingual-e5-small/int8-1`.

        It is stored with the vectors, and vectors of different ids are never mixed: change it with every
        change of the numbers (weights, quantisation, prefixes, pooling).
        """

    @property
    def config(self) -> dict[str, str]:
        """Configuration that recreates this provider (`create_embedder`): `provider`, `model`, other options.

        It is stored with the vectors in plain text: it has no secret, only the name of the environment
        variable with the secret.
        """
        return {"provider": "local", "model": self.id}

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of every vector."""

    @property
    def languages(self) -> frozenset[str] | None:
        """ISO 639-1 codes the model covers, or None for a model that covers about every language.

        Retrieval skips this channel for texts and queries in any other language.
        """
        return None

    @property
    def cross_lingual(self) -> bool:
        """Whether texts of equal meaning in different languages are near each other.

        If not, a query is compared only with passages in its own language.
        """
        return True

    @property
    def cross_script_ceiling(self) -> float:
        """Highest cosine of a text in Latin script with one in another script.

        It is below 1 where a part of the vectors is for Latin script only.
        """
        return 1.0

    @property
    def semantic(self) -> bool:
        """Whether similar vectors mean similar meaning, and not only similar spelling."""
        return True

    async def prepare(self) -> None:  # noqa: B027 - most models need nothing
        """Determine `id` and `dimension`, if this needs a request to the model; most models do nothing here.

        Raises:
            EmbeddingError: the model does not respond.
        """

    @abstractmethod
    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: any number of texts of any length; the model splits texts that are too long into windows,
                or truncates them. An empty text is allowed.
            kind: see `EmbeddingKind`; models without the distinction ignore it.

        Returns:
            Array of shape (len(texts), dimension), float32, rows of length 1 (or all zero where the
            text has nothing to embed). A row depends on its own text only, never on its neighbours.

        Raises:
            EmbeddingError: the model cannot be loaded or does not respond.
        """


class ForwardingEmbedder(EmbeddingProvider):
    """An embedder that leaves everything to another one, for subclasses that change a part of that.

    Args:
        provider: the other one.
    """

    def __init__(self, provider: EmbeddingProvider) -> None:
        self._provider = provider

    @property
    def id(self) -> str:
        """See `EmbeddingProvider.id`."""
        return self._provider.id

    @property
    def config(self) -> dict[str, str]:
        """See `EmbeddingProvider.config`."""
        return self._provider.config

    @property
    def dimension(self) -> int:
        """See `EmbeddingProvider.dimension`."""
        return self._provider.dimension

    @property
    def languages(self) -> frozenset[str] | None:
        """See `EmbeddingProvider.languages`."""
        return self._provider.languages

    @property
    def cross_lingual(self) -> bool:
        """See `EmbeddingProvider.cross_lingual`."""
        return self._provider.cross_lingual

    @property
    def cross_script_ceiling(self) -> float:
        """See `EmbeddingProvider.cross_script_ceiling`."""
        return self._provider.cross_script_ceiling

    @property
    def semantic(self) -> bool:
        """See `EmbeddingProvider.semantic`."""
        return self._provider.semantic

    async def prepare(self) -> None:
        """See `EmbeddingProvider.prepare`."""
        await self._provider.prepare()

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        """See `EmbeddingProvider.embed`."""
        return await self._provider.embed(texts, kind=kind)
