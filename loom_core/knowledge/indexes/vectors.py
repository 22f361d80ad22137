"""The vectors of a knowledge base, and the way of searching them that suits their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from loom_core.knowledge.indexes import ChromaVectors, FlatVectors, NearestByChroma

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.indexes.derived import DerivedIndex
    from loom_core.knowledge.indexes.language_vectors import DenseSearch
    from loom_core.knowledge.store import Record
    from loom_core.storage import ProcessLock

__all__ = ["EXACT_UP_TO", "VectorIndexChoice", "Vectors"]

EXACT_UP_TO = 1_000_000
"""Up to so many vectors a question is compared with every one of them unless settings say otherwise.

Measured with vectors of length 384 and one processor: 16 ms at 100,000, 170 at 1,000,000, and every neighbour
is found. Chroma is faster (10 ms at 100,000) but finds 88 of the 100 nearest that the fusion looks at, and
costs memory of its own and a second of processor time for every thousand vectors.
"""

_KEPT_FROM = 0.8
"""Of that number, below which an index that is no longer needed is removed: not at every coming and going."""

VectorIndexChoice = Literal["auto", "exact", "chroma"]
"""How vectors are searched: by their number, every one compared, or by Chroma's approximate index."""


class Vectors:
    """The flat index of all vectors, and Chroma's beside it where they are many or it is asked for.

    Args:
        record: holds them.
        folder: where the indexes go; None keeps them in memory, without Chroma.
        lock: of the knowledge base's folder: only its holder may open Chroma.
        choice: how they are searched.
        exact_up_to: up to so many are compared one by one where that goes by their number.
    """

    def __init__(
        self,
        record: Record,
        *,
        folder: Path | None,
        lock: ProcessLock | None,
        choice: VectorIndexChoice = "auto",
        exact_up_to: int = EXACT_UP_TO,
    ) -> None:
        self.flat = FlatVectors(record, folder)
        self._chroma = ChromaVectors(record, folder) if folder is not None else None
        self._record = record
        self._lock = lock
        self._choice = choice
        self._exact_up_to = exact_up_to

    @property
    def maintained(self) -> list[DerivedIndex]:
        """The indexes that are kept in step with the record. Blocks."""
        chroma = self._wanted_chroma()
        return [self.flat] if chroma is None else [self.flat, chroma]

    def current(self) -> DenseSearch | None:
        """The vectors as they were taken over last; None while they are being indexed. Blocks."""
        flat = self.flat.searcher()
        if flat is None or not (self._lock is None or self._lock.held):
            return flat
        chroma = self._wanted_chroma()
        indexes = chroma.searcher() if chroma is not None else None
        return flat if chroma is None or indexes is None else NearestByChroma(flat, indexes, chroma)

    def coverage(self) -> tuple[int, int]:
        """How many chunks have a vector, and how many there are. Blocks."""
        return self._record.vectors.coverage()

    def sync(self) -> bool:
        """Bring the indexes a step nearer to the record; for the holder of the lock. Blocks.

        Returns:
            Whether there may be more to do.
        """
        if self.flat.sync():
            return True
        chroma = self._wanted_chroma()
        if chroma is not None:
            return chroma.sync()
        if self._chroma is not None:
            self._chroma.discard()
        return False

    def lag(self) -> int:
        """How many changes the index that is furthest behind has still to take over. Blocks."""
        return max(index.lag() for index in self.maintained)

    def close(self) -> None:
        """Release files; the next use opens them again."""
        self.flat.close()
        if self._chroma is not None:
            self._chroma.close()

    def _wanted_chroma(self) -> ChromaVectors | None:
        chroma, choice = self._chroma, self._choice
        if chroma is None or choice == "exact":
            return None
        count = self.coverage()[0]
        if choice == "chroma":
            return chroma if count else None
        there = self._record.changes.state(chroma.name).generation > 0
        return chroma if count > self._exact_up_to * (_KEPT_FROM if there else 1) else None
