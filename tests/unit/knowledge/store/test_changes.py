"""The change log: what indexes have still to take over."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.changes import IndexState


def test_changes_come_in_order_and_in_parts(store: KnowledgeStore):
    store.changes.note("chunk+", [1, 2])
    store.changes.note("chunk-", [1])
    first = store.changes.since(0, limit=2)
    assert first is not None
    assert (first.keys["chunk+"], first.keys["chunk-"], first.watermark) == ([1, 2], [], 2)
    second = store.changes.since(first.watermark)
    assert second is not None
    assert (second.keys["chunk-"], second.watermark) == ([1], 3)
    assert store.changes.since(3) is None
    assert store.changes.head() == 3


def test_an_index_is_unbuilt_until_it_is_built(store: KnowledgeStore):
    assert store.changes.head() == 0
    assert store.changes.state("words") == IndexState(0, -1)
    assert not store.changes.state("words").built
    store.changes.note("chunk+", [1])
    store.changes.restart("words", generation=1, watermark=0)
    assert store.changes.state("words").built
    pending = store.changes.pending("words")
    assert pending is not None
    store.changes.advance("words", pending.watermark)
    assert store.changes.pending("words") is None


def test_a_distrusted_index_has_to_be_rebuilt(store: KnowledgeStore):
    store.changes.restart("words", generation=2, watermark=5)
    store.changes.mark_damaged("words", generation=1)
    assert store.changes.state("words").built
    store.changes.mark_damaged("words", generation=2)
    assert not store.changes.state("words").built
    assert store.changes.state("words").generation == 2


def test_changes_that_every_index_holds_are_pruned(store: KnowledgeStore):
    store.changes.note("chunk+", range(4))
    store.changes.note("chunk+", range(4, 10))
    store.changes.prune()
    assert store.changes.is_complete_since(0)
    store.changes.restart("words", generation=1, watermark=7)
    store.changes.restart("graph", generation=1, watermark=4)
    store.changes.prune()
    assert store.changes.head() == 10
    assert store.changes.is_complete_since(4)
    assert not store.changes.is_complete_since(3)
    pending = store.changes.pending("graph")
    assert pending is not None
    assert pending.keys["chunk+"] == [4, 5, 6, 7, 8, 9]


def test_after_pruning_everything_only_the_head_is_reached(store: KnowledgeStore):
    assert store.changes.is_complete_since(0)
    store.changes.note("chunk+", [1, 2, 3])
    store.changes.restart("words", generation=1, watermark=3)
    store.changes.prune()
    assert store.changes.head() == 3
    assert store.changes.is_complete_since(3)
    assert not store.changes.is_complete_since(2)


def test_keys_that_follow_each_other_are_changes_of_their_own(store: KnowledgeStore):
    store.changes.note("entity", [7, 8, 9, 3, 4, 4, 1])
    assert store.changes.head() == 7
    assert [tuple(row) for row in store.database.rows("SELECT seq, key, count FROM changes")] == [
        (3, 9, 3),
        (5, 4, 2),
        (6, 4, 1),
        (7, 1, 1),
    ]
    taken: list[int] = []
    watermark = 0
    while (pending := store.changes.since(watermark, limit=2)) is not None:
        assert pending.watermark == min(watermark + 2, 7)
        taken += pending.keys["entity"]
        watermark = pending.watermark
    assert taken == [7, 8, 9, 3, 4, 4, 1]


@pytest.mark.slow
@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 7), st.integers(0, 30))
def test_the_log_gives_back_what_was_noted_from_any_change_on(keys: list[int], limit: int, start: int):
    store = KnowledgeStore(None)
    with closing(store):
        store.changes.note("chunk+", keys)
        taken: list[int] = []
        watermark = min(start, len(keys))
        while (pending := store.changes.since(watermark, limit=limit)) is not None:
            assert len(pending.keys["chunk+"]) == pending.watermark - watermark <= limit
            taken += pending.keys["chunk+"]
            watermark = pending.watermark
        assert taken == keys[start:]
        assert watermark == store.changes.head() == len(keys)


def test_a_long_run_of_keys_is_pruned_in_parts(store: KnowledgeStore):
    store.changes.note("chunk+", range(1, 2501))
    store.changes.restart("words", generation=1, watermark=2100)
    assert store.changes.prune()
    assert store.changes.is_complete_since(2100)
    assert not store.changes.is_complete_since(1000)
    pending = store.changes.pending("words")
    assert pending is not None
    assert pending.keys["chunk+"] == list(range(2101, 2501))
    assert not store.changes.prune(), "what an index has still to take over stays"


def test_a_damaged_index_keeps_the_log_from_being_pruned(store: KnowledgeStore):
    store.changes.note("chunk+", [1, 2, 3])
    store.changes.restart("words", generation=1, watermark=3)
    store.changes.mark_damaged("words", generation=1)
    store.changes.prune()
    assert store.changes.is_complete_since(0)
