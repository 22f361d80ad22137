"""Derived indexes follow the record, and start over where they are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loom_core.knowledge.indexes import ChromaVectors, DerivedLexicalIndex, FlatVectors, GraphIndex
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.text.analysis import analyse

TEXTS = [f"Town{n} is a town near Town{(n + 1) % 6} on the river Anna." for n in range(6)]


def check(
    record: KnowledgeStore, index: DerivedLexicalIndex | GraphIndex | FlatVectors | ChromaVectors
) -> None:
    """The index holds exactly what the record does, and answers."""
    index.sync_all()
    keys = record.documents.chunk_keys()
    match index:
        case DerivedLexicalIndex():
            words = index.searcher()
            assert words is not None
            assert words.count() == len(keys)
            assert {key for key, _ in words.search(analyse("river"), 100)} == set(keys)
        case FlatVectors():
            vectors = index.searcher()
            assert vectors is not None
            assert vectors.keys() == set(keys)
            of, matrix = record.vectors.of(keys[:1])
            assert vectors.search(matrix[0], 1)[0][0] == of[0]
            np.testing.assert_array_equal(vectors.vectors(of), matrix)
        case ChromaVectors():
            found = index.searcher()
            if found is None:  # it is opened by the next step, which may find it damaged
                index.sync_all()
                found = index.searcher()
            assert found is not None
            assert sum(group.count() for group in found.values()) == len(keys)
            of, matrix = record.vectors.of(keys[:1])
            assert found["alphabetic"].search(matrix[0], 1)[0][0] == of[0]
        case GraphIndex():
            if index.store() is None:  # a question does not open it, but has it opened
                index.sync_all()
            graph = index.store()
            assert graph is not None
            entities = record.graph.keys()
            assert graph.counts() == (len(entities), record.graph.counts()[1])
            assert sorted(graph.get(entities), key=lambda n: n.key) == sorted(
                record.graph.nodes(entities), key=lambda n: n.key
            )
    assert index.lag() == 0


KINDS = {"words": DerivedLexicalIndex, "graph": GraphIndex, "vectors": FlatVectors, "chroma": ChromaVectors}
Make = Callable[[], Any]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, record: KnowledgeStore, tmp_path: Path):
    """Makes one kind of index on disk, as often as asked; all are closed in the end."""
    made: list[Any] = []

    def index() -> Any:
        made.append(KINDS[request.param](record, tmp_path))
        return made[-1]

    yield index
    for one in made:
        one.close()


def test_nothing_is_built_while_there_is_nothing(make: Make, tmp_path: Path):
    index = make()
    assert index.sync() is False
    assert index.lag() == 0
    assert (index.store() if isinstance(index, GraphIndex) else index.searcher()) is None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_index_follows_what_comes_changes_and_goes(make: Make, record: KnowledgeStore, put):
    index = make()
    put(*TEXTS[:3])
    check(record, index)
    put(*TEXTS[3:], first=3)
    put(TEXTS[0].replace("town", "city"))
    check(record, index)
    record.documents.remove(2)
    check(record, index)


def test_changes_may_come_one_by_one(make: Make, record: KnowledgeStore, put):
    index = make()
    put(*TEXTS[:2])
    check(record, index)
    put(*TEXTS[2:], first=2)
    record.documents.remove(1)
    while index.sync(limit=1):
        pass
    check(record, index)


@pytest.mark.slow
def test_an_index_goes_on_where_it_was_closed(make: Make, record: KnowledgeStore, put):
    first = make()
    put(*TEXTS[:3])
    check(record, first)
    first.close()
    put(*TEXTS[3:], first=3)
    check(record, make())
    assert record.changes.state(first.name).generation == 1


def test_an_index_is_built_even_if_its_changes_were_pruned(make: Make, record: KnowledgeStore, put):
    put(*TEXTS)
    record.changes.restart("words" if make().name != "words" else "graph", generation=1, watermark=10**6)
    record.changes.prune()
    check(record, make())


def test_a_rebuild_that_was_cut_short_is_begun_again(make: Make, record: KnowledgeStore, put, tmp_path: Path):
    put(*TEXTS)
    index = make()
    rubbish = tmp_path / f"{index.name}-1"
    rubbish.mkdir()
    (rubbish / "half").write_text("of an index", encoding="ascii")
    check(record, index)
    assert record.changes.state(index.name).generation == 1


def delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def truncate(path: Path) -> None:
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 3])


def scribble(path: Path) -> None:
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            file.write_bytes(b"\xff" * min(file.stat().st_size, 1 << 20))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [delete, truncate, scribble])
def test_a_damaged_index_is_rebuilt_from_the_record(
    make: Make, record: KnowledgeStore, put, tmp_path: Path, damage
):
    index = make()
    put(*TEXTS[:3])
    check(record, index)
    index.close()
    damage(tmp_path / f"{index.name}-1")
    put(*TEXTS[3:], first=3)
    check(record, make())
    assert record.changes.state(index.name).generation == 2
    assert not (tmp_path / f"{index.name}-1").exists()


def test_damage_is_found_without_any_change_to_take_over(
    make: Make, record: KnowledgeStore, put, tmp_path: Path
):
    index = make()
    put(*TEXTS)
    check(record, index)
    index.close()
    delete(tmp_path / f"{index.name}-1")
    index = make()
    if isinstance(index, DerivedLexicalIndex):
        assert index.searcher() is None  # any process may search, but only one may rebuild
    check(record, index)
    assert record.changes.state(index.name).generation == 2


def test_damage_that_shows_only_in_use_can_be_reported(record: KnowledgeStore, put, tmp_path: Path):
    from loom_core.errors import IndexDamagedError

    index = DerivedLexicalIndex(record, tmp_path)
    put(*TEXTS)
    check(record, index)
    index.report_damage(IndexDamagedError("a segment cannot be read"))
    assert index.searcher() is None
    check(record, index)
    assert record.changes.state("words").generation == 2
    index.close()


def test_a_reader_follows_another_writer_and_its_rebuilds(record: KnowledgeStore, put, tmp_path: Path):
    writer, reader = DerivedLexicalIndex(record, tmp_path), DerivedLexicalIndex(record, tmp_path)
    put(*TEXTS[:2])
    assert reader.searcher() is None
    writer.sync_all()
    found = reader.searcher()
    assert found is not None
    assert found.count() == 2
    put(*TEXTS[2:4], first=2)
    writer.sync_all()
    found = reader.searcher()
    assert found is not None
    assert found.count() == 4
    record.changes.mark_damaged("words", generation=1)
    assert reader.searcher() is None
    writer.sync_all()
    found = reader.searcher()
    assert found is not None
    assert found.count() == 4
    reader.close()
    writer.close()


def test_a_large_change_of_the_graph_is_a_new_graph(record: KnowledgeStore, put, tmp_path: Path):
    index = GraphIndex(record, tmp_path)
    put(TEXTS[0])
    check(record, index)
    put(*[f"Place{n} is a town near Spot{n} and Site{n}." for n in range(170)], first=1)
    check(record, index)
    assert record.changes.state("graph").generation == 2
    index.close()


@pytest.mark.parametrize("kind", [DerivedLexicalIndex, GraphIndex, FlatVectors])
def test_an_index_in_memory_follows_and_is_whole_again_after_closing(kind, record: KnowledgeStore, put):
    index = kind(record, None)
    put(*TEXTS[:3])
    check(record, index)
    put(*TEXTS[3:], first=3)
    record.documents.remove(1)
    check(record, index)
    index.close()
    check(record, index)
    check(record, kind(record, None))
