"""The flat index of vectors: every one is compared with the question."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, LoomError
from loom_core.knowledge.indexes.derived import DerivedIndex
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loom_core.knowledge.store import Record
    from loom_core.knowledge.store.changes import IndexState, Pending

__all__ = ["FlatVectors", "groups_of"]

_log = logging.getLogger(__name__)

_BATCH = 2000
_SAMPLES = 64  # vectors of each language that are compared with the record when files are opened


class FlatVectors(DerivedIndex):
    """Compares with every vector of the record; any process may search. See `DerivedIndex`.

    On disk it is a directory of files that are mapped into memory (`LanguageVectors`): opening reads
    nothing but a sample, and all processes share the pages. Files that are missing, cut off, or hold
    something else than the record are found when they are opened, and built anew by the process that works.

    Args:
        record: what it is derived from.
        folder: where its directories are; None keeps it in memory.
        waste: so many rows of vectors that are gone are not worth building anew for.
    """

    name = "vectors"

    def __init__(self, record: Record, folder: Path | None, *, waste: int = 10_000) -> None:
        super().__init__(record, folder)
        self._waste = waste
        self._written: LanguageVectors | None = None
        self._generation = 0  # of what is written
        self._read: LanguageVectors | None = None
        self._read_at: IndexState | None = None
        self._reading = threading.Lock()  # not `_lock`, which is held while the index is built

    def searcher(self) -> LanguageVectors | None:
        """The vectors as they were taken over last; None before that, and while they are damaged."""
        if self._folder is None:
            return self._written
        with self._reading:
            while (state := self._record.changes.state(self.name)).built:
                try:
                    return self._up_to(state)
                except IndexDamagedError as error:
                    self._forget()
                    if self._record.changes.state(self.name).generation == state.generation:
                        _log.warning("The flat index of vectors is damaged; it will be rebuilt: %s", error)
                        self._record.changes.distrust(self.name, generation=state.generation)
            self._forget()
            return None

    def languages(self) -> frozenset[str]:
        """The language groups of what has been taken over; for the process that works."""
        with self._lock:
            return frozenset() if self._written is None else self._written.language_groups()

    def sync(self, *, limit: int = _BATCH) -> bool:
        """Take over up to `limit` changes of the record; see `DerivedIndex.sync`."""
        return bool(self._dimension()) and super().sync(limit=limit)

    def lag(self) -> int:
        """How many changes are still to be taken over; none where there never was an embedder."""
        return super().lag() if self._dimension() else 0

    def _up_to(self, state: IndexState) -> LanguageVectors:
        vectors = self._read
        if vectors is None or self._read_at is None or self._read_at.generation != state.generation:
            self._forget()
            path = self._existing(state.generation)
            self._read = vectors = LanguageVectors(self._dimension(), path, writable=False)
            self._compare(vectors)
        elif state != self._read_at:
            vectors.refresh()
        vectors.check()
        self._read_at = state
        return vectors

    def _compare(self, vectors: LanguageVectors) -> None:
        """See whether a sample of the vectors is what the record has: the files may be of another one.

        Raises:
            IndexDamagedError: it is not.
        """
        import numpy as np

        keys, matrix = vectors.sample(_SAMPLES, seed=self._record.changes.head())
        found, expected = self._record.vectors.of(keys)
        row = {key: place for place, key in enumerate(keys)}
        # Chunks may have gone from the record since; those that are there never change their vector.
        if found and not np.array_equal(matrix[[row[key] for key in found]], expected):
            raise IndexDamagedError("The vectors in the files are not those of the record.")
        if not vectors.count() and self._record.vectors.coverage()[0] and not super().lag():
            raise IndexDamagedError("There is no vector in the files.")

    def _forget(self) -> None:
        vectors, self._read, self._read_at = self._read, None, None
        if vectors is not None:
            vectors.close()

    def _existing(self, generation: int) -> Path:
        path = self._path(generation)
        if not path.is_dir():
            raise IndexDamagedError(f"There are no vectors at {path}.")
        return path

    def _build(self, generation: int) -> None:
        path = None if self._folder is None else self._path(generation)
        vectors = LanguageVectors(self._dimension(), path)
        after = 0
        try:
            while keys := self._record.documents.chunk_keys(after=after, limit=_BATCH):
                self._take(vectors, keys)
                after = keys[-1]
            vectors.flush()
        except LoomError:  # the disk is full, say
            vectors.close()
            raise
        self._written, self._generation = vectors, generation

    def _apply(self, pending: Pending, generation: int) -> None:
        vectors = self._writer(generation)
        self._take(vectors, pending.keys["vector+"])
        vectors.delete(pending.keys["chunk-"])
        vectors.flush()

    def _is_large(self, pending: Pending) -> bool:
        vectors = self._written
        return vectors is not None and vectors.dead() > max(vectors.count(), self._waste)

    def _writer(self, generation: int) -> LanguageVectors:
        if self._written is None or generation != self._generation:
            self._written = LanguageVectors(self._dimension(), self._existing(generation))
            self._generation = generation
            self._compare(self._written)
        return self._written

    def _take(self, vectors: LanguageVectors, keys: Sequence[int]) -> None:
        found, matrix = self._record.vectors.of(keys)
        if found:
            vectors.upsert(found, matrix, groups_of(self._record, found))

    def _open_if_wanted(self, generation: int) -> None:
        if not self._is_open():  # damage is found before there is a question
            self._writer(generation)

    def _is_open(self) -> bool:
        return self._written is not None

    def _close(self) -> None:
        if self._folder is None:
            return
        vectors, self._written = self._written, None
        if vectors is not None:
            vectors.close()

    def close(self) -> None:
        """Release files; the next use opens them again."""
        super().close()
        with self._reading:
            self._forget()

    def _dimension(self) -> int:
        return int(self._record.get("dimension") or 0)


def groups_of(record: Record, keys: Sequence[int]) -> dict[int, str]:
    """Language group of chunks by key; those that are gone are left out."""
    languages = record.documents.languages_of(keys)
    return {key: language_group(language) for key, language in languages.items()}
