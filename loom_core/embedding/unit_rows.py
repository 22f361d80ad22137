"""Vectors as servers send them, checked and brought to length 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["unit_rows"]


def unit_rows(
    rows: Sequence[Sequence[float] | NDArray[np.float32]] | NDArray[np.float32], *, count: int
) -> NDArray[np.float32]:
    """Rows of length 1, all of one dimension; those of zeros stay as they are.

    Args:
        rows: vectors.
        count: how many there have to be.

    Raises:
        ValueError: they cannot be what they should be; the message says why, as part of a sentence.
    """
    import numpy as np

    if len(rows) != count:
        raise ValueError(f"{len(rows):,} vectors for {count:,} texts")
    try:
        with np.errstate(over="ignore"):  # what is too great becomes infinity, which is looked for
            vectors = np.array(rows, dtype=np.float32)
    except (ValueError, OverflowError):
        raise ValueError("vectors of different lengths") from None
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError("vectors without numbers")
    if not np.isfinite(vectors).all():
        raise ValueError("a vector holds NaN or infinity")
    # In double precision, which the squares of great numbers fit into.
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
