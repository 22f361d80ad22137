"""Vectors by content: made once for a text, kept while a chunk has it."""

from __future__ import annotations

import numpy as np

from loom_core.knowledge.record import Record


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def store_all(record: Record) -> int:
    pending = record.vectors.pending(100)
    hashes = list(dict.fromkeys(hash_ for _, hash_ in pending))
    record.vectors.store(hashes, np.array([unit(1, n) for n in range(len(hashes))]).reshape(-1, 2))
    return len(hashes)


def test_chunks_wait_for_vectors_and_have_them_afterwards(record: Record, prepare):
    record.documents.put(prepare("Some text."))
    assert record.vectors.coverage() == (0, 1)
    assert store_all(record) == 1
    assert record.vectors.coverage() == (1, 1)
    assert record.vectors.pending(10) == []
    keys, matrix = record.vectors.all()
    assert keys == [1]
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, [[1, 0]])
    assert record.vectors.of([1, 99])[0] == [1]


def test_without_vectors_there_is_an_empty_matrix(record: Record):
    assert record.vectors.all()[1].shape == (0, 0)
    assert record.vectors.coverage() == (0, 0)


def test_a_text_that_is_there_already_is_not_embedded_again(record: Record, prepare):
    record.documents.put(prepare("Some text."))
    store_all(record)
    head = record.changes.head()
    record.documents.put(prepare("Some text.", uri="text:b"))
    assert record.vectors.coverage() == (2, 2)
    changes = record.changes.since(head)
    assert changes is not None
    assert changes.keys["vector+"] == changes.keys["chunk+"] == [2]


def test_a_vector_goes_with_the_last_chunk_that_has_its_text(record: Record, prepare):
    record.documents.put(prepare("Some text."))
    record.documents.put(prepare("Some text.", uri="text:b"))
    store_all(record)
    record.documents.remove(1)
    assert record.vectors.coverage() == (1, 1)
    record.documents.remove(2)
    assert record.database.rows("SELECT * FROM vectors") == []


def test_a_vector_that_comes_after_its_text_has_gone_is_not_kept(record: Record, prepare):
    record.documents.put(prepare("Some text."))
    ((_, hash_),) = record.vectors.pending(10)
    record.documents.remove(1)
    record.vectors.store([hash_], np.array([unit(1, 0)]))
    assert record.database.rows("SELECT * FROM vectors") == []


def test_all_vectors_can_be_forgotten(record: Record, prepare):
    record.documents.put(prepare("Some text."))
    store_all(record)
    record.vectors.clear()
    assert record.vectors.coverage() == (0, 1)


def test_a_sample_is_the_same_every_time_and_in_no_order_of_the_documents(record: Record, prepare):
    for n in range(30):
        record.documents.put(prepare(f"Text number {n}.", uri=f"text:{n}"))
    keys = record.documents.chunk_keys()
    some = record.vectors.sample(10)
    assert len(set(some)) == 10
    assert set(some) < set(keys)
    assert some == record.vectors.sample(20)[:10]
    assert some != sorted(some)
    assert sorted(record.vectors.sample(1000)) == keys


def test_there_is_no_sample_of_nothing(record: Record):
    assert record.vectors.sample(10) == []
