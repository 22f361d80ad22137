"""Spellings of names: what counts as another name, what as the same one in another script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loom_core.knowledge.rag.entity_aliases import in_several_scripts, spellings_of
from loom_core.knowledge.store import Record


@pytest.fixture
def record() -> Iterator[Record]:
    record = Record(None)
    yield record
    record.close()


def write(record: Record, entity: int, *names: tuple[str, int]) -> None:
    """Write an entity whose names were used so many times."""
    with record.database.write() as db:
        db.execute("INSERT INTO entities (key, id, form) VALUES (?, ?, '')", (entity, f"entity {entity}"))
        db.executemany(
            "INSERT INTO names (entity, name, type, uses) VALUES (?, ?, 'thing', ?)",
            [(entity, name, uses) for name, uses in names],
        )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([("臺灣", 1), ("台湾", 3)], [("台湾", "臺灣")]),
        ([("臺灣", 2), ("台湾", 2), ("台灣", 1)], [("台湾", "臺灣", "台灣")]),
        ([("ＷＨＯ", 1), ("WHO", 5)], [("WHO", "ＷＨＯ")]),
        ([("McDonald", 1), ("Mcdonald", 2)], []),
        ([("Zürich", 1), ("Zu\u0308rich", 2)], []),  # which nobody sees
        ([("U.S.", 1), ("US", 2)], []),
        ([("厦门", 1)], []),
    ],
)
def test_only_names_that_differ_by_their_script_are_listed(
    record: Record, names: list[tuple[str, int]], found: list[tuple[str, ...]]
) -> None:
    write(record, 1, *names)
    write(record, 2, ("Basel", 1))
    assert in_several_scripts(record.database) == found


def test_spellings_come_the_most_used_first_and_once_for_each_that_differs_by_more_than_case(
    record: Record,
) -> None:
    write(record, 1, ("臺灣", 1), ("台湾", 4), ("TAIWAN", 2), ("Taiwan", 3))
    write(record, 2, ("Formosa", 9))
    assert spellings_of(record.database, [1]) == ["台湾", "Taiwan", "臺灣"]
    assert spellings_of(record.database, [1, 2]) == ["Formosa", "台湾", "Taiwan", "臺灣"]
    assert spellings_of(record.database, []) == []
