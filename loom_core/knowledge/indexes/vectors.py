"""Vector indexes of a knowledge base: exact search over flat files, Chroma for large ones, or a database.

`VectorIndexes` chooses by the knowledge base's setting and the number of vectors; `FlatVectors` and
`ChromaVectors` follow the store's change log, and so does `RemoteVectors`.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING

from loom_core.errors import IndexDamagedError, LoomError
from loom_core.knowledge.indexes.derived import DerivedIndex, SteppedIndex
from loom_core.knowledge.indexes.engines.servers import VECTORS
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.indexes.remote import ServerChoice
from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex
    from loom_core.knowledge.indexes.language_vectors import DenseSearch, Neighbours
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import IndexState, PendingChanges
    from loom_core.storage import ProcessLock

__all__ = [
    "ChromaDenseSearch",
    "ChromaVectors",
    "FlatVectors",
    "VectorIndexes",
    "find_differing",
]

EXACT_UP_TO = 1_000_000
"""Up to this many vectors a question is compared with every one, unless configured otherwise.

Measured with vectors of length 384 and one processor: 16 ms at 100,000, 170 at 1,000,000, and every neighbour
is found. Chroma is faster (10 ms at 100,000) but finds 88 of the 100 nearest that the fusion looks at, and
costs memory of its own and a second of processor time for every thousand vectors.
"""

_KEPT_FROM = 0.8
"""Of that number, below which an index that is no longer needed is removed: not at every coming and going."""


class VectorIndexes:
    """The indexes of all vectors: one in a vector database, or here the flat one, plus Chroma if many.

    The setting is in the store, so that all processes have the same; it may change at any time. A collection
    in a database replaces the flat files once it is built, and the other way round.

    Args:
        store: the store.
        folder: where the indexes go; None keeps them in memory, without Chroma and databases.
        lock: of the knowledge base's folder: only its holder may open Chroma.
        exact_up_to: up to this many are compared one by one, if the setting is `auto`.

    Attributes:
        server: the index in the vector database that the setting names, if it names one.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        *,
        folder: Path | None,
        lock: ProcessLock | None,
        exact_up_to: int = EXACT_UP_TO,
    ) -> None:
        self._flat = FlatVectors(store, folder)
        self._chroma = ChromaVectors(store, folder) if folder is not None else None
        self.server = ServerChoice(store, folder, VECTORS, name="remote", load=_load_remote)
        self._folder = folder
        self._store = store
        self._lock = lock
        self._exact_up_to = exact_up_to

    @property
    def maintained(self) -> list[DerivedIndex]:
        """The indexes that are kept in sync with the store. Blocks."""
        remote, chroma = self.server.find(), self._select_chroma()
        flat = [self._flat] if self._needs_flat(remote) else []
        return [*flat, *(index for index in (remote, chroma) if index is not None)]

    def current(self) -> DenseSearch | None:
        """Return the vectors as of the last sync; None while they are being indexed. Blocks."""
        remote = self.server.find()
        if remote is not None and ((found := remote.searcher()) or not self._needs_flat(remote)):
            return found
        flat = self._flat.searcher()
        if flat is None or not (self._lock is None or self._lock.held):
            return flat
        chroma = self._select_chroma(flat.count())
        indexes = chroma.searcher() if chroma is not None else None
        return flat if chroma is None or indexes is None else ChromaDenseSearch(flat, indexes, chroma)

    def explain_absence(self) -> str:
        """Return why `current` is None for longer than a moment; or empty. Blocks."""
        remote = self.server.find()
        if remote is None:
            return ""
        return remote.problem or f"The vectors are being written to {remote.setting}: ask again later."

    def languages(self) -> frozenset[str]:
        """Return the language groups of the indexed vectors; for the worker process. Blocks."""
        remote = self.server.find()
        return self._flat.languages() if remote is None else remote.groups()

    def coverage(self) -> tuple[int, int]:
        """Return how many chunks have a vector, and how many there are. Blocks."""
        return self._store.vectors.coverage()

    def sync_files(self) -> bool:
        """Bring the flat files a step closer to the store, which takes a moment. Blocks.

        Returns:
            Whether there may be more to do.
        """
        return self._needs_flat(self.server.find()) and self._flat.sync()

    def sync(self) -> bool:
        """Bring the indexes a step closer to the store; for the holder of the lock. Blocks.

        Returns:
            Whether there may be more to do.
        """
        if self.sync_files():
            return True
        remote = self.server.find()
        if remote is None:
            self.server.leave()
        elif self.server.sync():
            return True
        elif not self._needs_flat(remote):
            self._flat.discard()
        chroma = self._select_chroma()
        if chroma is not None:
            return chroma.sync()
        if self._chroma is not None:
            self._chroma.discard()
        return False

    def files_have(self, head: int) -> bool:
        """Whether the flat files have applied the changes up to `head`, or are not searched. Blocks."""
        return not self._needs_flat(self.server.find()) or self._flat.has(head)

    def lag(self) -> int:
        """Return how many changes the index that is furthest behind has still to apply. Blocks."""
        return max(index.lag() for index in self.maintained)

    def close(self) -> None:
        """Release files and connections; the next use opens them again."""
        self._flat.close()
        if self._chroma is not None:
            self._chroma.close()
        self.server.close()

    def _needs_flat(self, remote: RemoteVectors | None) -> bool:
        """Whether the flat files are searched: there is no database, or its collection is not built yet."""
        state = self._store.changes.state
        return remote is None or (state("vectors").generation > 0 and not state("remote").built)

    def _select_chroma(self, count: int | None = None) -> ChromaVectors | None:
        chroma, choice = self._chroma, self.server.setting
        if chroma is None or choice not in {"auto", "chroma"}:
            return None
        count = self.coverage()[0] if count is None else count
        if choice == "chroma":
            return chroma if count else None
        if count <= self._exact_up_to * _KEPT_FROM:
            return None
        there = self._store.changes.state(chroma.name).generation > 0
        return chroma if count > self._exact_up_to * (_KEPT_FROM if there else 1) else None


def _load_remote() -> type[RemoteVectors]:
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors

    return RemoteVectors


_log = logging.getLogger(__name__)

_BATCH = 2000
_SAMPLES = 64  # vectors of each language that are compared with the store when files are opened


class FlatVectors(DerivedIndex):
    """Brute-force search over all vectors of the store; any process may search. See `DerivedIndex`.

    On disk it is a directory of files that are mapped into memory (`LanguageVectors`): opening reads
    only a sample, and all processes share the pages. Files that are missing, truncated, or hold
    other data than the store are detected when opened, and rebuilt by the worker process.

    Args:
        store: the store that it is derived from.
        folder: where its directories are; None keeps it in memory.
        waste: up to this many rows of deleted vectors are not worth a rebuild.
    """

    name = "vectors"

    def __init__(self, store: KnowledgeStore, folder: Path | None, *, waste: int = 10_000) -> None:
        super().__init__(store, folder)
        self._waste = waste
        self._written: LanguageVectors | None = None
        self._generation = 0  # of what is written
        self._read: LanguageVectors | None = None
        self._read_at: IndexState | None = None
        self._reading = threading.Lock()  # not `_lock`, which is held while the index is built

    def searcher(self) -> LanguageVectors | None:
        """Return the vectors as of the last sync; None before that, and while they are damaged."""
        if self._folder is None:
            return self._written
        with self._reading:
            while (state := self._store.changes.state(self.name)).built:
                try:
                    return self._up_to(state)
                except IndexDamagedError as error:
                    self._forget()
                    if self._store.changes.state(self.name).generation == state.generation:
                        _log.warning("The index of vectors cannot be used; it will be rebuilt: %s", error)
                        self._store.changes.mark_damaged(self.name, generation=state.generation)
            self._forget()
            return None

    def languages(self) -> frozenset[str]:
        """Return the language groups of the indexed vectors; for the worker process."""
        with self._lock:
            return frozenset() if self._written is None else self._written.language_groups()

    def sync(self, *, limit: int = _BATCH) -> bool:
        """Apply up to `limit` changes of the store; see `DerivedIndex.sync`."""
        return bool(self._dimension()) and super().sync(limit=limit)

    def lag(self) -> int:
        """Return how many changes are still to be applied; 0 if there never was an embedder."""
        return super().lag() if self._dimension() else 0

    def has(self, head: int) -> bool:
        """Whether the changes up to `head` are applied, or there never was an embedder."""
        return not self._dimension() or super().has(head)

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
        """Compare a sample of the vectors with the store: the files may belong to another one.

        Raises:
            IndexDamagedError: they differ.
        """
        import numpy as np

        keys, matrix = vectors.sample(_SAMPLES, seed=self._store.changes.head())
        found, expected = self._store.vectors.of(keys)
        row = {key: place for place, key in enumerate(keys)}
        # Chunks may have been deleted from the store since, but a chunk never changes its vector.
        if found and not np.array_equal(matrix[[row[key] for key in found]], expected):
            raise IndexDamagedError("The vector files do not match the store.")
        if not vectors.count() and self._store.vectors.coverage()[0] and not super().lag():
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
            while keys := self._store.documents.chunk_keys(after=after, limit=_BATCH):
                self._take(vectors, keys)
                after = keys[-1]
            vectors.flush()
        except LoomError:  # the disk is full, say
            vectors.close()
            raise
        self._written, self._generation = vectors, generation

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        vectors = self._writer(generation)
        self._take(vectors, pending.keys["vector+"])
        vectors.delete(pending.keys["chunk-"])
        vectors.flush()

    def _is_large(self, pending: PendingChanges) -> bool:
        vectors = self._written
        return vectors is not None and vectors.dead() > max(vectors.count(), self._waste)

    def _writer(self, generation: int) -> LanguageVectors:
        if self._written is None or generation != self._generation:
            self._written = LanguageVectors(self._dimension(), self._existing(generation))
            self._generation = generation
            self._compare(self._written)
        return self._written

    def _take(self, vectors: LanguageVectors, keys: Sequence[int]) -> None:
        found, matrix = self._store.vectors.of(keys)
        if found:
            vectors.upsert(found, matrix, language_groups_by_key(self._store, found))

    def _open_if_wanted(self, generation: int) -> None:
        if not self._is_open():  # find damage before the first question
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
        return int(self._store.get("dimension") or 0)


def language_groups_by_key(store: KnowledgeStore, keys: Sequence[int]) -> dict[int, str]:
    """Return the language group of chunks by key; those that are gone are left out."""
    languages = store.documents.languages_of(keys)
    return {key: language_group(language) for key, language in languages.items()}


_COMPARED = 64  # vectors that are compared with the store when an index is opened
_SAME = 1e-3  # tolerance: Chroma may round vectors


class ChromaVectors(SteppedIndex):
    """Chroma on disk, a collection per language; for the holder of the lock. See `SteppedIndex`."""

    name = "chroma"

    def __init__(self, store: KnowledgeStore, folder: Path) -> None:
        super().__init__(store, folder)
        self._indexes: dict[str, ChromaVectorIndex] | None = None

    def searcher(self) -> Mapping[str, ChromaVectorIndex] | None:
        """Return the index of each language if it is open and up to date, else None (see `sync`)."""
        return self._current(self._open)

    def sync(self, *, limit: int = SteppedIndex.step_size) -> bool:
        """Apply up to `limit` changes of the store, or continue a build; see `DerivedIndex.sync`."""
        return super().sync(limit=limit)

    def _apply(self, pending: PendingChanges, generation: int) -> None:
        indexes = self._open(generation)
        self._take(pending.keys["vector+"], generation)
        if gone := pending.keys["chunk-"]:
            for index in indexes.values():
                index.delete(gone)

    def _take(self, keys: Sequence[int], generation: int) -> None:
        from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex

        found, matrix = self._store.vectors.of(keys)
        rows: defaultdict[str, list[int]] = defaultdict(list)
        groups = language_groups_by_key(self._store, found)
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

    def _is_consistent(self) -> bool:
        vectors, groups = self._store.vectors, self._open(self._store.changes.state(self.name).generation)
        if sum(index.count() for index in groups.values()) != vectors.coverage()[0]:
            return False
        last = self._store.documents.last_chunk()
        places = sorted({last * n // _COMPARED for n in range(_COMPARED)})
        chosen = [key for place in places for key in self._store.documents.chunk_keys(after=place, limit=1)]
        return not find_differing(vectors.of(chosen), groups.values())

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
        return int(self._store.get("dimension") or 0)


def find_differing(
    expected: tuple[Sequence[int], NDArray[np.float32]], indexes: Collection[ChromaVectorIndex]
) -> list[int]:
    """Return the keys under which indexes hold another vector than expected.

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


class ChromaDenseSearch:
    """Vector search by Chroma: finds candidates, and rescores them exactly; with filters, search is exact.

    Args:
        flat: all vectors.
        indexes: Chroma's index of each language.
        index: the derived index, for reports of damage.
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
        """Return the chunks most similar to a unit vector, in any language, with cosine, best first."""
        found = [hit for group in self.by_language(vector, limit, among=among) for hit in group.hits]
        return nsmallest(limit, found, key=lambda hit: (-hit[1], hit[0]))

    def by_language(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        among: Collection[int] | None = None,
        only: Collection[str] | None = None,
    ) -> list[Neighbours]:
        """Return the most similar chunks of each language, at most `limit` of each; see `DenseSearch`."""
        if among is not None or not self._flat.language_groups() <= set(self._indexes):
            return self._flat.by_language(vector, limit, among=among, only=only)
        try:
            candidates = {
                group: [key for key, _ in index.search(vector, limit)]
                for group, index in self._indexes.items()
                if only is None or group in only
            }
        except IndexDamagedError as error:
            self._index.report_damage(error)
            return self._flat.by_language(vector, limit, only=only)
        return self._flat.by_candidates(vector, candidates)

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Return the language group of chunks; those without a vector are left out."""
        return self._flat.languages(keys)

    def language_groups(self) -> frozenset[str]:
        """Return the languages that there are vectors of."""
        return self._flat.language_groups()

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Return the cosine of given chunks; those without a vector are left out."""
        return self._flat.scores(vector, keys)

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return vectors of given chunks, a row each; zeros where there is none."""
        return self._flat.vectors(keys)
