"""Linking passages to the subjects they name: complete, whenever and by whomever it is done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.ingest.entity_linker import EntityLinker
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPELINE = Pipeline.of(PipelineSpec("structure", {}, RuleSettings()))


def add(store: KnowledgeStore, names: Sequence[str], *, naming: str) -> None:
    """Adds a document about each name, whose text has another name."""
    drafts = [
        DocumentDraft(uri=f"text:{name}", title=name, title_source="given", text=f"it lies near {naming}.")
        for name in names
    ]
    store.documents.upsert_all([made for draft in drafts if (made := PIPELINE.prepare_one(draft))])


def link_all(store: KnowledgeStore, words: LexicalIndexes) -> int:
    linker = EntityLinker(store, words)
    steps = 0
    while linker.link_some():
        steps += 1
    return steps


def links(store: KnowledgeStore) -> set[tuple[str, str]]:
    rows = store.database.rows(
        "SELECT d.title, e.id FROM mentions AS m JOIN chunks AS c ON c.key = m.chunk "
        "JOIN documents AS d ON d.key = c.document JOIN entities AS e ON e.key = m.entity "
        "WHERE m.entity IN (SELECT entity FROM abouts WHERE source = 'title')"
    )
    return {(title, id_) for title, id_ in rows}


def test_names_are_found_in_the_chunks_before_them_and_after_them_and_next_to_them():
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    add(store, ["cape alder", "cape birch"], naming="cape cedar 与 cape alder")
    assert link_all(store, words)
    assert links(store) == {("cape alder", "cape alder"), ("cape birch", "cape alder")}
    add(store, ["cape cedar"], naming="cape birch 与 cape dogwood")
    add(store, ["cape dogwood"], naming="nothing")
    assert link_all(store, words)
    assert links(store) == {
        ("cape alder", "cape alder"),
        ("cape birch", "cape alder"),
        ("cape alder", "cape cedar"),
        ("cape birch", "cape cedar"),
        ("cape cedar", "cape birch"),
        ("cape cedar", "cape dogwood"),
    }
    assert not link_all(store, words)


def test_a_name_is_linked_once_in_a_chunk_and_not_within_a_longer_name():
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    add(store, ["cape alder"], naming="cape alder bay, cape alder and cape alder")
    add(store, ["cape alder bay"], naming="nothing")
    link_all(store, words)
    rows = store.database.rows("SELECT name, start FROM mentions WHERE method = 'title' AND chunk = 1")
    assert {tuple(row) for row in rows} == {("cape alder bay", 13), ("cape alder", 29)}


def test_what_one_process_began_another_ends():
    names = [f"cape number{n}" for n in range(20)]
    expected = {(name, named) for name in names for named in ("cape number7", "cape number19")}
    begun: list[bool] = [True]
    while begun[-1]:
        store = KnowledgeStore(None)
        words = LexicalIndexes(store, None)
        for some in (names[:8], names[8:]):
            add(store, some, naming="cape number7 and cape number19")
            linker = EntityLinker(store, words, chunks=3, names=2)
            begun = [linker.link_some() for _ in begun]
        link_all(store, words)
        assert links(store) == expected
        begun.append(begun[-1])
    assert len(begun) > 8


def test_a_name_that_comes_while_chunks_are_searched_is_found_in_them():
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    names = [f"cape number{n}" for n in range(40)]
    adding = threading.Thread(
        target=lambda: [add(store, [name], naming=" and ".join(names)) for name in names]
    )
    adding.start()
    linker = EntityLinker(store, words)
    while adding.is_alive() or linker.link_some():
        linker.link_some()
    adding.join()
    link_all(store, words)
    assert len(links(store)) == len(names) ** 2


def test_many_new_names_are_found_in_the_chunks_before_them_without_the_index_of_words():
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    later = [f"cape later{n}" for n in range(30)]
    add(store, [f"cape early{n}" for n in range(10)], naming="cape later3、cape later17 和 cape later29")
    link_all(store, words)
    watermark = store.changes.state("words")
    add(store, later, naming="cape early4")
    link_all(store, words)
    assert store.changes.state("words") == watermark
    assert {("cape early0", f"cape later{n}") for n in (3, 17, 29)} <= links(store)
    assert len(links(store)) == 3 * 10 + len(later)


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_name_that_goes_and_comes_back_while_earlier_chunks_are_read_is_found_in_all_of_them(steps: int):
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    early = [f"cape early{n}" for n in range(10)]
    later = [f"cape later{n}" for n in range(30)]
    add(store, early, naming="cape later3 and cape later17")
    add(store, ["rock"], naming="Cape Later3")  # found by rules, so that the entity stays
    link_all(store, words)
    add(store, later, naming="nothing")
    linker = EntityLinker(store, words, chunks=3)
    while store.graph.link_watermark() < store.documents.last_chunk():
        linker.link_some()
    for _ in range(steps):
        linker.link_some()
    document = store.documents.get("text:cape later3")
    assert document is not None
    store.documents.remove(document.key)
    add(store, ["cape later3"], naming="nothing")
    while linker.link_some():
        pass
    expected = {(name, named) for name in early for named in ("cape later3", "cape later17")}
    assert links(store) == expected | {("rock", "cape later3")}


def test_a_name_whose_last_title_is_gone_is_not_linked():
    store = KnowledgeStore(None)
    words = LexicalIndexes(store, None)
    linker = EntityLinker(store, words)
    add(store, ["cape alder"], naming="nothing")
    while linker.link_some():
        pass
    document = store.documents.get("text:cape alder")
    assert document is not None
    store.documents.remove(document.key)
    add(store, ["cape birch"], naming="cape alder")
    while linker.link_some():
        pass
    assert links(store) == set()
