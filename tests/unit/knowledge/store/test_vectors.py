"""Vectors by content: made once for a text, kept while a chunk has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.store import KnowledgeStore


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def store_all(store: KnowledgeStore) -> int:
    pending = store.vectors.pending(100)
    hashes = list(dict.fromkeys(hash_ for _, hash_ in pending))
    store.vectors.store(hashes, np.array([unit(1, n) for n in range(len(hashes))]).reshape(-1, 2))
    return len(hashes)


def test_chunks_wait_for_vectors_and_have_them_afterwards(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    assert store.vectors.coverage() == (0, 1)
    assert store_all(store) == 1
    assert store.vectors.coverage() == (1, 1)
    assert store.vectors.pending(10) == []
    keys, matrix = store.vectors.of([1, 99])
    assert keys == [1]
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, [[1, 0]])


def test_languages_come_with_the_vectors(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    store.documents.upsert(prepare("厦门是海滨城市。", uri="text:b"))
    assert store.vectors.languages_of([1, 2]) == {}
    store_all(store)
    expected = store.documents.languages_of([1, 2])
    assert len(set(expected.values())) == 2
    assert store.vectors.languages_of([2, 1, 99]) == expected
    keys, languages, matrix = store.vectors.with_languages([1, 2, 99])
    assert dict(zip(keys, languages, strict=True)) == expected
    np.testing.assert_array_equal(matrix, store.vectors.of(keys)[1])


def test_without_vectors_there_is_an_empty_matrix(store: KnowledgeStore):
    assert store.vectors.of([])[1].shape == (0, 0)
    assert store.vectors.coverage() == (0, 0)


def test_a_text_that_is_there_already_is_not_embedded_again(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    store_all(store)
    head = store.changes.head()
    store.documents.upsert(prepare("Some text.", uri="text:b"))
    assert store.vectors.coverage() == (2, 2)
    changes = store.changes.since(head)
    assert changes is not None
    assert changes.keys["vector+"] == changes.keys["chunk+"] == [2]


def test_a_vector_goes_with_the_last_chunk_that_has_its_text(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    store.documents.upsert(prepare("Some text.", uri="text:b"))
    store_all(store)
    store.documents.remove(1)
    assert store.vectors.coverage() == (1, 1)
    store.documents.remove(2)
    assert store.database.rows("SELECT * FROM vectors") == []


def test_a_vector_that_comes_after_its_text_has_gone_is_not_kept(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    ((_, hash_),) = store.vectors.pending(10)
    store.documents.remove(1)
    store.vectors.store([hash_], np.array([unit(1, 0)]))
    assert store.database.rows("SELECT * FROM vectors") == []


def test_all_vectors_can_be_forgotten(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("Some text."))
    store_all(store)
    store.vectors.clear()
    assert store.vectors.coverage() == (0, 1)


def plainly_waiting(store: KnowledgeStore) -> list[int]:
    rows = store.database.rows(
        "SELECT key FROM chunks AS c WHERE NOT EXISTS (SELECT 1 FROM vectors WHERE hash = c.vector_hash) "
        "ORDER BY key"
    )
    return [row["key"] for row in rows]


puts = st.tuples(st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=3))
steps = st.lists(puts | st.integers(0, 3) | st.sampled_from(["embed one", "embed all", "clear"]), max_size=14)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_whatever_happens_the_chunks_without_a_vector_are_those_that_wait(prepare, steps):
    """Documents that come, change and go, whose paragraphs are also elsewhere, and vectors between them."""
    store = KnowledgeStore(None)
    for step in steps:
        match step:
            case (uri, parts):
                text = "\n\n".join(f"第{part}段 says {part} and nothing else at all." for part in parts)
                store.documents.upsert(prepare(text, uri=f"text:{uri}"))
            case "embed one":
                for _, hash_ in store.vectors.pending(1):
                    store.vectors.store([hash_], np.array([unit(1, 0)]))
            case "embed all":
                store_all(store)
            case "clear":
                store.vectors.clear()
            case int():
                found = store.documents.get(f"text:{step}")
                store.documents.remove(0 if found is None else found.key)
        waiting = plainly_waiting(store)
        assert [key for key, _ in store.vectors.pending(1000)] == waiting
        assert [key for key, _ in store.vectors.pending(2)] == waiting[:2]
        total = len(store.documents.chunk_keys())
        assert store.vectors.coverage() == (total - len(waiting), total)
    store.close()


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_pending_looks_at_no_chunk_that_has_its_vector(store: KnowledgeStore, prepare, steps):
    """The cost does not grow with the number of finished chunks."""
    for n in range(50):
        store.documents.upsert(prepare(f"Text number {n}.", uri=f"text:{n}"))
    store_all(store)
    store.documents.upsert(prepare("One more.", uri="text:more"))
    with steps(store) as count:
        assert len(store.vectors.pending(16)) == 1
    assert count[0] < 10


def test_a_store_that_has_lost_its_counts_is_glanced_at_all_the_same(store: KnowledgeStore):
    with store.database.write() as db:
        db.execute("DELETE FROM coverage")
    glance = store.glance()
    assert (glance.embedded, glance.chunks, glance.head) == (0, 0, 0)
    assert store.vectors.coverage() == (0, 0)
