"""The vectors: all of them in memory, and Chroma on disk."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexing.derived import DerivedIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.memory_vectors import ExactVectorIndex
    from loom_core.knowledge.interface import VectorIndex
    from loom_core.knowledge.record import Record
    from loom_core.knowledge.record.changes import Pending

__all__ = ["VectorsInMemory", "VectorsOnDisk", "VectorsSearched"]

_BATCH = 2000


class VectorsInMemory:
    """Every vector of the record, held in memory and kept up to date; any process may have it."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._index: ExactVectorIndex | None = None
        self._watermark = 0
        self._lock = threading.Lock()

    def current(self) -> ExactVectorIndex:
        """The vectors as the record has them now."""
        with self._lock:
            return self._followed()

    def _followed(self) -> ExactVectorIndex:
        from loom_core.knowledge.indexes.memory_vectors import ExactVectorIndex

        changes, vectors = self._record.changes, self._record.vectors
        if self._index is None or not changes.reaches_back_to(self._watermark):
            self._watermark = changes.head()
            keys, matrix = vectors.all()
            self._index = ExactVectorIndex(int(self._record.get("dimension") or 1))
            if keys:
                self._index.upsert(keys, matrix)
        while (pending := changes.since(self._watermark, limit=_BATCH)) is not None:
            keys, matrix = vectors.of(pending.keys["vector+"])
            if keys:
                self._index.upsert(keys, matrix)
            self._index.delete(pending.keys["chunk-"])
            self._watermark = pending.watermark
        return self._index


class VectorsOnDisk(DerivedIndex):
    """Chroma's index of the vectors; only for the holder of the lock, see `DerivedIndex`."""

    name = "vectors"

    def __init__(self, record: Record, folder: Path) -> None:
        super().__init__(record, folder)
        self._index: VectorIndex | None = None

    def searcher(self) -> VectorIndex | None:
        """The index, up to date; None while there is no vector at all."""
        return self._current(self._open)

    def report_damage(self, error: IndexDamagedError) -> None:
        """Have the index built anew: some damage shows only when it is searched."""
        with self._lock:
            self._distrust(self._record.changes.state(self.name).generation, error)

    def _build(self, generation: int) -> None:
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
