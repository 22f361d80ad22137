"""The vectors of a knowledge base in memory, those of each language on their own."""

from __future__ import annotations

import threading
from collections import defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.memory_vectors import ExactVectorIndex

__all__ = ["LanguageVectors", "Neighbours"]


class Neighbours(NamedTuple):
    """The passages of one language that are most similar to a question.

    Attributes:
        language: see `language_group`.
        mean: cosine of the question with the average of all passages of that language.
        size: how many those are.
        hits: keys with their cosine, best first.
    """

    language: str
    mean: float
    size: int
    hits: list[tuple[int, float]]


class LanguageVectors:
    """Exact search by language.

    A multilingual model puts passages of one language near each other whatever they say, so that a
    question in Chinese is nearer to every Chinese passage than to the English one that answers it. What
    a passage is nearer than the average of its own language is comparable between languages. (Centring each
    language: Libovický et al., "On the Language Neutrality of Pre-trained Multilingual Representations",
    Findings of EMNLP 2020.)

    One thread writes at a time, any number search beside it.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._indexes: dict[str, ExactVectorIndex] = {}
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._language: dict[int, str] = {}
        self._lock = threading.Lock()

    def upsert(self, keys: Sequence[int], vectors: NDArray[np.float32], languages: Mapping[int, str]) -> None:
        """Store unit vectors, one row a key; an existing key is overwritten.

        Args:
            keys: whose they are; of a repeated one the last row stays.
            vectors: a row for each.
            languages: language group by key; keys that are not in it are left out.
        """
        from loom_core.knowledge.indexes.memory_vectors import ExactVectorIndex

        rows: defaultdict[str, list[int]] = defaultdict(list)
        for key, row in {key: row for row, key in enumerate(keys)}.items():
            if key in languages:
                rows[languages[key]].append(row)
        with self._lock:
            self._delete(keys)
            for language, chosen in rows.items():
                index = self._indexes.get(language) or ExactVectorIndex(self._dimension)
                index.upsert([keys[row] for row in chosen], vectors[chosen])
                self._add(language, vectors[chosen])
                # Readers keep the old one; to whoever sees the new one its sum is there.
                self._indexes = {**self._indexes, language: index}
                self._language.update((keys[row], language) for row in chosen)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        with self._lock:
            self._delete(keys)

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """The chunks most similar to a unit vector whatever their language, with cosine, best first."""
        found = [hit for index in self._indexes.values() for hit in index.search(vector, limit, among=among)]
        if len(self._indexes) == 1:
            return found
        return nsmallest(limit, found, key=lambda hit: (-hit[1], hit[0]))

    def by_language(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[Neighbours]:
        """The most similar chunks of each language, at most `limit` of each."""
        found: list[Neighbours] = []
        for language, index in self._indexes.items():
            hits = index.search(vector, limit, among=among)
            count = index.count()
            if hits and count:
                mean = float(vector @ self._sums[language]) / count
                found.append(Neighbours(language, mean, count, hits))
        return found

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Cosine of given chunks with a unit vector; those without a vector are left out."""
        found: dict[int, float] = {}
        for index in self._indexes.values():
            found |= index.scores(vector, keys)
        return found

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Vectors of given chunks, a row each; zeros where there is none."""
        import numpy as np

        found = np.zeros((len(keys), self._dimension), dtype=np.float32)
        for index in self._indexes.values():  # a key is in one of them at the most
            found += index.vectors(keys)
        return found

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Language group of chunks; those without a vector are left out."""
        return {key: self._language[key] for key in keys if key in self._language}

    def language_groups(self) -> frozenset[str]:
        """The languages that there are vectors of."""
        return frozenset(language for language, index in self._indexes.items() if index.count())

    def count(self) -> int:
        """How many vectors there are."""
        return len(self._language)

    def _delete(self, keys: Collection[int]) -> None:
        gone: defaultdict[str, list[int]] = defaultdict(list)
        for key in set(keys):
            language = self._language.pop(key, None)
            if language is not None:
                gone[language].append(key)
        for language, chosen in gone.items():
            index = self._indexes[language]
            self._add(language, -index.vectors(chosen))
            index.delete(chosen)

    def _add(self, language: str, vectors: NDArray[np.float32]) -> None:
        import numpy as np

        more = vectors.sum(axis=0, dtype=np.float64)
        old = self._sums.get(language)
        self._sums[language] = more if old is None else old + more
