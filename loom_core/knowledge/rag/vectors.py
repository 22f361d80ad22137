"""The vectors of a knowledge base, and the way of searching them that suits their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.indexing import VectorsInMemory, VectorsOnDisk, VectorsSearched

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.knowledge.rag.channels import DenseSearch
    from loom_core.knowledge.record import Record
    from loom_core.storage import ProcessLock

__all__ = ["Vectors"]


class Vectors:
    """Compared one by one in memory as long as they are few, searched by Chroma where they are many.

    Args:
        record: holds them.
        folder: where Chroma's index goes; None for no index on disk.
        lock: of the knowledge base's folder: only its holder may open Chroma.
        exact_up_to: up to so many are compared one by one.
    """

    def __init__(
        self, record: Record, *, folder: Path | None, lock: ProcessLock | None, exact_up_to: int
    ) -> None:
        self.on_disk = VectorsOnDisk(record, folder) if folder is not None else None
        self._record = record
        self._in_memory = VectorsInMemory(record)
        self._lock = lock
        self._exact_up_to = exact_up_to
        self._coverage_at = -1
        self._coverage = (0, 0)

    def current(self) -> DenseSearch:
        """The vectors as the record has them now. Blocks."""
        many = self.coverage()[0] > self._exact_up_to
        holds = self._lock is None or self._lock.held
        # A question does not wait for an index that is behind.
        if many and holds and self.on_disk is not None and not self.on_disk.lag():
            return VectorsSearched(self.on_disk, self._record)
        return self._in_memory.current()

    def coverage(self) -> tuple[int, int]:
        """How many chunks have a vector, and how many there are. Blocks."""
        head = self._record.changes.head()
        if head != self._coverage_at:
            self._coverage, self._coverage_at = self._record.vectors.coverage(), head
        return self._coverage
