"""What an embedder makes of a language as such: the average vector of sentences about anything."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import EmbeddingError
from loom_core.knowledge.rag.stock_sentences import STOCK_SENTENCES

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider

__all__ = ["LanguageCentroids"]

_log = logging.getLogger(__name__)


class LanguageCentroids:
    """The centroids of one embedder, made when they are first asked for and then kept.

    The average of a few passages says little about what is usual in their language; this does, whatever
    the passages are. Two questions that ask at the same moment may both make them: they are the same.

    Args:
        embedder: embeds the sentences.
        patience: seconds that embedding may take.
        retry_after: seconds for which nothing is tried once embedding has failed.
    """

    def __init__(
        self, embedder: EmbeddingProvider, *, patience: float = 10.0, retry_after: float = 60.0
    ) -> None:
        self._embedder = embedder
        self._patience = patience
        self._retry_after = retry_after
        self._not_before = 0.0
        self._made: dict[tuple[str, str], NDArray[np.float32]] = {}  # by embedder and language

    async def of(self, languages: Collection[str]) -> dict[str, NDArray[np.float32]]:
        """The average vector of the stock sentences of each language group.

        It is not brought to length 1, so that its product with a question is an average cosine.

        Args:
            languages: see `language_group`.

        Returns:
            One for every group; or none at all if embedding fails or takes too long, as that of
            one language tells nothing without that of the others.
        """
        id_ = self._embedder.id  # another one may take its place
        missing = [language for language in languages if (id_, language) not in self._made]
        if missing and time.monotonic() < self._not_before:
            return {}
        try:
            with anyio.fail_after(self._patience):
                for language in missing:
                    vectors = await self._embedder.embed(STOCK_SENTENCES[language])
                    self._made[id_, language] = vectors.mean(axis=0)
        except (EmbeddingError, TimeoutError) as error:
            self._not_before = time.monotonic() + self._retry_after
            _log.warning("What is usual in a language is not known for now: %s", str(error) or "too slow")
            return {}
        return {language: self._made[id_, language] for language in languages}
