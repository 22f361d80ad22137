"""Vectors on their way into an index: shapes, keys and numbers checked in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["checked_batch", "checked_query"]


def checked_batch(
    keys: Sequence[int], vectors: NDArray[np.float32], *, dimension: int
) -> tuple[list[int], NDArray[np.float32]]:
    """Keys and their float32 rows, ready to store; of a repeated key the last row stays.

    Raises:
        InvalidInputError: the shape is not (len(keys), dimension), a key is not positive, or a number
            is not finite.
    """
    import numpy as np

    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.shape != (len(keys), dimension):
        raise InvalidInputError(
            f"Vectors of shape {rows.shape} do not fit {len(keys)} keys of dimension {dimension}.",
            advice="Give one row for each key, made by the embedder this index was built for.",
        )
    if not np.isfinite(rows).all():
        raise InvalidInputError(
            "A vector holds NaN or infinity.",
            advice="Check the embedder that made it, then embed the text anew.",
        )
    if any(key < 1 for key in keys):
        raise InvalidInputError("A key is not positive.", advice="Use the record's chunk keys.")
    last = {key: position for position, key in enumerate(keys)}
    if len(last) < len(keys):
        rows = rows[list(last.values())]
    return list(last), rows


def checked_query(vector: NDArray[np.float32], *, dimension: int) -> NDArray[np.float32]:
    """A query vector as float32.

    Raises:
        InvalidInputError: its shape is not (dimension,), or a number is not finite.
    """
    import numpy as np

    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.shape != (dimension,):
        raise InvalidInputError(
            f"A query of shape {query.shape} does not fit an index of dimension {dimension}.",
            advice="Embed the question with the embedder this index was built for.",
        )
    if not np.isfinite(query).all():
        raise InvalidInputError(
            "The query vector holds NaN or infinity.", advice="Check the embedder that made it."
        )
    return query
