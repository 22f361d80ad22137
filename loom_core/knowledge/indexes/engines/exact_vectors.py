"""Exact nearest-neighbour search (brute force), in memory or in files."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge.indexes.engines.vector_rows import DEAD, MemoryRows, validate_batch, validate_query
from loom_core.knowledge.store.chunk_keys import ChunkKeys

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.indexes.engines.vector_rows import Rows, VectorRows

__all__ = ["ExactVectorIndex", "cosines"]

_THREADED_FROM = 1 << 24  # size of a matrix from which BLAS threads may pay off
_CODED_FROM = 20_000  # rows from which comparing codes first pays off
_PICKING = 4  # comparing one scattered row takes as long as this many consecutive ones


class _KeyOrder(NamedTuple):
    """Position of each key: `keys` ascending, and the row of each among the first `used` rows of a matrix."""

    matrix: NDArray[np.float32]
    used: int
    keys: NDArray[np.int64]
    places: NDArray[np.int64]


class ExactVectorIndex:
    """`VectorIndex` over one float32 matrix: every search compares with every vector.

    Many rows in files are first compared in 8 bits a number, and exactly where these leave a doubt: the
    answers are the same (`vector_codes`). One thread writes at a time, any number search concurrently.

    Args:
        dimension: length of the vectors.
        rows: storage of the vectors; by default in memory.
        total: sum of all vectors in `rows`, if known.
    """

    def __init__(
        self, dimension: int, rows: VectorRows | None = None, *, total: NDArray[np.float64] | None = None
    ) -> None:
        self._dimension = dimension
        self._rows = rows or MemoryRows(dimension)
        self._writing = threading.Lock()
        self._order: _KeyOrder | None = None
        self._count = self._newest = 0
        self.refresh()
        self._total = self._sum_of_all() if total is None else total

    @property
    def total(self) -> NDArray[np.float64]:
        """The sum of all vectors."""
        return self._total

    @property
    def dead(self) -> int:
        """Number of rows that are marked as deleted."""
        return self._rows.rows.used - self._count

    def refresh(self, *, total: NDArray[np.float64] | None = None) -> None:
        """Update the counts after another process has changed the rows.

        Args:
            total: the sum of all vectors, if known.
        """
        import numpy as np

        rows = self._rows.rows
        keys = rows.keys[: rows.used]
        self._count = int(np.count_nonzero(keys))
        self._newest = int(keys.max(initial=0))
        if total is not None:
            self._total = total

    def upsert(self, keys: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Store unit vectors, one row a key; an existing key is overwritten.

        Raises:
            InvalidInputError: keys and vectors do not fit each other or this index.
        """
        import numpy as np

        fresh_keys, fresh = validate_batch(keys, vectors, dimension=self._dimension)
        if not fresh_keys:
            return
        with self._writing:
            self._mark_dead(fresh_keys)
            self._rows.append(np.array(fresh_keys, dtype=np.int64), fresh)
            self._count += len(fresh_keys)
            self._newest = max(self._newest, *fresh_keys)
            self._total = self._total + fresh.sum(axis=0, dtype=np.float64)

    def delete(self, keys: Collection[int]) -> None:
        """Forget keys; unknown ones are ignored."""
        with self._writing:
            self._mark_dead(keys)

    def search(
        self, vector: NDArray[np.float32], limit: int, *, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return the `limit` keys most similar to a unit vector, with their cosine, best first.

        Equal similarities come in the order of their keys.

        Raises:
            InvalidInputError: the vector does not fit this index.
        """
        import numpy as np

        query = validate_query(vector, dimension=self._dimension)
        if limit < 1:
            return []
        rows = self._consistent_rows()
        keys = rows.keys[: rows.used]
        if among is not None:
            places = self._positions(rows, among)
        elif rows.codes is not None and rows.used >= _CODED_FROM:
            matrix = rows.matrix[: rows.used]
            places = rows.codes.possible_places(matrix, query, limit, alive=keys != DEAD)
        else:
            places = np.flatnonzero(keys)
        keys = keys[places]
        if _PICKING * len(places) < rows.used:
            similarities = cosines(rows.matrix[places], query)
        else:
            similarities = cosines(rows.matrix[: rows.used], query)[places]
        if limit < len(keys):
            best = similarities >= np.partition(similarities, -limit)[-limit]  # and more that are equal
            keys, similarities = keys[best], similarities[best]
        order = np.lexsort((keys, -similarities))[:limit]
        order = order[keys[order] != DEAD]
        return list(zip(keys[order].tolist(), similarities[order].tolist(), strict=True))

    def scores(self, vector: NDArray[np.float32], keys: Collection[int]) -> dict[int, float]:
        """Return the exact cosine of these keys with a unit vector; unknown keys are left out.

        Raises:
            InvalidInputError: the vector does not fit this index.
        """
        query = validate_query(vector, dimension=self._dimension)
        rows = self._consistent_rows()
        places = self._positions(rows, keys)
        similarities = cosines(rows.matrix[places], query)
        return dict(zip(rows.keys[places].tolist(), similarities.tolist(), strict=True))

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """Return the stored vectors, shape (len(keys), dimension), in the order of the keys.

        An unknown key gives a row of zeros, which is similar to nothing.
        """
        import numpy as np

        found = np.zeros((len(keys), self._dimension), dtype=np.float32)
        rows = self._consistent_rows()
        wanted = np.array(keys, dtype=np.int64)
        places = self._find(rows, wanted)
        found[places >= 0] = rows.matrix[places[places >= 0]]
        return found

    def existing_keys(self, keys: Collection[int]) -> list[int]:
        """Return the keys that have a vector, ascending."""
        rows = self._consistent_rows()
        wanted = _array(keys)
        return wanted[self._find(rows, wanted) >= 0].tolist()

    def sample(self, count: int, *, seed: int) -> tuple[list[int], NDArray[np.float32]]:
        """Return some keys and their vectors, at random."""
        import numpy as np

        rows = self._rows.rows
        places = np.random.default_rng(seed).integers(rows.used, size=count if rows.used else 0)
        places = np.unique(places[rows.keys[places] != DEAD])
        return rows.keys[places].tolist(), rows.matrix[places]

    def keys(self) -> NDArray[np.int64]:
        """Return every key that has a vector, in no particular order."""
        rows = self._rows.rows
        keys = rows.keys[: rows.used]
        return keys[keys != DEAD]

    def count(self) -> int:
        """Return how many vectors are stored."""
        return self._count

    def close(self) -> None:
        """Release files; in memory, drop everything."""
        with self._writing:
            self._rows.close()
            self._order = None
            self._count = self._newest = 0

    def _consistent_rows(self) -> Rows:
        """Return the rows between two changes, never in the middle of one."""
        with self._writing:
            return self._rows.rows

    def _mark_dead(self, keys: Collection[int]) -> None:
        import numpy as np

        if not keys or min(keys) > self._newest:
            return
        rows = self._rows.rows
        places = self._positions(rows, keys)
        if len(places):
            self._total = self._total - rows.matrix[places].sum(axis=0, dtype=np.float64)
            self._count -= len(places)
            self._rows.mark_dead(places)

    def _positions(self, rows: Rows, keys: Collection[int]) -> NDArray[np.int64]:
        """Return the rows of those keys that have one, in order of memory, each once."""
        import numpy as np

        found = self._find(rows, _array(keys))
        return np.sort(found[found >= 0])

    def _find(self, rows: Rows, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, or -1."""
        import numpy as np

        order = self._key_order(rows)
        if not len(order.keys):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(order.keys, wanted), len(order.keys) - 1)
        places = order.places[at]
        # Rows may have been deleted since the order was computed.
        there = (order.keys[at] == wanted) & (rows.keys[places] == wanted)
        return np.where(there, places, -1)

    def _key_order(self, rows: Rows) -> _KeyOrder:
        import numpy as np

        order = self._order
        if order is None or order.matrix is not rows.matrix or order.used != rows.used:
            places = np.flatnonzero(rows.keys[: rows.used])
            keys = rows.keys[places]
            if not np.all(
                keys[1:] > keys[:-1]
            ):  # usually true, as chunks are added in the order of their keys
                ascending = np.argsort(keys, kind="stable")
                keys, places = keys[ascending], places[ascending]
            self._order = order = _KeyOrder(rows.matrix, rows.used, keys, places)
        return order

    def _sum_of_all(self) -> NDArray[np.float64]:
        import numpy as np

        rows, total = self._rows.rows, np.zeros(self._dimension, dtype=np.float64)
        for start in range(0, rows.used, 1 << 16):
            end = min(start + (1 << 16), rows.used)
            alive = rows.keys[start:end] != DEAD
            total += rows.matrix[start:end].sum(axis=0, dtype=np.float64, where=alive[:, None])
        return total


def _array(keys: Collection[int]) -> NDArray[np.int64]:
    """Return keys as an array in ascending order, each once."""
    import numpy as np

    if isinstance(keys, ChunkKeys):
        return keys.array
    return np.unique(np.fromiter(keys, dtype=np.int64, count=len(keys)))


def cosines(matrix: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner products of the rows with a vector.

    A matrix product wakes BLAS's threads from some twenty rows on and waits for the slowest: with other
    work on the machine that made 2,000 rows take 12 ms instead of 0.2.
    """
    import numpy as np

    return np.vecdot(matrix, query) if matrix.size < _THREADED_FROM else matrix @ query
