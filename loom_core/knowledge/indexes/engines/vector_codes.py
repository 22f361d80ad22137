"""Vectors rounded to 8 bits a number: exact search reads them first, and the vectors of few rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["VectorCodes", "encode"]

_MOST = 127
_BLOCK = 1 << 15  # rows at a time, as their product holds Python's lock
_GROUPS = 8  # for each value that is asked for
_ROUNDING = 1e-5  # of 32-bit sums


def encode(matrix: NDArray[np.float32]) -> VectorCodes:
    """Return the codes of rows."""
    import numpy as np

    step = np.abs(matrix).max(axis=1, initial=0) / _MOST
    numbers = np.rint(matrix / np.where(step > 0, step, 1)[:, None])
    loss = np.linalg.norm(matrix - numbers * step[:, None], axis=1)
    return VectorCodes(numbers.astype(np.int8), np.column_stack([step, loss]).astype(np.float32))


class VectorCodes(NamedTuple):
    """Rows rounded to 8 bits a number, to find those that may be the most similar.

    Attributes:
        numbers: the rounded numbers, in steps of each row's own size; shape (rows, dimension).
        scales: for each row the size of its step, and how far the rounded row is from the vector.
    """

    numbers: NDArray[np.int8]
    scales: NDArray[np.float32]

    def possible_places(
        self, matrix: NDArray[np.float32], query: NDArray[np.float32], limit: int, *, alive: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return the places of all rows that may be among the `limit` most similar to a query.

        Let x' and q' be the rounded vectors. By the inequality of Cauchy and Schwarz, the similarity of two
        unit vectors x and q differs from that of x' and q' by at most |x - x'| |q| + |x'| |q - q'|, where
        |x'| is at most 1 + |x - x'|. The rows that look most similar are compared exactly; a row whose upper
        bound is below the lowest of these is not among the most similar.

        Args:
            matrix: the rows, unit vectors.
            query: a unit vector.
            limit: 1 or more.
            alive: which rows count.

        Returns:
            Places of rows that count, in ascending order.
        """
        import numpy as np

        if np.count_nonzero(alive) <= limit:
            return np.flatnonzero(alive)
        rounded = encode(query[None])
        step, loss = rounded.scales[0]
        similarities = self._compare(rounded.numbers)
        similarities *= step
        similarities[~alive] = -np.inf
        best = np.flatnonzero(alive & (similarities >= _least_of_best(similarities, limit)))
        least = np.partition(np.vecdot(matrix[best], query), -limit)[-limit] - _ROUNDING
        bounds = self.scales[:, 1] * (1 + loss) + (loss + _ROUNDING)
        near = np.flatnonzero(similarities >= least - bounds.max())
        return near[similarities[near] + bounds[near] >= least]

    def _compare(self, numbers: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return the inner products of the rounded rows with a query's numbers, shape (1, dimension)."""
        import numpy as np
        import simsimd

        products = np.empty(len(self.numbers), dtype=np.float32)
        for start in range(0, len(products), _BLOCK):
            block = slice(start, start + _BLOCK)
            found = simsimd.cdist(numbers, self.numbers[block], metric="dot", out_dtype="float32")
            np.multiply(np.asarray(found)[0], self.scales[block, 0], out=products[block])
        return products


def _least_of_best(values: NDArray[np.float32], count: int) -> np.float32:
    """Return a value that at least `count` of some values reach, and few more; in less time than the best.

    It is the lowest of the `count` best among the highest values of groups.
    """
    import numpy as np

    groups = min(_GROUPS * count, len(values))
    size = len(values) // groups
    highest = values[: size * groups].reshape(size, groups).max(axis=0)
    return np.partition(highest, -count)[-count]
