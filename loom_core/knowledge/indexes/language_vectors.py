"""Vectors of a knowledge base, partitioned by language."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict, cast

from loom_core.errors import IndexDamagedError, StoreError
from loom_core.knowledge.indexes.engines.damage import REBUILD_ADVICE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
    from loom_core.knowledge.indexes.engines.vector_rows import FileRows
    from loom_core.knowledge.store.chunk_keys import ChunkKeys

__all__ = ["DenseSearch", "LanguageVectors", "Neighbours"]

_STATE = "state.json"


class Neighbours(NamedTuple):
    """The passages of one language that are most similar to a question.

    Attributes:
        language: see `language_group`.
        mean: cosine of the question with the average of all passages of that language.
        size: number of passages of that language.
        hits: keys with their cosine, best first.
    """

    language: str
    mean: float
    size: int
    hits: list[tuple[int, float]]


class DenseSearch(Protocol):
    """Vector search for retrieval: neighbours of the question, and similarity of given chunks.

    Raises:
        StoreUnavailableError: by any method: the vectors are in a database that cannot be asked.
    """

    def by_language(
        self,
        vector: NDArray[np.float32],
        limit: int,
        *,
        among: ChunkKeys | None = None,
        only: Collection[str] | None = None,
    ) -> list[Neighbours]:
        """Return the chunks most similar to a vector in each language, or only in some language groups."""
        ...

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Return the language group of chunks; those without a vector may be left out."""
        ...

    def language_groups(self) -> frozenset[str]:
        """Return the languages that there are vectors of; very rare ones may be left out."""
        ...

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Return the cosine of given chunks; those without a vector are left out."""
        ...

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return vectors of given chunks, a row each; zeros where there is none."""
        ...


class _GroupState(TypedDict):
    """State of one language's files: number of rows, of live rows, and the sum of the live ones."""

    rows: int
    alive: int
    total: list[float]


class _State(TypedDict):
    dimension: int
    groups: dict[str, _GroupState]


class LanguageVectors:
    """Exact search by language, in memory or in files that any process may read.

    A multilingual model places passages of one language near each other whatever their meaning, so that a
    question in Chinese is nearer to every Chinese passage than to the English one that answers it. The margin
    over the average passage of the same language is comparable between languages. (Centring each
    language: Libovický et al., "On the Language Neutrality of Pre-trained Multilingual Representations",
    Findings of EMNLP 2020.)

    One thread writes at a time, any number search concurrently. In files, changes are valid after `flush`:
    `state.json` has the number of rows of each language, and their sum, so that opening reads no vector.

    Args:
        dimension: length of the vectors.
        folder: where the files are; None keeps all in memory.
        writable: whether this process writes; else it reads the files of another writer.

    Raises:
        IndexDamagedError: files are missing, truncated, or of another dimension.
    """

    def __init__(self, dimension: int, folder: Path | None = None, *, writable: bool = True) -> None:
        self._dimension = dimension
        self._folder = folder
        self._writable = writable
        self._indexes: dict[str, ExactVectorIndex] = {}
        self._files: dict[str, FileRows] = {}
        self._lock = threading.Lock()
        if folder is not None:
            if writable and not folder.exists():
                folder.mkdir(parents=True)
                self.flush()
            try:
                self.refresh()
            except IndexDamagedError:
                self.close()
                raise

    def refresh(self) -> None:
        """Read what another process has written since.

        Raises:
            IndexDamagedError: see the class.
        """
        if self._folder is None:
            return
        with self._lock:
            for language, state in self._read_state(self._folder)["groups"].items():
                self._take(self._folder, language, state)

    def check(self) -> None:
        """Raise if the files were truncated while in use: reading there would crash the process.

        Raises:
            IndexDamagedError: they were truncated.
        """
        for files in list(self._files.values()):
            files.check()

    def upsert(self, keys: Sequence[int], vectors: NDArray[np.float32], languages: Mapping[int, str]) -> None:
        """Store unit vectors, one row a key; an existing key is overwritten.

        Args:
            keys: keys of the chunks; for a repeated key the last row is stored.
            vectors: a row for each.
            languages: language group by key; keys that are not in it are left out.
        """
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for key, row in {key: row for row, key in enumerate(keys)}.items():
            if key in languages:
                rows[languages[key]].append(row)
        with self._lock:
            for language, index in self._indexes.items():
                index.delete([key for key in keys if languages.get(key) != language])
            for language, chosen in rows.items():
                index = self._indexes.get(language) or self._new(language)
                index.upsert([keys[row] for row in chosen], vectors[chosen])
                self._indexes = {
                    **self._indexes,
                    language: index,
                }  # a new dictionary, as readers iterate over the old one

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        with self._lock:
            for index in self._indexes.values():
                index.delete(keys)

    def flush(self) -> None:
        """Make all changes durable, and visible to other processes.

        Raises:
            StoreError: the disk is full.
        """
        if self._folder is None:
            return
        with self._lock:
            groups: dict[str, _GroupState] = {}
            for language, files in self._files.items():
                files.flush()
                index = self._indexes[language]
                groups[language] = _GroupState(
                    rows=files.rows.used, alive=index.count(), total=index.total.tolist()
                )
            state = _State(dimension=self._dimension, groups=groups)
            path = self._folder / _STATE
            fresh = path.with_suffix(".new")
            try:
                fresh.write_text(json.dumps(state), encoding="ascii")
                fresh.replace(path)
            except OSError as error:
                raise StoreError(
                    f"{path}: {error.strerror}.", advice="Check that the disk has room and may be written to."
                ) from error

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return the chunks most similar to a unit vector, in any language, with cosine, best first."""
        found = [hit for index in self._indexes.values() for hit in index.search(vector, limit, among=among)]
        if len(self._indexes) == 1:
            return found
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
        found: list[Neighbours] = []
        for language, index in self._indexes.items():
            if only is not None and language not in only:
                continue
            hits = index.search(vector, limit, among=among)
            if hits and index.count():
                found.append(_neighbours(language, index, vector, hits))
        return found

    def by_candidates(
        self, vector: NDArray[np.float32], candidates: Mapping[str, Collection[int]]
    ) -> list[Neighbours]:
        """Return given chunks of each language, with their cosine, best first; as `by_language`."""
        found: list[Neighbours] = []
        for language, index in self._indexes.items():
            scores = index.scores(vector, candidates.get(language, ()))
            if scores and index.count():
                hits = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
                found.append(_neighbours(language, index, vector, hits))
        return found

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Return the cosine of given chunks with a unit vector; those without a vector are left out."""
        found: dict[int, float] = {}
        for index in self._indexes.values():
            found |= index.scores(vector, keys)
        return found

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return vectors of given chunks, a row each; zeros where there is none."""
        import numpy as np

        found = np.zeros((len(keys), self._dimension), dtype=np.float32)
        for index in self._indexes.values():  # a key is in at most one of them
            found += index.vectors(keys)
        return found

    def languages(self, keys: Collection[int]) -> dict[int, str]:
        """Return the language group of chunks; those without a vector are left out."""
        return {
            key: language for language, index in self._indexes.items() for key in index.existing_keys(keys)
        }

    def language_groups(self) -> frozenset[str]:
        """Return the languages that there are vectors of."""
        return frozenset(language for language, index in self._indexes.items() if index.count())

    def sample(self, count: int, *, seed: int) -> tuple[list[int], NDArray[np.float32]]:
        """Return some keys of every language and their vectors, at random."""
        import numpy as np

        parts = [index.sample(count, seed=seed) for index in self._indexes.values()]
        keys = [key for some, _ in parts for key in some]
        nothing = np.zeros((0, self._dimension), dtype=np.float32)
        return keys, np.concatenate([nothing, *(matrix for _, matrix in parts)])

    def keys(self) -> set[int]:
        """Return every chunk that there is a vector of."""
        return {key for index in self._indexes.values() for key in index.keys().tolist()}

    def count(self) -> int:
        """Return how many vectors there are."""
        return sum(index.count() for index in self._indexes.values())

    def dead(self) -> int:
        """Return how many rows of the files belong to deleted vectors."""
        return sum(index.dead for index in self._indexes.values())

    def close(self) -> None:
        """Release files (a running search keeps its maps); in memory, drop everything."""
        with self._lock:
            files, self._files = self._files, {}
            for one in files.values():
                one.close()
            if self._folder is None:
                self._indexes = {}

    def _new(self, language: str) -> ExactVectorIndex:
        """Return an empty index for a language."""
        from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex

        if self._folder is None:
            return ExactVectorIndex(self._dimension)
        return ExactVectorIndex(self._dimension, self._open(self._folder, language, used=0))

    def _open(self, folder: Path, language: str, *, used: int) -> FileRows:
        from loom_core.knowledge.indexes.engines.vector_rows import FileRows

        files = FileRows(folder / language, dimension=self._dimension, used=used, writable=self._writable)
        self._files = {**self._files, language: files}
        return files

    def _take(self, folder: Path, language: str, state: _GroupState) -> None:
        """Open the files of a new language, or extend those that are open."""
        import numpy as np

        from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex

        total = np.array(state["total"], dtype=np.float64)
        if language in self._files:
            self._files[language].extend(state["rows"])
            self._indexes[language].refresh(total=total)
            return
        files = self._open(folder, language, used=state["rows"])
        keys = files.rows.keys
        # A writer that crashed may have deleted rows without saving the sum: recompute it then.
        known = not self._writable or int(np.count_nonzero(keys)) == state["alive"]
        index = ExactVectorIndex(self._dimension, files, total=total if known else None)
        self._indexes = {**self._indexes, language: index}

    def _read_state(self, folder: Path) -> _State:
        path = folder / _STATE
        try:
            state = cast("_State", json.loads(path.read_text(encoding="ascii")))
            groups = {name: (g["rows"], g["alive"], len(g["total"])) for name, g in state["groups"].items()}
            found, sane = (
                state["dimension"],
                all(
                    0 <= alive <= rows and length == self._dimension
                    for rows, alive, length in groups.values()
                ),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IndexDamagedError(f"{path} cannot be read: {error}.", advice=REBUILD_ADVICE) from error
        if found != self._dimension or not sane:
            raise IndexDamagedError(
                f"{path} does not describe vectors of dimension {self._dimension}.", advice=REBUILD_ADVICE
            )
        return state


def _neighbours(
    language: str, index: ExactVectorIndex, vector: NDArray[np.float32], hits: list[tuple[int, float]]
) -> Neighbours:
    count = index.count()
    return Neighbours(language, float(vector @ index.total) / max(count, 1), count, hits)
