"""Vectors rounded to 8 bits a number: exact search reads them first, and the vectors of few rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["code_type", "encode", "possible_places"]

_MOST = 127
_BLOCK = 1 << 14  # rows at a time: the product holds Python's lock, and what follows stays in the cache
_ROUNDING = 1e-5  # of 32-bit sums


def code_type(dimension: int) -> np.dtype[np.void]:
    """Return the type of a code: the rounded numbers, their step, and how far they are from the vector."""
    import numpy as np

    fields = [("numbers", np.int8, (dimension,)), ("step", np.float32), ("loss", np.float32)]
    return np.dtype(fields, align=True)


def encode(matrix: NDArray[np.float32]) -> NDArray[np.void]:
    """Return a code for each row."""
    import numpy as np

    codes = np.zeros(len(matrix), dtype=code_type(matrix.shape[1]))
    step = np.abs(matrix).max(axis=1, initial=0) / _MOST
    numbers = np.rint(matrix / np.where(step > 0, step, 1)[:, None])
    codes["numbers"], codes["step"] = numbers, step
    codes["loss"] = np.linalg.norm(matrix - numbers * step[:, None], axis=1)
    return codes


def possible_places(
    codes: NDArray[np.void],
    matrix: NDArray[np.float32],
    query: NDArray[np.float32],
    limit: int,
    *,
    alive: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Return the places of all rows that may be among the `limit` most similar to a query.

    Let x' and q' be the rounded vectors. By the inequality of Cauchy and Schwarz, the similarity of two unit
    vectors x and q differs from that of x' and q' by at most |x - x'| |q| + |x'| |q - q'|, where |x'| is at
    most 1 + |x - x'|. The rows that look most similar are compared exactly; a row whose upper bound is below
    the lowest of these is not among the most similar.

    Args:
        codes: of the rows.
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
    code = encode(query[None])
    near, bound = np.empty((2, len(codes)), dtype=np.float32)
    for start in range(0, len(codes), _BLOCK):
        block = slice(start, start + _BLOCK)
        _compare(codes[block], code, near[block], bound[block])
    near[~alive] = bound[~alive] = -np.inf
    best = np.argpartition(near, -limit)[-limit:]
    return np.flatnonzero(bound >= np.vecdot(matrix[best], query).min() - _ROUNDING)


def _compare(
    codes: NDArray[np.void], query: NDArray[np.void], near: NDArray[np.float32], bound: NDArray[np.float32]
) -> None:
    """Write the similarity of codes to that of a query, and the upper bound of that of their vectors."""
    import numpy as np
    import simsimd

    products = simsimd.cdist(query["numbers"], codes["numbers"], metric="dot", out_dtype="float32")
    np.multiply(np.asarray(products)[0], codes["step"] * query["step"], out=near)
    np.multiply(codes["loss"], 1 + query["loss"], out=bound)
    bound += near
    bound += query["loss"] + _ROUNDING
