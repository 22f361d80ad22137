"""Vectors in memory and on disk answer the same questions from the same record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loom_core.errors import IndexDamagedError
from loom_core.knowledge.indexing import VectorsInMemory, VectorsOnDisk, VectorsSearched
from loom_core.knowledge.record import Record

ENGLISH = ["Zell is a town.", "The river Anna is long.", "Boats lie in the harbour.", "Bread is sold here."]
CHINESE = ["厦门是城市。", "港口里有渔船。"]


@pytest.fixture
def on_disk(record: Record, tmp_path: Path) -> Iterator[VectorsOnDisk]:
    index = VectorsOnDisk(record, tmp_path)
    yield index
    index.close()


@pytest.fixture
def question() -> np.ndarray:
    vector = np.arange(1, 9, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def plain(record: Record) -> dict[str, dict[int, np.ndarray]]:
    """Every vector of the record, by language group."""
    keys, matrix = record.vectors.all()
    languages = record.documents.languages_of(keys)
    groups: dict[str, dict[int, np.ndarray]] = {}
    for key, row in zip(keys, matrix, strict=True):
        group = "zh" if languages[key] == "zh" else "alphabetic"
        groups.setdefault(group, {})[key] = row
    return groups


def check(record: Record, found, question: np.ndarray, *, means: bool = True) -> None:
    """The neighbours are those of the record, by language."""
    expected = plain(record)
    assert {group.language for group in found} == expected.keys()
    for group in found:
        rows = expected[group.language]
        assert dict(group.hits) == pytest.approx(
            {key: float(row @ question) for key, row in rows.items()}, abs=1e-3
        )
        cosines = [cosine for _, cosine in group.hits]
        assert cosines == sorted(cosines, reverse=True)
        if means:
            assert group.size == len(rows)
            assert group.mean == pytest.approx(
                float(np.mean(list(rows.values()), axis=0) @ question), abs=1e-3
            )


def test_in_memory_the_record_is_followed_language_by_language(record: Record, put, question):
    memory = VectorsInMemory(record)
    assert memory.current().by_language(question, 10) == []
    put(*ENGLISH, *CHINESE)
    check(record, memory.current().by_language(question, 10), question)
    put("港口很安静。", "A quay.", first=10)
    record.documents.remove(1)
    record.documents.remove(5)
    check(record, memory.current().by_language(question, 10), question)


def test_in_memory_a_document_may_change_its_language(record: Record, put, question):
    memory = VectorsInMemory(record)
    put("Zell is a town.")
    memory.current()
    put("厦门是城市。")
    check(record, memory.current().by_language(question, 10), question)
    assert set(memory.current().languages(record.documents.chunk_keys()).values()) == {"zh"}


def test_on_disk_neighbours_are_told_by_language_with_their_average(record, put, on_disk, question):
    searched = VectorsSearched(on_disk, record)
    assert searched.by_language(question, 10) == []
    put(*ENGLISH, *CHINESE)
    on_disk.sync_all()
    check(record, searched.by_language(question, 10), question)
    keys = record.documents.chunk_keys()
    assert searched.languages([*keys, 99]) == VectorsInMemory(record).current().languages(keys)
    chinese = frozenset(key for key, group in searched.languages(keys).items() if group == "zh")
    assert searched.language_groups() == {"alphabetic", "zh"}
    (group,) = searched.by_language(question, 10, among=chinese)
    assert (group.language, {key for key, _ in group.hits}) == ("zh", chinese)


def test_on_disk_vectors_and_scores_are_those_in_memory(record, put, on_disk, question):
    put(*ENGLISH, *CHINESE)
    on_disk.sync_all()
    keys = [*record.documents.chunk_keys(), 99]
    searched, memory = VectorsSearched(on_disk, record), VectorsInMemory(record).current()
    np.testing.assert_array_equal(searched.vectors(keys), memory.vectors(keys))
    assert searched.scores(question, keys) == pytest.approx(memory.scores(question, keys), abs=1e-6)
    assert searched.scores(question, [99]) == {}


def test_averages_are_made_once_for_each_build(record, put, on_disk, question):
    put(*ENGLISH)
    on_disk.sync_all()
    assert {group: size for group, (size, _) in on_disk.means().items()} == {"alphabetic": 4}
    put(*CHINESE, first=10)
    on_disk.sync_all()
    assert on_disk.means().keys() == {"alphabetic"}
    # A language that came later has no average of its own; its passages are found all the same.
    found = {group.language: group for group in VectorsSearched(on_disk, record).by_language(question, 10)}
    assert (found["zh"].size, found["zh"].mean, len(found["zh"].hits)) == (0, 0.0, 2)
    on_disk.report_damage(IndexDamagedError("It is to be built again."))
    on_disk.sync_all()
    assert on_disk.means().keys() == {"alphabetic", "zh"}


def test_without_vectors_there_are_no_averages(on_disk):
    assert on_disk.means() == {}
