from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loom_core.embedding.local_models.base import pool_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def unit_of_first(pieces: Sequence[int]) -> NDArray[np.float32]:
    """The axis that the window's first piece names."""
    vector = np.zeros(4, dtype=np.float32)
    vector[pieces[0] if pieces else 3] = 1
    return vector


def test_a_text_that_fits_is_one_window():
    assert pool_windows([1, 2], size=2, pool=unit_of_first).tolist() == [0, 1, 0, 0]


def test_a_text_of_nothing_is_still_pooled():
    assert pool_windows([], size=2, pool=unit_of_first).tolist() == [0, 0, 0, 1]


def test_windows_count_by_their_length():
    vector = pool_windows([0, 9, 9, 1], size=3, pool=unit_of_first)
    assert vector.tolist() == pytest.approx([3 / 10**0.5, 1 / 10**0.5, 0, 0])
