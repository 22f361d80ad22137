"""Exact search by vectors of 8 bits a number: the answers of a comparison with every vector."""

from pathlib import Path

import numpy as np
import pytest

from loom_core.knowledge.indexes.engines.exact_vectors import ExactVectorIndex
from loom_core.knowledge.indexes.engines.vector_codes import encode
from loom_core.knowledge.indexes.engines.vector_rows import FileRows

MANY = 30_000


def unit_vectors(kind: str, count: int, dimension: int) -> np.ndarray:
    """Vectors as different models make them: far apart, in a narrow cone, with few numbers that are not 0."""
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((count, dimension))
    if kind == "cone":
        vectors = 0.2 * vectors + 1
    elif kind == "sparse":
        vectors[rng.random((count, dimension)) < 0.9] = 0
        vectors[:, 0] += 0.01
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("kind", ["far apart", "cone", "sparse"])
@pytest.mark.parametrize("dimension", [3, 32])
@pytest.mark.parametrize("each", [7, 50])
def test_codes_leave_out_no_row_that_is_among_the_most_similar(kind: str, dimension: int, each: int) -> None:
    vectors = unit_vectors(kind, 3000, dimension)
    matrix, queries = vectors[100:], vectors[:100]
    alive = (np.arange(len(matrix)) % each > 0) == (each < 50)  # all but one of `each`, or only one
    codes = encode(matrix)
    for query in queries:
        similarities = np.where(alive, matrix.astype(np.float64) @ query, -2)
        for limit in (1, 40):
            places = codes.possible_places(matrix, query, limit, alive=alive)
            assert set(np.argsort(-similarities)[:limit]) <= set(places.tolist())
            assert alive[places].all()
            assert dimension == 3 or len(places) < len(matrix) / 2


def test_alive_rows_next_to_each_other_are_found_among_many_dead_ones() -> None:
    matrix = unit_vectors("far apart", 2000, 16)
    alive = np.arange(2000) % 400 == 7
    alive[:20] = True
    for query in matrix[100:120]:
        places = encode(matrix).possible_places(matrix, query, 20, alive=alive)
        best = np.argsort(-np.where(alive, matrix @ query, -2))[:20]
        assert set(best) <= set(places.tolist())
        assert alive[places].all()


def test_all_rows_are_possible_where_no_more_are_asked_for() -> None:
    matrix = unit_vectors("cone", 50, 8)
    alive = np.arange(50) < 20
    places = encode(matrix).possible_places(matrix, matrix[0], 20, alive=alive)
    assert places.tolist() == list(range(20))


@pytest.mark.parametrize("kind", ["far apart", "cone"])
def test_an_index_of_many_rows_answers_as_a_comparison_with_all(tmp_path: Path, kind: str) -> None:
    vectors = unit_vectors(kind, MANY, 24)
    index = ExactVectorIndex(24, FileRows(tmp_path / "zh", dimension=24, used=0, writable=True))
    index.upsert(range(1, MANY), vectors[1:])
    index.delete(range(1, 1000))
    index.upsert([1500, MANY + 5], vectors[:2])
    current = {key: vectors[key] for key in range(1000, MANY)} | {1500: vectors[0], MANY + 5: vectors[1]}
    keys, matrix = np.array(list(current)), np.array(list(current.values()))
    for query in vectors[:2000:400]:
        similarities = np.vecdot(matrix, query)
        best = np.lexsort((keys, -similarities))[:30]
        found = index.search(query, 30)
        assert [key for key, _ in found] == keys[best].tolist()
        assert np.allclose([similarity for _, similarity in found], similarities[best])
    index.close()


def test_a_vector_of_zeros_is_similar_to_nothing() -> None:
    matrix = np.vstack([np.zeros((1, 8), dtype=np.float32), unit_vectors("cone", 99, 8)])
    codes, alive = encode(matrix), np.ones(100, dtype=bool)
    places = codes.possible_places(matrix, matrix[5], 10, alive=alive)
    assert 5 in places
    assert 0 not in places
