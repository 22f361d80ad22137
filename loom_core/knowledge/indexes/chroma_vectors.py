"""Chroma's index of the vectors, and searching with it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.flat_vectors import groups_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex
    from loom_core.knowledge.indexes.language_vectors import LanguageVectors, Neighbours
    from loom_core.knowledge.store import Record
    from loom_core.knowledge.store.changes import Pending

__all__ = ["ChromaVectors", "NearestByChroma", "differing"]

_BATCH = 1000  # about a second's work
_COMPARED = 64  # vectors that are compared with the record when an index is opened
_SAME = 1e-3  # what Chroma gives back may be rounded


@dataclass(slots=True)
class _Growing:
    """An index that is being built: its number, what it will hold, and the last chunk it holds by now."""

    generation: int
    watermark: int
    after: int


class ChromaVectors(DerivedIndex):
    """Chroma on disk, a collection for each language; for the holder of the lock. See `DerivedIndex`.

    It is built in pieces, since building it takes about a second for a thousand vectors. A build that ends
    with its process begins anew.
    """

    name = "chroma"

    def __init__(self, record: Record, folder: Path) -> None:
        super().__init__(record, folder)
        self._indexes: dict[str, ChromaVectorIndex] | None = None
        self._growing: _Growing | None = None

    def searcher(self) -> Mapping[str, ChromaVectorIndex] | None:
        """The index of each language, if it is open and up to date; else None, and `sync` sees to that."""
        return self._current(self._open)

    def sync(self, *, limit: int = _BATCH) -> bool:
        """Take over up to `limit` changes of the record, or build on; see `DerivedIndex.sync`."""
        return super().sync(limit=limit)

    def discard(self) -> None:
        """Remove the index, as it is no longer wanted."""
        with self._lock:
            generation = self._record.changes.state(self.name).generation
            if generation or self._growing is not None:
                self._close()
                self._record.changes.forget(self.name)
                self._remove(generation)
                self._remove(generation + 1)

    def _replace(self, error: IndexDamagedError) -> None:
        self._distrust(self._record.changes.state(self.name).generation, error)  # the next step begins anew

    def _rebuild(self) -> None:
        changes = self._record.changes
        old = changes.state(self.name).generation
        if self._growing is None:
            self._close()
            self._remove(old + 1)  # what a build that was cut short may have left
            self._growing = _Growing(old + 1, changes.head(), 0)
        growing = self._growing
        if self._grow(growing):
            return
        changes.restart(self.name, generation=growing.generation, watermark=growing.watermark)
        self._probed = self._compared = growing.generation
        self._growing = None
        self._remove(old)

    def _grow(self, growing: _Growing) -> bool:
        """Add the next chunks; False once there are no more."""
        keys = self._record.documents.chunk_keys(after=growing.after, limit=_BATCH)
        self._take(keys, growing.generation)
        growing.after = keys[-1] if keys else growing.after
        return bool(keys)

    def _build(self, generation: int) -> None:
        growing = _Growing(generation, 0, 0)
        while self._grow(growing):
            pass

    def _apply(self, pending: Pending, generation: int) -> None:
        indexes = self._open(generation)
        self._take(pending.keys["vector+"], generation)
        if gone := pending.keys["chunk-"]:
            for index in indexes.values():
                index.delete(gone)

    def _take(self, keys: Sequence[int], generation: int) -> None:
        from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex

        found, matrix = self._record.vectors.of(keys)
        rows: defaultdict[str, list[int]] = defaultdict(list)
        groups = groups_of(self._record, found)
        for row, key in enumerate(found):
            if key in groups:
                rows[groups[key]].append(row)
        indexes = self._indexes if self._indexes is not None else {}
        self._indexes = indexes
        for group, chosen in rows.items():
            index = indexes.get(group)
            if index is None:
                path, dimension = self._path(generation), matrix.shape[1]
                indexes[group] = index = ChromaVectorIndex(path, dimension=dimension, group=group)
            index.upsert([found[row] for row in chosen], matrix[chosen])

    def _agrees(self) -> bool:
        vectors, groups = self._record.vectors, self._open(self._record.changes.state(self.name).generation)
        if sum(index.count() for index in groups.values()) != vectors.coverage()[0]:
            return False
        last = self._record.documents.last_chunk()
        places = sorted({last * n // _COMPARED for n in range(_COMPARED)})
        chosen = [key for place in places for key in self._record.documents.chunk_keys(after=place, limit=1)]
        return not differing(vectors.of(chosen), groups.values())

    def _is_open(self) -> bool:
        return self._indexes is not None

    def _close(self) -> None:
        indexes, self._indexes, self._growing = self._indexes, None, None
        for index in (indexes or {}).values():
            index.close()

    def _probe(self, path: Path) -> str | None:
        from loom_core.knowledge.indexes.engines.probe import probe_chroma

        return probe_chroma(path, dimension=self._dimension())

    def _open(self, generation: int) -> dict[str, ChromaVectorIndex]:
        if self._indexes is None:
            from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex, groups_in

            self._check(generation)
            path, dimension = self._path(generation), self._dimension()
            self._indexes = {
                group: ChromaVectorIndex(path, dimension=dimension, group=group) for group in groups_in(path)
            }
        return self._indexes

    def _dimension(self) -> int:
        return int(self._record.get("dimension") or 0)


def differing(
    expected: tuple[Sequence[int], NDArray[np.float32]], indexes: Collection[ChromaVectorIndex]
) -> list[int]:
    """The keys under which indexes hold another vector than they should, or none.

    Args:
        expected: keys, and a row for each, see `VectorTable.of`.
        indexes: each key should be in one of them.
    """
    import numpy as np

    stored: dict[int, NDArray[np.float64]] = {}
    for index in indexes:
        stored |= index.vectors(expected[0])
    return [
        key
        for key, vector in zip(*expected, strict=True)
        if key not in stored or not np.allclose(stored[key], vector, atol=_SAME)
    ]


class NearestByChroma:
    """Finds neighbours by Chroma, and compares exactly what it finds, and whatever filters leave.

    Args:
        flat: all vectors.
        indexes: Chroma's index of each language.
        index: what these belong to, which is told of damage.
    """

    def __init__(
        self, flat: LanguageVectors, indexes: Mapping[str, ChromaVectorIndex], index: ChromaVectors
    ) -> None:
        self._flat = flat
        self._indexes = indexes
        self._index = index

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """The chunks most similar to a unit vector whatever their language, with cosine, best first."""
        found = [hit for group in self.by_language(vector, limit, among=among) for hit in group.hits]
        return nsmallest(limit, found, key=lambda hit: (-hit[1], hit[0]))

    def by_language(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[Neighbours]:
        """The most similar chunks of each language, at most `limit` of each."""
        if among is not None or not self._flat.language_groups() <= set(self._indexes):
            return self._flat.by_language(vector, limit, among=among)
        try:
            candidates = {
                group: [key for key, _ in index.search(vector, limit)]
                for group, index in self._indexes.items()
            }
        except IndexDamagedError as error:
            self._index.report_damage(error)
            return self._flat.by_language(vector, limit)
        return self._flat.by_candidates(vector, candidates)

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Language group of chunks; those without a vector are left out."""
        return self._flat.languages(keys)

    def language_groups(self) -> frozenset[str]:
        """The languages that there are vectors of."""
        return self._flat.language_groups()

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Cosine of given chunks; those without a vector are left out."""
        return self._flat.scores(vector, keys)

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Vectors of given chunks, a row each; zeros where there is none."""
        return self._flat.vectors(keys)
