"""Entities live while something supports them, and links while a title does."""

from __future__ import annotations

import pytest

from loom_core.knowledge.model import About, Extraction, Mention, Relation
from loom_core.knowledge.store import KnowledgeStore

LEFT_EMPTY = ("entities", "names", "mentions", "abouts", "relations", "new_names")


@pytest.fixture
def chunks(record: KnowledgeStore, prepare) -> list[int]:
    for n in range(3):
        record.documents.upsert(prepare(f"text {n}", uri=f"text:{n}"))
    return record.documents.chunk_keys()


def mention(name: str, start: int = 0, type: str = "thing") -> Mention:  # noqa: A002
    return Mention(name, start, start + len(name), type)


def rows(record: KnowledgeStore, table: str) -> int:
    return len(record.database.rows(f"SELECT * FROM {table}"))


def test_spellings_of_one_name_are_one_entity_called_as_it_is_mostly_called(record: KnowledgeStore, chunks):
    record.graph.add(
        [
            (chunks[0], Extraction(mentions=(mention("The Zell"), mention("ZELL", 9, "place")))),
            (chunks[1], Extraction(mentions=(mention("Zell"), mention("Zell", 9), mention("——", 20)))),
        ]
    )
    (key,) = record.graph.keys()
    assert record.graph.find(["zell", "none"]) == {"zell": key}
    assert record.graph.names_of([key]) == {key: "Zell"}
    (node,) = record.graph.nodes([key, 99])
    assert (node.key, node.name, node.type, node.mentions) == (key, "Zell", "place", 4)
    assert record.graph.counts() == (1, 0, 4)


def test_relations_of_several_chunks_are_one_edge(record: KnowledgeStore, chunks):
    def saying(confidence: float) -> Extraction:
        return Extraction(relations=(Relation("Anna", "knows", "Carl", 0, 5, confidence=confidence),))

    record.graph.add([(chunks[0], saying(0.4)), (chunks[1], saying(0.9)), (chunks[1], Extraction())])
    anna, carl = (record.graph.find([name])[name] for name in ("anna", "carl"))
    (edge,) = record.graph.edges([carl])
    assert (edge.subject, edge.predicate, edge.object, edge.support, edge.confidence) == (
        anna,
        "knows",
        carl,
        2,
        0.9,
    )
    assert record.graph.edges_from([anna]) == [edge]
    assert record.graph.edges_from([carl]) == []
    assert [chunk for chunk, *_ in record.graph.evidence(anna, "knows", carl, limit=5)] == [
        chunks[1],
        chunks[0],
    ]
    # What a relation names is mentioned by it.
    assert {m.entity for m in record.graph.mentions_in([chunks[0]])} == {anna, carl}


def test_relations_whose_ends_have_no_name_are_left_out(record: KnowledgeStore, chunks):
    record.graph.add([(chunks[0], Extraction(relations=(Relation("…", "knows", "Carl", 0, 5),)))])
    assert record.graph.counts()[1] == 0


def test_what_chunks_are_about_is_found_surest_first(record: KnowledgeStore, chunks):
    record.graph.add(
        [
            (chunks[0], Extraction(abouts=(About("Zell", "heading", 0.5), About("Zell", "title", 0.7)))),
            (chunks[1], Extraction(abouts=(About("Zell", "title", 1.0), About("!", "title", 1.0)))),
        ]
    )
    (zell,) = record.graph.keys()
    assert record.graph.abouts_of([zell], limit=2) == {zell: [(chunks[1], 1.0), (chunks[0], 0.7)]}
    assert {a.source for a in record.graph.abouts_in([chunks[0]])} == {"heading", "title"}


def test_removing_chunks_removes_what_only_they_support(record: KnowledgeStore, chunks):
    both = Extraction(
        mentions=(mention("Zell"),),
        abouts=(About("Zell", "title", 1.0),),
        relations=(Relation("Zell", "lies in", "Austria", 0, 4),),
    )
    record.graph.add([(chunks[0], both), (chunks[1], Extraction(mentions=(mention("Zell"),)))])
    touched = record.graph.find(["zell", "austria"])
    assert record.graph.remove([chunks[0]]) == set(touched.values())
    assert record.graph.find(["zell", "austria"]).keys() == {"zell"}
    (node,) = record.graph.nodes(record.graph.keys())
    assert node.mentions == 1
    record.graph.remove(chunks)
    assert {table: rows(record, table) for table in LEFT_EMPTY} == dict.fromkeys(LEFT_EMPTY, 0)


def test_subjects_are_titles_headings_and_definitions_but_no_first_phrases(record: KnowledgeStore, chunks):
    record.graph.add(
        [
            (chunks[0], Extraction(abouts=(About("Zell", "title", 1.0), About("Anna", "first_phrase", 0.3)))),
            (chunks[1], Extraction(mentions=(mention("Basel"),))),
        ]
    )
    keys = record.graph.find(["zell", "anna", "basel"])
    assert record.graph.subjects() == [(keys["zell"], "zell")]
    assert record.graph.still_subjects(sorted(keys.values())) == {keys["zell"]}
    assert record.graph.new_names() == [(keys["zell"], "zell", 0)]
    assert record.graph.new_names(limit=0) == []
    record.graph.forget_new_names([keys["zell"]])
    record.graph.add([(chunks[2], Extraction(abouts=(About("Zell", "heading", 0.8),)))])
    assert record.graph.new_names() == []


def test_a_new_name_is_to_be_looked_for_in_the_chunks_that_were_linked_when_it_came(
    record: KnowledgeStore, chunks
):
    record.graph.advance_link_watermark(chunks[1])
    record.graph.add([(chunks[2], Extraction(abouts=(About("Zell", "title", 1.0),)))])
    assert (
        [name.newest for name in record.graph.new_names()] == [chunks[1]] == [record.graph.link_watermark()]
    )


def test_a_link_does_not_replace_what_an_extractor_found(record: KnowledgeStore, chunks):
    record.graph.add(
        [(chunks[0], Extraction(mentions=(mention("Zell"),), abouts=(About("Zell", "title", 1),)))]
    )
    (zell,) = record.graph.keys()
    links = [(chunks[0], zell, 0, 4, "Zell"), (chunks[1], zell, 2, 6, "ZELL")]
    assert record.graph.add_links(links) == {zell}
    assert record.graph.add_links(links) == set()
    found = record.database.rows("SELECT chunk, method FROM mentions ORDER BY chunk")
    assert [tuple(row) for row in found] == [(chunks[0], "rule"), (chunks[1], "title")]


def test_asides_of_an_entity_are_its_mentions_in_chunks_about_something_else(record: KnowledgeStore, chunks):
    mentions = Extraction(mentions=(mention("Zell"),))
    about = Extraction(mentions=(mention("Zell"),), abouts=(About("Zell", "title", 1.0),))
    record.graph.add([(chunks[0], about), (chunks[1], mentions), (chunks[2], mentions)])
    (zell,) = record.graph.keys()
    assert record.graph.passing_mentions_of([zell], limit=9) == {zell: [(chunk, 1.0) for chunk in chunks[1:]]}
    assert record.graph.passing_mentions_of([zell], limit=1) == {zell: [(chunks[1], 1.0)]}
    assert record.graph.mentions_of([zell], limit=2) == {zell: [(chunk, 1.0) for chunk in chunks[:2]]}


def test_links_go_with_the_last_title(record: KnowledgeStore, chunks):
    titled = Extraction(abouts=(About("Zell", "title", 1.0),))
    record.graph.add([(chunks[0], titled), (chunks[1], titled)])
    (zell,) = record.graph.keys()
    record.graph.add_links([(chunks[2], zell, 0, 4, "Zell")])
    record.graph.remove([chunks[0]])
    assert record.graph.mentions_of([zell], limit=9) == {zell: [(chunks[2], 1.0)]}
    assert record.graph.remove([chunks[1]]) == {zell}
    assert record.graph.keys() == []
    assert rows(record, "mentions") == 0


def test_entities_are_searched_by_part_of_a_name(record: KnowledgeStore, chunks):
    names = ("New York", "York", "Yorkshire", "Zell")
    record.graph.add([(chunks[0], Extraction(mentions=tuple(mention(n, i) for i, n in enumerate(names))))])
    found = record.graph.names_of(record.graph.keys())
    assert [found[key] for key in record.graph.search("york", limit=5)] == ["York", "Yorkshire", "New York"]
    assert record.graph.search("——", limit=5) == []
    assert record.graph.keys(after=1, limit=2) == [2, 3]
