"""The change log: what indexes have still to take over."""

from __future__ import annotations

from loom_core.knowledge.record import Record
from loom_core.knowledge.record.changes import IndexState


def test_changes_come_in_order_and_in_parts(record: Record):
    record.changes.note("chunk+", [1, 2])
    record.changes.note("chunk-", [1])
    first = record.changes.since(0, limit=2)
    assert first is not None
    assert (first.keys["chunk+"], first.keys["chunk-"], first.watermark) == ([1, 2], [], 2)
    second = record.changes.since(first.watermark)
    assert second is not None
    assert (second.keys["chunk-"], second.watermark) == ([1], 3)
    assert record.changes.since(3) is None
    assert record.changes.head() == 3


def test_an_index_is_unbuilt_until_it_is_built(record: Record):
    assert record.changes.head() == 0
    assert record.changes.state("words") == IndexState(0, -1)
    assert not record.changes.state("words").built
    record.changes.note("chunk+", [1])
    record.changes.restart("words", generation=1, watermark=0)
    assert record.changes.state("words").built
    pending = record.changes.pending("words")
    assert pending is not None
    record.changes.advance("words", pending.watermark)
    assert record.changes.pending("words") is None


def test_a_distrusted_index_has_to_be_built_anew(record: Record):
    record.changes.restart("words", generation=2, watermark=5)
    record.changes.distrust("words", generation=1)
    assert record.changes.state("words").built
    record.changes.distrust("words", generation=2)
    assert not record.changes.state("words").built
    assert record.changes.state("words").generation == 2


def test_changes_that_every_index_holds_are_pruned(record: Record):
    record.changes.note("chunk+", range(10))
    record.changes.prune()
    assert record.changes.reaches_back_to(0)
    record.changes.restart("words", generation=1, watermark=7)
    record.changes.restart("graph", generation=1, watermark=4)
    record.changes.prune()
    assert record.changes.head() == 10
    assert record.changes.reaches_back_to(4)
    assert not record.changes.reaches_back_to(3)
    pending = record.changes.pending("graph")
    assert pending is not None
    assert pending.keys["chunk+"] == [4, 5, 6, 7, 8, 9]


def test_after_pruning_everything_only_the_head_is_reached(record: Record):
    assert record.changes.reaches_back_to(0)
    record.changes.note("chunk+", [1, 2, 3])
    record.changes.restart("words", generation=1, watermark=3)
    record.changes.prune()
    assert record.changes.head() == 3
    assert record.changes.reaches_back_to(3)
    assert not record.changes.reaches_back_to(2)


def test_a_damaged_index_keeps_the_log_from_being_pruned(record: Record):
    record.changes.note("chunk+", [1, 2, 3])
    record.changes.restart("words", generation=1, watermark=3)
    record.changes.distrust("words", generation=1)
    record.changes.prune()
    assert record.changes.reaches_back_to(0)
