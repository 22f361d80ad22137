"""Contract of vector indexes, run with each of them."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.engines.chroma import ChromaVectorIndex
from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
from loom_core.knowledge.indexes.engines.vector_rows import FileRows
from loom_core.knowledge.interface import VectorIndex

DIMENSION = 8
Vectors = NDArray[np.float32]


@pytest.fixture(params=["memory", "files", "chroma"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorIndex]:
    opened: dict[str, Callable[[], VectorIndex]] = {
        "memory": lambda: ExactVectorIndex(DIMENSION),
        "files": lambda: ExactVectorIndex(
            DIMENSION, FileRows(tmp_path / "some", dimension=DIMENSION, used=0, writable=True)
        ),
        "chroma": lambda: ChromaVectorIndex(tmp_path / "vectors", dimension=DIMENSION),
    }
    index = opened[request.param]()
    yield index
    index.close()


def unit_vectors(count: int, *, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def axes(*places: int) -> Vectors:
    return np.eye(DIMENSION, dtype=np.float32)[list(places)]


def keys_of(hits: list[tuple[int, float]]) -> list[int]:
    return [key for key, _ in hits]


def test_search_gives_the_cosine_best_first(index: VectorIndex) -> None:
    stored = np.vstack([axes(0), axes(1), (axes(0) + axes(1)) / np.sqrt(2)]).astype(np.float32)
    index.upsert([1, 2, 3], stored)
    hits = index.search(axes(0)[0], 3)
    assert keys_of(hits) == [1, 3, 2]
    assert [score for _, score in hits] == pytest.approx([1.0, np.sqrt(0.5), 0.0], abs=1e-6)
    assert all(type(key) is int and type(score) is float for key, score in hits)


def test_a_search_of_an_empty_index_finds_nothing(index: VectorIndex) -> None:
    assert index.search(axes(0)[0], 5) == []
    assert index.count() == 0


def test_a_limit_of_zero_finds_nothing(index: VectorIndex) -> None:
    index.upsert([1], axes(0))
    assert index.search(axes(0)[0], 0) == []


def test_an_upsert_of_an_existing_key_replaces_its_vector(index: VectorIndex) -> None:
    index.upsert([1, 2], axes(0, 1))
    index.upsert([1], axes(5))
    assert index.count() == 2
    assert index.search(axes(5)[0], 1)[0] == (1, pytest.approx(1.0))
    assert index.search(axes(0)[0], 2, among=[1])[0][1] == pytest.approx(0.0, abs=1e-6)


def test_of_a_key_repeated_in_one_upsert_the_last_vector_stays(index: VectorIndex) -> None:
    index.upsert([7, 7], axes(0, 3))
    assert index.count() == 1
    assert index.search(axes(3)[0], 1) == [(7, pytest.approx(1.0))]


def test_an_upsert_of_nothing_changes_nothing(index: VectorIndex) -> None:
    index.upsert([], np.zeros((0, DIMENSION), dtype=np.float32))
    assert index.count() == 0


def test_a_delete_ignores_unknown_keys(index: VectorIndex) -> None:
    index.upsert([1, 2], axes(0, 1))
    index.delete([2, 99])
    index.delete([])
    assert index.count() == 1
    assert keys_of(index.search(axes(1)[0], 5)) == [1]


def test_a_deleted_key_may_be_stored_again(index: VectorIndex) -> None:
    index.upsert([1], axes(0))
    index.delete([1])
    index.upsert([1], axes(2))
    assert index.search(axes(2)[0], 5) == [(1, pytest.approx(1.0))]


def test_among_restricts_the_search_to_its_keys(index: VectorIndex) -> None:
    rows = unit_vectors(40)
    index.upsert(range(1, 41), rows)
    hits = index.search(rows[0], 3, among={5, 9, 12, 30, 999})
    expected = sorted((5, 9, 12, 30), key=lambda key: -float(rows[key - 1] @ rows[0]))[:3]
    assert keys_of(hits) == expected


def test_among_nothing_finds_nothing(index: VectorIndex) -> None:
    index.upsert([1], axes(0))
    assert index.search(axes(0)[0], 5, among=[]) == []
    assert index.search(axes(0)[0], 5, among=[2]) == []


def test_among_many_keys_finds_the_best_of_them(index: VectorIndex) -> None:
    rows = unit_vectors(3000, seed=3)
    index.upsert(range(1, 3001), rows)
    even = range(2, 3001, 2)
    similarity = rows @ rows[0]
    expected = sorted(even, key=lambda key: -similarity[key - 1])[:10]
    assert len(set(keys_of(index.search(rows[0], 10, among=even))) & set(expected)) >= 9


def test_among_many_keys_far_from_the_query_is_still_answered_in_full(index: VectorIndex) -> None:
    rows = unit_vectors(2600, seed=4)
    index.upsert(range(1, 2601), rows)
    similarity = rows @ rows[0]
    farthest = [int(row) + 1 for row in np.argsort(similarity)[:1200]]
    hits = index.search(rows[0], 5, among=farthest)
    assert keys_of(hits) == sorted(farthest, key=lambda key: -similarity[key - 1])[:5]


def test_a_zero_vector_is_stored_and_similar_to_nothing(index: VectorIndex) -> None:
    index.upsert([1, 2], np.vstack([np.zeros((1, DIMENSION)), axes(0)]).astype(np.float32))
    assert index.search(axes(0)[0], 2) == [(2, pytest.approx(1.0)), (1, pytest.approx(0.0, abs=1e-6))]


@pytest.mark.parametrize(
    ("keys", "vectors"),
    [
        ([1, 2], np.zeros((1, DIMENSION))),
        ([1], np.zeros((1, DIMENSION + 1))),
        ([1], np.full((1, DIMENSION), np.nan)),
        ([0], np.zeros((1, DIMENSION))),
    ],
)
def test_vectors_that_do_not_fit_are_refused(index: VectorIndex, keys: list[int], vectors: Vectors) -> None:
    with pytest.raises(InvalidInputError):
        index.upsert(keys, vectors.astype(np.float32))
    assert index.count() == 0


@pytest.mark.parametrize("query", [np.zeros(3), np.full(DIMENSION, np.inf)])
def test_a_query_that_does_not_fit_is_refused(index: VectorIndex, query: Vectors) -> None:
    with pytest.raises(InvalidInputError):
        index.search(query.astype(np.float32), 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_sequence_of_changes_agrees_with_a_dictionary(index: VectorIndex, seed: int) -> None:
    dice = random.Random(seed)
    model: dict[int, NDArray[np.float32]] = {}
    for step in range(25):
        if dice.random() < 0.7:
            keys = [dice.randint(1, 80) for _ in range(dice.randint(1, 20))]
            rows = unit_vectors(len(keys), seed=1000 * seed + step)
            index.upsert(keys, rows)
            model.update(zip(keys, rows, strict=True))
        else:
            keys = [dice.randint(1, 90) for _ in range(dice.randint(1, 15))]
            index.delete(keys)
            for key in keys:
                model.pop(key, None)
        query = unit_vectors(1, seed=step)[0]
        among = None if dice.random() < 0.5 else [dice.randint(1, 90) for _ in range(20)]
        wanted = model.keys() if among is None else model.keys() & set(among)
        expected = sorted(((key, float(model[key] @ query)) for key in wanted), key=lambda hit: -hit[1])[:7]
        hits = index.search(query, 7, among=among)
        assert index.count() == len(model)
        assert len(hits) == len(expected)
        for key, score in hits:
            assert score == pytest.approx(float(model[key] @ query), abs=1e-5)
        assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
        missed = set(keys_of(expected)) - set(keys_of(hits))
        # Chroma's neighbours are approximate by design; ours are not.
        assert len(missed) <= (0 if isinstance(index, ExactVectorIndex) else 2)
