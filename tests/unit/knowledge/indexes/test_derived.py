"""Derived indexes follow the record, and start over where they are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loom_core.knowledge.indexes import ChromaVectors, DerivedLexicalIndex, FlatVectors, GraphIndex
from loom_core.knowledge.interface import LexicalQuery
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.text.analysis import analyse

TEXTS = [f"Town{n} is a town near Town{(n + 1) % 6} on the river Anna." for n in range(6)]


def check(
    store: KnowledgeStore, index: DerivedLexicalIndex | GraphIndex | FlatVectors | ChromaVectors
) -> None:
    """The index holds exactly what the record does, and answers."""
    index.sync_all()
    keys = store.documents.chunk_keys()
    match index:
        case DerivedLexicalIndex():
            words = index.searcher()
            assert words is not None
            assert words.count() == len(keys)
            assert {key for key, _ in words.search([LexicalQuery(analyse("river"), 100)])[0]} == set(keys)
        case FlatVectors():
            vectors = index.searcher()
            assert vectors is not None
            assert vectors.keys() == set(keys)
            of, matrix = store.vectors.of(keys[:1])
            assert vectors.search(matrix[0], 1)[0][0] == of[0]
            np.testing.assert_array_equal(vectors.vectors(of), matrix)
        case ChromaVectors():
            found = index.searcher()
            if found is None:  # it is opened by the next step, which may find it damaged
                index.sync_all()
                found = index.searcher()
            assert found is not None
            assert sum(group.count() for group in found.values()) == len(keys)
            of, matrix = store.vectors.of(keys[:1])
            assert found["alphabetic"].search(matrix[0], 1)[0][0] == of[0]
        case GraphIndex():
            if index.graph_store() is None:  # a question does not open it, but has it opened
                index.sync_all()
            graph = index.graph_store()
            assert graph is not None
            entities = store.graph.keys()
            assert graph.counts() == (len(entities), store.graph.counts()[1])
            assert sorted(graph.get(entities), key=lambda n: n.key) == sorted(
                store.graph.nodes(entities), key=lambda n: n.key
            )
    assert index.lag() == 0


KINDS = {"words": DerivedLexicalIndex, "graph": GraphIndex, "vectors": FlatVectors, "chroma": ChromaVectors}
Make = Callable[[], Any]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, store: KnowledgeStore, tmp_path: Path):
    """Makes one kind of index on disk, as often as asked; all are closed in the end."""
    made: list[Any] = []

    def index() -> Any:
        made.append(KINDS[request.param](store, tmp_path))
        return made[-1]

    yield index
    for one in made:
        one.close()


def test_nothing_is_built_while_there_is_nothing(make: Make, tmp_path: Path):
    index = make()
    assert index.sync() is False
    assert index.lag() == 0
    assert (index.graph_store() if isinstance(index, GraphIndex) else index.searcher()) is None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_index_follows_what_comes_changes_and_goes(make: Make, store: KnowledgeStore, put):
    index = make()
    put(*TEXTS[:3])
    check(store, index)
    put(*TEXTS[3:], first=3)
    put(TEXTS[0].replace("town", "city"))
    check(store, index)
    store.documents.remove(2)
    check(store, index)


def test_changes_may_come_one_by_one(make: Make, store: KnowledgeStore, put):
    index = make()
    put(*TEXTS[:2])
    check(store, index)
    put(*TEXTS[2:], first=2)
    store.documents.remove(1)
    while index.sync(limit=1):
        pass
    check(store, index)


@pytest.mark.slow
def test_an_index_goes_on_where_it_was_closed(make: Make, store: KnowledgeStore, put):
    first = make()
    put(*TEXTS[:3])
    check(store, first)
    first.close()
    put(*TEXTS[3:], first=3)
    check(store, make())
    assert store.changes.state(first.name).generation == 1


def test_an_index_is_built_even_if_its_changes_were_pruned(make: Make, store: KnowledgeStore, put):
    put(*TEXTS)
    store.changes.restart("words" if make().name != "words" else "graph", generation=1, watermark=10**6)
    store.changes.prune()
    check(store, make())


def test_a_rebuild_that_was_cut_short_is_begun_again(make: Make, store: KnowledgeStore, put, tmp_path: Path):
    put(*TEXTS)
    index = make()
    rubbish = tmp_path / f"{index.name}-1"
    rubbish.mkdir()
    (rubbish / "half").write_text("of an index", encoding="ascii")
    check(store, index)
    assert store.changes.state(index.name).generation == 1


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
    make: Make, store: KnowledgeStore, put, tmp_path: Path, damage
):
    index = make()
    put(*TEXTS[:3])
    check(store, index)
    index.close()
    damage(tmp_path / f"{index.name}-1")
    put(*TEXTS[3:], first=3)
    check(store, make())
    assert store.changes.state(index.name).generation == 2
    assert not (tmp_path / f"{index.name}-1").exists()


def test_damage_is_found_without_any_change_to_take_over(
    make: Make, store: KnowledgeStore, put, tmp_path: Path
):
    index = make()
    put(*TEXTS)
    check(store, index)
    index.close()
    delete(tmp_path / f"{index.name}-1")
    index = make()
    if isinstance(index, DerivedLexicalIndex):
        assert index.searcher() is None  # any process may search, but only one may rebuild
    check(store, index)
    assert store.changes.state(index.name).generation == 2


def test_damage_that_shows_only_in_use_can_be_reported(store: KnowledgeStore, put, tmp_path: Path):
    from loom_core.errors import IndexDamagedError

    index = DerivedLexicalIndex(store, tmp_path)
    put(*TEXTS)
    check(store, index)
    index.report_damage(IndexDamagedError("a segment cannot be read"))
    assert index.searcher() is None
    check(store, index)
    assert store.changes.state("words").generation == 2
    index.close()


def test_a_reader_follows_another_writer_and_its_rebuilds(store: KnowledgeStore, put, tmp_path: Path):
    writer, reader = DerivedLexicalIndex(store, tmp_path), DerivedLexicalIndex(store, tmp_path)
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
    store.changes.mark_damaged("words", generation=1)
    assert reader.searcher() is None
    writer.sync_all()
    found = reader.searcher()
    assert found is not None
    assert found.count() == 4
    reader.close()
    writer.close()


def test_a_large_change_of_the_graph_is_a_new_graph(store: KnowledgeStore, put, tmp_path: Path):
    index = GraphIndex(store, tmp_path)
    put(TEXTS[0])
    check(store, index)
    put(*[f"Place{n} is a town near Spot{n} and Site{n}." for n in range(170)], first=1)
    check(store, index)
    assert store.changes.state("graph").generation == 2
    index.close()


@pytest.mark.parametrize("kind", [DerivedLexicalIndex, GraphIndex, FlatVectors])
def test_an_index_in_memory_follows_and_is_whole_again_after_closing(kind, store: KnowledgeStore, put):
    index = kind(store, None)
    put(*TEXTS[:3])
    check(store, index)
    put(*TEXTS[3:], first=3)
    store.documents.remove(1)
    check(store, index)
    index.close()
    check(store, index)
    check(store, kind(store, None))
