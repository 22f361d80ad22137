"""Entities live while something supports them, and links while a title does."""

from __future__ import annotations

import pytest

from loom_core.knowledge.maintenance.check import check_graph
from loom_core.knowledge.model import About, Extraction, Mention, Relation
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.mentions import MentionLink
from loom_core.knowledge.text.surface_forms import name_key

LEFT_EMPTY = ("entities", "names", "mentions", "abouts", "relations", "new_names")


@pytest.fixture
def chunks(store: KnowledgeStore, prepare) -> list[int]:
    for n in range(3):
        store.documents.upsert(prepare(f"text {n}", uri=f"text:{n}"))
    return store.documents.chunk_keys()


def mention(name: str, start: int = 0, type: str = "thing") -> Mention:  # noqa: A002
    return Mention(name, start, start + len(name), type)


def rows(store: KnowledgeStore, table: str) -> int:
    return len(store.database.rows(f"SELECT * FROM {table}"))


def test_spellings_of_one_name_are_one_entity_called_as_it_is_mostly_called(store: KnowledgeStore, chunks):
    store.graph.add(
        [
            (chunks[0], Extraction(mentions=(mention("The Zell"), mention("ZELL", 9, "place")))),
            (chunks[1], Extraction(mentions=(mention("Zell", 0, "place"), mention("——", 20)))),
            (chunks[2], Extraction(mentions=(mention("Zell", 0, "place"), mention("Zell", 9)))),
        ]
    )
    (key,) = store.graph.keys()
    assert store.graph.find(["zell", "none"]) == {"zell": key}
    assert store.graph.names_of([key]) == {key: "Zell"}
    (node,) = store.graph.nodes([key, 99])
    assert (node.key, node.name, node.type, node.mentions) == (key, "Zell", "place", 3)
    assert store.graph.counts() == (1, 0, 3)


def test_a_name_that_is_hardly_ever_recognised_where_it_stands_leads_nowhere(store: KnowledgeStore, prepare):
    for n in range(13):
        store.documents.upsert(prepare(f"the package is in 杭州 {n}", uri=f"text:{n}"))
    first, *others = store.documents.chunk_keys()
    title = Extraction(abouts=(About("Package", "title", 1.0),))
    recognised = Extraction(mentions=(mention("Package", 4, "product"),))
    store.graph.add([(first, title)])
    (package,) = store.graph.find([name_key("Package")]).values()

    def linked() -> list[int]:
        return [chunk for chunk, _ in store.graph.mentions_of([package], limit=20)[package]]

    store.graph.add_links([MentionLink(chunk, package, 4, 11, "package") for chunk in others[:9]])
    assert linked() == others[:9]  # too few to judge
    store.graph.add_links([MentionLink(others[9], package, 4, 11, "package")])
    assert linked() == []
    assert package not in {row.entity for row in store.graph.mentions_in(others)}
    store.graph.add_links([MentionLink(others[10], package, 4, 11, "package")])
    assert linked() == []
    store.graph.add([(others[11], recognised)])
    assert linked() == [others[11]]  # one of twelve
    store.graph.remove(others[8:11])
    assert linked() == [*others[:8], others[11]]
    assert list(check_graph(store)) == []


def test_relations_of_several_chunks_are_one_edge(store: KnowledgeStore, chunks):
    def saying(confidence: float) -> Extraction:
        return Extraction(relations=(Relation("Anna", "knows", "Carl", 0, 5, confidence=confidence),))

    store.graph.add([(chunks[0], saying(0.4)), (chunks[1], saying(0.9)), (chunks[1], Extraction())])
    anna, carl = (store.graph.find([name])[name] for name in ("anna", "carl"))
    (edge,) = store.graph.edges([carl])
    assert (edge.subject, edge.predicate, edge.object, edge.support, edge.confidence) == (
        anna,
        "knows",
        carl,
        2,
        0.9,
    )
    assert store.graph.edges_from([anna]) == [edge]
    assert store.graph.edges_from([carl]) == []
    assert [chunk for chunk, *_ in store.graph.evidence(edge, limit=5)] == [
        chunks[1],
        chunks[0],
    ]
    # What a relation names is mentioned by it.
    assert {m.entity for m in store.graph.mentions_in([chunks[0]])} == {anna, carl}


def test_relations_whose_ends_have_no_name_are_left_out(store: KnowledgeStore, chunks):
    store.graph.add([(chunks[0], Extraction(relations=(Relation("…", "knows", "Carl", 0, 5),)))])
    assert store.graph.counts()[1] == 0


def test_what_chunks_are_about_is_found_surest_first(store: KnowledgeStore, chunks):
    store.graph.add(
        [
            (chunks[0], Extraction(abouts=(About("Zell", "heading", 0.5), About("Zell", "title", 0.7)))),
            (chunks[1], Extraction(abouts=(About("Zell", "title", 1.0), About("!", "title", 1.0)))),
        ]
    )
    (zell,) = store.graph.keys()
    assert store.graph.abouts_of([zell], limit=2) == {zell: [(chunks[1], 1.0), (chunks[0], 0.7)]}
    assert {a.source for a in store.graph.abouts_in([chunks[0]])} == {"heading", "title"}


def test_removing_chunks_removes_what_only_they_support(store: KnowledgeStore, chunks):
    both = Extraction(
        mentions=(mention("Zell"),),
        abouts=(About("Zell", "title", 1.0),),
        relations=(Relation("Zell", "lies in", "Austria", 0, 4),),
    )
    store.graph.add([(chunks[0], both), (chunks[1], Extraction(mentions=(mention("Zell"),)))])
    touched = store.graph.find(["zell", "austria"])
    assert store.graph.remove([chunks[0]]) == set(touched.values())
    assert store.graph.find(["zell", "austria"]).keys() == {"zell"}
    (node,) = store.graph.nodes(store.graph.keys())
    assert node.mentions == 1
    store.graph.remove(chunks)
    assert {table: rows(store, table) for table in LEFT_EMPTY} == dict.fromkeys(LEFT_EMPTY, 0)


def test_subjects_are_titles_headings_and_definitions_but_no_first_phrases(store: KnowledgeStore, chunks):
    store.graph.add(
        [
            (chunks[0], Extraction(abouts=(About("Zell", "title", 1.0), About("Anna", "first_phrase", 0.3)))),
            (chunks[1], Extraction(mentions=(mention("Basel"),))),
        ]
    )
    keys = store.graph.find(["zell", "anna", "basel"])
    assert store.graph.subjects() == [(keys["zell"], "zell")]
    assert store.graph.still_subjects(sorted(keys.values())) == {keys["zell"]}
    assert store.graph.new_names() == [(keys["zell"], "zell", 0)]
    assert store.graph.new_names(limit=0) == []
    store.graph.forget_new_names([keys["zell"]])
    store.graph.add([(chunks[2], Extraction(abouts=(About("Zell", "heading", 0.8),)))])
    assert store.graph.new_names() == []


def test_a_new_name_is_to_be_looked_for_in_the_chunks_that_were_linked_when_it_came(
    store: KnowledgeStore, chunks
):
    store.graph.advance_link_watermark(chunks[1])
    store.graph.add([(chunks[2], Extraction(abouts=(About("Zell", "title", 1.0),)))])
    assert [name.newest for name in store.graph.new_names()] == [chunks[1]] == [store.graph.link_watermark()]


def test_a_link_does_not_replace_what_an_extractor_found(store: KnowledgeStore, chunks):
    store.graph.add(
        [(chunks[0], Extraction(mentions=(mention("Zell"),), abouts=(About("Zell", "title", 1),)))]
    )
    (zell,) = store.graph.keys()
    links = [(chunks[0], zell, 0, 4, "Zell"), (chunks[1], zell, 2, 6, "ZELL")]
    assert store.graph.add_links(links) == {zell}
    assert store.graph.add_links(links) == set()
    found = store.database.rows("SELECT chunk, method FROM mentions ORDER BY chunk")
    assert [tuple(row) for row in found] == [(chunks[0], "rule"), (chunks[1], "title")]


def test_asides_of_an_entity_are_its_mentions_in_chunks_about_something_else(store: KnowledgeStore, chunks):
    mentions = Extraction(mentions=(mention("Zell"),))
    about = Extraction(mentions=(mention("Zell"),), abouts=(About("Zell", "title", 1.0),))
    store.graph.add([(chunks[0], about), (chunks[1], mentions), (chunks[2], mentions)])
    (zell,) = store.graph.keys()
    assert store.graph.passing_mentions_of([zell], limit=9) == {zell: [(chunk, 1.0) for chunk in chunks[1:]]}
    assert store.graph.passing_mentions_of([zell], limit=1) == {zell: [(chunks[1], 1.0)]}
    assert store.graph.mentions_of([zell], limit=2) == {zell: [(chunk, 1.0) for chunk in chunks[:2]]}


def test_links_go_with_the_last_title(store: KnowledgeStore, chunks):
    titled = Extraction(abouts=(About("Zell", "title", 1.0),))
    store.graph.add([(chunks[0], titled), (chunks[1], titled)])
    (zell,) = store.graph.keys()
    store.graph.add_links([(chunks[2], zell, 0, 4, "Zell")])
    store.graph.remove([chunks[0]])
    assert store.graph.mentions_of([zell], limit=9) == {zell: [(chunks[2], 1.0)]}
    assert store.graph.remove([chunks[1]]) == {zell}
    assert store.graph.keys() == []
    assert rows(store, "mentions") == 0


def test_entities_are_searched_by_part_of_a_name(store: KnowledgeStore, chunks):
    names = ("New York", "York", "Yorkshire", "Zell")
    store.graph.add([(chunks[0], Extraction(mentions=tuple(mention(n, i) for i, n in enumerate(names))))])
    found = store.graph.names_of(store.graph.keys())
    assert [found[key] for key in store.graph.search("york", limit=5)] == ["York", "Yorkshire", "New York"]
    assert store.graph.search("——", limit=5) == []
    assert store.graph.keys(after=1, limit=2) == [2, 3]
