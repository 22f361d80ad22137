"""Windows: how a text longer than a model's input becomes one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["pool_windows"]


def pool_windows(
    pieces: Sequence[int], *, size: int, pool: Callable[[Sequence[int]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """One unit vector for a text: the mean over its windows, weighted by their length.

    Args:
        pieces: ids of the text's tokens, without marks of beginning and end; may be empty.
        size: how many of them a window takes; windows do not overlap.
        pool: vector of one window, not normalised.
    """
    import numpy as np

    total = max(1, len(pieces[:size])) * pool(pieces[:size])
    for start in range(size, len(pieces), size):
        window = pieces[start : start + size]
        total += len(window) * pool(window)
    total /= np.linalg.norm(total)
    return total
