import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex


def axis(place: int, *, dimension: int = 4) -> NDArray[np.float32]:
    return np.eye(dimension, dtype=np.float32)[place]


def test_scores_are_the_cosines_of_the_known_keys() -> None:
    index = ExactVectorIndex(4)
    index.upsert([1, 2], np.stack([axis(0), axis(1)]))
    assert index.scores(axis(1), [1, 2, 3]) == {1: 0.0, 2: 1.0}
    assert index.scores(axis(1), []) == {}


def test_scores_refuse_a_vector_of_another_dimension() -> None:
    with pytest.raises(InvalidInputError):
        ExactVectorIndex(4).scores(axis(0, dimension=5), [1])


def test_vectors_come_in_the_order_of_the_keys_and_zero_for_unknown_ones() -> None:
    index = ExactVectorIndex(4)
    index.upsert([1, 2], np.stack([axis(0), axis(1)]))
    assert np.array_equal(index.vectors([2, 9, 1, 2]), np.stack([axis(1), 0 * axis(0), axis(0), axis(1)]))
    assert index.vectors([]).shape == (0, 4)


def test_equal_similarities_come_in_the_order_of_their_keys() -> None:
    index = ExactVectorIndex(4)
    index.upsert([3, 1, 2, 5, 4], np.stack([axis(0)] * 4 + [axis(1)]))
    assert [key for key, _ in index.search(axis(0), 4)] == [1, 2, 3, 5]
    assert [key for key, _ in index.search(axis(0), 2)] == [1, 2]


def test_overwriting_and_deleting_for_ever_does_not_grow_the_matrix() -> None:
    index = ExactVectorIndex(4)
    rows = np.tile(axis(0), (600, 1))
    for _ in range(20):
        index.upsert(range(1, 601), rows)
    assert index._rows.rows.matrix.shape[0] <= 2 * 1200
    index.upsert(range(1, 10_001), np.tile(axis(0), (10_000, 1)))
    index.delete(range(2, 10_001))
    assert index.count() == 1
    assert index._rows.rows.matrix.shape[0] <= 2048
    assert index.search(axis(0), 5) == [(1, 1.0)]


def test_after_closing_nothing_is_left() -> None:
    index = ExactVectorIndex(4)
    index.upsert([1], axis(0)[None])
    index.close()
    assert index.count() == 0
    assert index.search(axis(0), 1) == []


def test_searches_concurrent_with_a_writer_always_see_a_whole_state() -> None:
    """Keys 1 to 50 are always there: each batch overwrites them and adds others."""
    index = ExactVectorIndex(4)
    steady = np.tile(axis(0), (50, 1))
    index.upsert(range(1, 51), steady)
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            hits = index.search(axis(0), 50)
            if len(hits) != 50 or any(key > 50 for key, _ in hits):
                wrong.append(hits)
            among = index.search(axis(0), 60, among=range(1, 51))
            if len(among) != 50:
                wrong.append(among)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for round_ in range(60):
        index.upsert(range(1, 51), steady)
        added = range(1000 + 100 * round_, 1100 + 100 * round_)
        index.upsert(added, np.tile(axis(1), (100, 1)))
        index.delete(added[:50])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
