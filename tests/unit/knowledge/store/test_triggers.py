"""Tables that follow others by triggers: those of SQLite and those of PostgreSQL do the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.duplicates import SimilarText
from loom_core.knowledge.text.edge_lines import EdgeLine

REPEATED = 10


@pytest.fixture
def documents(store: KnowledgeStore, prepare) -> Callable[[int], list[int]]:
    """Adds documents: their keys."""

    def add(count: int) -> list[int]:
        there = store.documents.counts()[0]
        store.documents.upsert_all([prepare(f"text {n}", uri=f"text:{there + n}") for n in range(count)])
        return [row.key for row in store.documents.list()][there:]

    return add


def count(store: KnowledgeStore, table: str) -> int:
    return store.database.rows(f"SELECT COUNT(*) FROM {table}")[0][0]


def test_a_text_and_what_is_known_of_it_goes_with_its_last_document(store: KnowledgeStore, documents):
    one, same, other = documents(3)
    assert store.duplicates.pending_comparisons(9) == [one, same, other]
    for document, hash_ in ((one, b"1"), (same, b"1"), (other, b"2")):
        first = store.duplicates.texts_with([b"1"]).get(b"1", 0)
        new = store.duplicates.upsert({document: hash_}, {hash_: [5, 5, 6]})
        store.duplicates.note_similar({text: [SimilarText(first, 0.9)] for text in new.values() if first})
    assert store.duplicates.pending_comparisons(9) == []
    assert [(copy.uri, copy.likeness) for copy in store.duplicates.of([one])[one]] == [
        ("text:1", 1),
        ("text:2", 0.9),
    ]
    assert (count(store, "texts"), count(store, "bands"), count(store, "likenesses")) == (2, 4, 1)
    store.documents.remove(one)
    assert (count(store, "texts"), store.duplicates.count()) == (2, 2)
    store.documents.remove(same)
    assert (count(store, "texts"), count(store, "bands"), count(store, "likenesses")) == (1, 2, 0)
    assert store.duplicates.count() == 0


def test_a_document_that_changes_is_compared_again_and_leaves_its_text(store: KnowledgeStore, prepare):
    store.documents.upsert(prepare("one"))
    store.duplicates.upsert({1: b"1"}, {})
    store.documents.upsert(prepare("two"))
    store.documents.upsert(prepare("two"))
    assert store.duplicates.pending_comparisons(9) == [1]
    store.duplicates.upsert({1: b"2"}, {})
    assert (store.duplicates.texts_with([b"1"]), count(store, "texts")) == ({}, 1)


def test_passages_are_judged_again_once_enough_documents_have_a_line_and_no_longer(
    store: KnowledgeStore, documents
):
    keys = documents(REPEATED + 1)

    def queued() -> list[int]:
        found = store.boilerplate.pending(99)
        with store.database.write() as db:
            db.execute("DELETE FROM unjudged")
        return found

    for n, key in enumerate(keys, start=1):
        store.boilerplate.set_lines({key: [EdgeLine(7, 20, True), EdgeLine(n + 100, 20, False)]})
        assert queued() == (keys[:REPEATED] if n == REPEATED else [key])
    assert store.boilerplate.repeated_lines(keys[:1]) == {keys[0]: {7}}
    assert store.boilerplate.lines_of(keys[:1])[keys[0]] == [
        EdgeLine(7, 20, True),
        EdgeLine(101, 20, False),
    ]
    store.documents.remove(keys[0])
    assert queued() == []
    store.boilerplate.set_lines({keys[1]: [EdgeLine(102, 21, False)]})
    assert queued() == keys[1:]
    assert store.boilerplate.lines_of(keys[1:2]) == {keys[1]: [EdgeLine(102, 21, False)]}
    store.documents.remove(keys[2])
    assert queued() == []


def test_what_was_boilerplate_goes_with_its_passage(store: KnowledgeStore, documents):
    documents(2)
    one, other = store.documents.chunk_keys()
    store.boilerplate.judge({1: [one], 2: [other]})
    assert store.graph.boilerplate_among([other, one, 99]) == {one, other}
    store.documents.remove(1)
    assert store.graph.boilerplate_among([other, one, 99]) == {other}


def test_the_highest_keys_stay_whatever_is_deleted(store: KnowledgeStore, documents, prepare):
    documents(3)
    store.changes.restart("words", generation=1, watermark=store.changes.head())
    head = store.changes.head()
    assert store.changes.prune()
    for key in (1, 2, 3):
        store.documents.remove(key)
    assert store.documents.last_chunk() == 3
    assert store.changes.head() > head
    store.documents.upsert(prepare("text"))
    assert (store.documents.list()[0].key, store.documents.chunk_keys()) == (4, [4])


def test_a_passage_whose_text_changes_waits_for_another_vector(store: KnowledgeStore, documents):
    import numpy as np

    documents(1)
    ((key, hash_),) = store.vectors.pending(9)
    store.vectors.store([hash_], np.ones((1, 2), np.float32))
    with store.database.write() as db:
        db.execute("UPDATE chunks SET vector_hash = ? WHERE key = ?", (b"other", key))
    assert (store.vectors.pending(9), store.vectors.coverage()) == ([(key, b"other")], (0, 1))
