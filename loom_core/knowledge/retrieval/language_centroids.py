"""Language centroids: the average vector of sentences about anything, for each language of the passages."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.store import Record

__all__ = ["LanguageCentroids", "covered_groups"]


class LanguageCentroids:
    """The centroids of a knowledge base's embedder: the worker makes them, the record keeps them.

    The average of a few passages says little about what is usual in their language; this does, whatever the
    passages are. A question only reads them, and does without until they are made: there are up to eighty
    stock sentences, and while passages are being embedded they wait among those for ten seconds and more.

    Args:
        record: keeps them.
        embedder: embeds passages and questions.
    """

    def __init__(self, record: Record, embedder: EmbeddingProvider) -> None:
        self._record = record
        self._embedder = embedder

    def of(self, languages: frozenset[str], *, space: str) -> dict[str, NDArray[np.float32]]:
        """The average vector of the stock sentences of each language that is compared. Blocks.

        It is not normalised to length 1, so that its product with a question is an average cosine.

        Args:
            languages: the language groups of the passages.
            space: id of the embedder of the question.

        Returns:
            Those that are made; none for an embedder whose cosines do not tell nearness in meaning.
        """
        compared = self._compared(languages)
        made = self._made(space) if compared else {}
        return {language: _decode(made[language]) for language in compared & made.keys()}

    def missing(self, languages: frozenset[str]) -> str:
        """The next language that a centroid is to be made for; empty if there is none. Blocks."""
        compared = self._compared(languages)
        return min(compared - self._made(self._embedder.id).keys(), default="") if compared else ""

    def store(self, language: str, vectors: NDArray[np.float32], *, space: str) -> None:
        """Store a centroid. Those of another embedder are dropped.

        Args:
            language: whose.
            vectors: of its stock sentences.
            space: id of the embedder that made them.
        """
        with self._record.database.write():
            made = self._made(space) | {language: _encode(vectors.mean(axis=0))}
            self._record.set("centroids", json.dumps({"embedder": space, "vectors": made}))

    def _compared(self, languages: frozenset[str]) -> frozenset[str]:
        """The languages whose passages questions are compared with by meaning."""
        if not self._embedder.semantic:
            return frozenset()
        groups = covered_groups(self._embedder)
        return languages if groups is None else languages & groups

    def _made(self, space: str) -> dict[str, str]:
        """The encoded centroids of an embedder by language."""
        kept = json.loads(self._record.get("centroids") or "{}")
        return kept["vectors"] if kept.get("embedder") == space else {}


def covered_groups(embedder: EmbeddingProvider) -> frozenset[str] | None:
    """The language groups that an embedder covers; None for all."""
    return None if embedder.languages is None else frozenset(map(language_group, embedder.languages))


def _encode(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _decode(text: str) -> NDArray[np.float32]:
    import numpy as np

    return np.frombuffer(base64.b64decode(text), dtype="<f4")
