"""The vectors: all of them in memory, and Chroma on disk."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexing.derived import DerivedIndex
from loom_core.knowledge.indexing.language_vectors import LanguageVectors, Neighbours
from loom_core.knowledge.text import language_group

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import VectorIndex
    from loom_core.knowledge.record import Record
    from loom_core.knowledge.record.changes import Pending

__all__ = ["VectorsInMemory", "VectorsOnDisk", "VectorsSearched"]

_BATCH = 2000
_SAMPLE = 2000  # vectors whose average stands for that of all


class VectorsInMemory:
    """Every vector of the record, held in memory and kept up to date; any process may have it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._index: LanguageVectors | None = None
        self._watermark = 0
        self._lock = threading.Lock()

    def current(self) -> LanguageVectors:
        """The vectors as the record has them now."""
        with self._lock:
            return self._followed()

    def _followed(self) -> LanguageVectors:
        changes, vectors = self._record.changes, self._record.vectors
        if self._index is None or not changes.reaches_back_to(self._watermark):
            self._watermark = changes.head()
            self._index = LanguageVectors(int(self._record.get("dimension") or 1))
            self._take(self._index, *vectors.all())
        while (pending := changes.since(self._watermark, limit=_BATCH)) is not None:
            self._take(self._index, *vectors.of(pending.keys["vector+"]))
            self._index.delete(pending.keys["chunk-"])
            self._watermark = pending.watermark
        return self._index

    def _take(self, index: LanguageVectors, keys: Sequence[int], matrix: NDArray[np.float32]) -> None:
        if keys:
            index.upsert(keys, matrix, _groups(self._record, keys))


class VectorsOnDisk(DerivedIndex):
    """Chroma's index of the vectors; only for the holder of the lock, see `DerivedIndex`."""

    name = "vectors"

    def __init__(self, record: Record, folder: Path) -> None:
        super().__init__(record, folder)
        self._index: VectorIndex | None = None
        self._means: dict[str, tuple[int, NDArray[np.float32]]] = {}

    def searcher(self) -> VectorIndex | None:
        """The index, up to date; None while there is no vector at all."""
        return self._current(self._open)

    def report_damage(self, error: IndexDamagedError) -> None:
        """Have the index built anew: some damage shows only when it is searched."""
        with self._lock:
            self._distrust(self._record.changes.state(self.name).generation, error)

    def means(self) -> dict[str, tuple[int, NDArray[np.float32]]]:
        """Size and average vector of each language group, from a sample made once for each build."""
        if not self._means:
            found, matrix = self._record.vectors.of(self._record.vectors.sample(_SAMPLE))
            groups = _groups(self._record, found)
            for group in set(groups.values()):
                rows = [row for row, key in enumerate(found) if groups.get(key) == group]
                self._means[group] = (len(rows), matrix[rows].mean(axis=0))
        return self._means

    def _build(self, generation: int) -> None:
        self._means = {}
        index = self._new(generation)
        after = 0
        while keys := self._record.documents.chunk_keys(after=after, limit=_BATCH):
            found, matrix = self._record.vectors.of(keys)
            if found:
                index.upsert(found, matrix)
            after = keys[-1]

    def _apply(self, pending: Pending, generation: int) -> None:
        keys, matrix = self._record.vectors.of(pending.keys["vector+"])
        if keys or pending.keys["chunk-"]:
            index = self._open(generation)
            if keys:
                index.upsert(keys, matrix)
            index.delete(pending.keys["chunk-"])

    def _is_open(self) -> bool:
        return self._index is not None

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            index.close()

    def _probe(self, path: Path) -> str | None:
        from loom_core.knowledge.indexes.probe import probe_chroma

        return probe_chroma(path, dimension=self._dimension())

    def _open(self, generation: int) -> VectorIndex:
        if self._index is None:
            self._check(generation)
            self._index = self._new(generation)
        return self._index

    def _new(self, generation: int) -> VectorIndex:
        from loom_core.knowledge.indexes.chroma import ChromaVectorIndex

        self._index = ChromaVectorIndex(self._path(generation), dimension=self._dimension())
        return self._index

    def _dimension(self) -> int:
        return int(self._record.get("dimension") or 0)


class VectorsSearched:
    """Neighbours from the index on disk, and vectors of given chunks from the record.

    What retrieval uses where there are too many vectors to hold them in memory.
    """

    def __init__(self, index: VectorsOnDisk, record: Record) -> None:
        self._index = index
        self._record = record

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """The chunks most similar to a unit vector, with cosine, best first; none if the index is damaged."""
        index = self._index.searcher()
        try:
            return [] if index is None else index.search(vector, limit, among=among)
        except IndexDamagedError as error:
            self._index.report_damage(error)
            return []

    def by_language(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[Neighbours]:
        """The most similar chunks, by their language; a language that has none among them is left out."""
        hits: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        found = self.search(vector, limit, among=among)
        groups = _groups(self._record, [key for key, _ in found])
        for key, cosine in found:
            if key in groups:
                hits[groups[key]].append((key, cosine))
        means = self._index.means()
        neighbours: list[Neighbours] = []
        for group, some in hits.items():
            count, mean = means.get(group, (0, vector))
            neighbours.append(Neighbours(group, float(vector @ mean) if count else 0.0, count, some))
        return neighbours

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Language group of chunks; those that are gone are left out."""
        return _groups(self._record, list(keys))

    def language_groups(self) -> frozenset[str]:
        """The languages that there are vectors of, except for any that are not among the sample."""
        return frozenset(self._index.means())

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Cosine of given chunks; those without a vector are left out."""
        found, matrix = self._record.vectors.of(list(keys))
        return dict(zip(found, (matrix @ vector).tolist(), strict=True)) if found else {}

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Vectors of given chunks, a row each; zeros where there is none."""
        import numpy as np

        found, matrix = self._record.vectors.of(keys)
        rows = dict(zip(found, matrix, strict=True))
        nothing = np.zeros(int(self._record.get("dimension") or 1), dtype=np.float32)
        return np.stack([rows.get(key, nothing) for key in keys])


def _groups(record: Record, keys: Sequence[int]) -> dict[int, str]:
    languages = record.documents.languages_of(keys)
    return {key: language_group(language) for key, language in languages.items()}
