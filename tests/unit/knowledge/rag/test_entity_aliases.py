"""Entities under several names, in a whole knowledge base: found, followed, listed, merged and split."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.entity_aliases import in_several_scripts, spellings_of
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.text.surface_forms import name_key
from tests.fixtures.record_content import check_indexes, content

WEATHER = (
    "The World Meteorological Organization (WMO) is an agency of the United Nations. Its seat is in Geneva, "
    "near the Palace of Nations."
)
DIRECTOR = "Anna Berg led the weather service for WMO in Lisbon. She later wrote about it."
CHINESE = "世界气象组织（英语：World Meteorological Organization，缩写：WMO）总部在日内瓦。"
TAIWAN = "國立臺灣大學（簡稱臺大）位於臺北，圖書館很大。"
SIMPLIFIED = "国立台湾大学（简称台大）位于台北，图书馆很大。"
MAINLAND = "国立台湾大学的图书馆有很多古籍，台大学生常去。"

Make = Callable[[Sequence[str]], GraphRAGKnowledgeBase]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes a knowledge base of texts; its vectors need no model."""
    made: list[GraphRAGKnowledgeBase] = []

    def build(texts: Sequence[str], path: Path | None = None) -> GraphRAGKnowledgeBase:
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=create_embedder("hashing"), path=path
        )
        made.append(knowledge_base)
        if texts:
            asyncio.run(add(knowledge_base, texts))
        return knowledge_base

    yield build
    for knowledge_base in made:
        knowledge_base.close()


async def add(knowledge_base: GraphRAGKnowledgeBase, texts: Sequence[str]) -> None:
    await knowledge_base.add_texts(texts, uris=[f"text:{text[:20]}" for text in texts])


def groups(knowledge_base: GraphRAGKnowledgeBase) -> list[set[str]]:
    return [set(group.names) for group in knowledge_base.aliases.groups()[0]]


def test_names_that_a_passage_says_are_the_same_are_one_entity(make: Make) -> None:
    knowledge_base = make([WEATHER, DIRECTOR, CHINESE])
    assert groups(knowledge_base) == [{"World Meteorological Organization", "WMO", "世界气象组织"}]
    group = knowledge_base.aliases.group_of("WMO")
    assert {(reason.name, reason.other, reason.kind) for reason in group.reasons} == {
        ("World Meteorological Organization", "WMO", "acronym"),
        ("世界气象组织", "World Meteorological Organization", "also_called"),
        ("世界气象组织", "WMO", "also_called"),
    }
    evidence = {reason.kind: reason.evidence for reason in group.reasons}
    assert evidence["acronym"] == "World Meteorological Organization (WMO"
    assert all(reason.passage_id for reason in group.reasons)


def test_a_question_by_one_name_reaches_passages_that_use_another(make: Make) -> None:
    together = asyncio.run(
        make([WEATHER, DIRECTOR]).search(
            "Who worked for the World Meteorological Organization?", strategy="graph_only"
        )
    )
    assert "Anna Berg" in " ".join(item.content for item in together.items)
    apart = asyncio.run(
        make([DIRECTOR]).search(
            "Who worked for the World Meteorological Organization?", strategy="graph_only"
        )
    )
    assert "Anna Berg" not in " ".join(item.content for item in apart.items)


def test_traditional_and_simplified_chinese_find_each_other(make: Make) -> None:
    knowledge_base = make([TAIWAN, MAINLAND, DIRECTOR])
    assert groups(knowledge_base) == [{"国立台湾大学", "臺大"}]
    for question in ("國立臺灣大學的古籍在哪裡？", "国立台湾大学的古籍在哪里？"):
        answer = asyncio.run(knowledge_base.search(question, strategy="bm25"))
        assert "古籍" in answer.items[0].content
        answer = asyncio.run(knowledge_base.search(question, strategy="graph_only"))
        assert {item.content[:2] for item in answer.items} >= {"國立", "国立"}


def test_a_merge_goes_with_the_passage_that_it_rests_on(make: Make, tmp_path: Path) -> None:
    knowledge_base = make([WEATHER, DIRECTOR, CHINESE], tmp_path / "kb")
    asyncio.run(knowledge_base.remove([f"text:{WEATHER[:20]}", f"text:{CHINESE[:20]}"]))
    assert groups(knowledge_base) == []
    assert content(knowledge_base.store) == content(make([DIRECTOR]).store)
    asyncio.run(knowledge_base.worker.drain())
    check_indexes(knowledge_base)


def test_the_graph_shows_one_entity_with_the_relations_of_all_its_names(make: Make, tmp_path: Path) -> None:
    knowledge_base = make([WEATHER, DIRECTOR], tmp_path / "kb")
    graph = knowledge_base.store.graph
    (key,) = graph.find_canonical(["wmo"]).values()
    assert graph.find_canonical(["world meteorological organization"]) == {
        "world meteorological organization": key
    }
    others = [edge.object for edge in knowledge_base.associations().of(key)]
    assert {"United Nations", "Lisbon"} <= set(graph.names_of(others).values())
    check_indexes(knowledge_base)


def test_a_person_may_split_what_was_merged_and_take_it_back(make: Make, tmp_path: Path) -> None:
    knowledge_base = make([WEATHER, DIRECTOR], tmp_path / "kb")
    one, two = knowledge_base.aliases.split("WMO", "World Meteorological Organization")
    assert (one.names, two.names) == (("WMO",), ("World Meteorological Organization",))
    assert groups(knowledge_base) == []
    assert knowledge_base.aliases.suggestions() == []
    asyncio.run(knowledge_base.worker.drain())
    check_indexes(knowledge_base)
    # It holds for passages that come later.
    asyncio.run(add(knowledge_base, ["Once more: the World Meteorological Organization (WMO)."]))
    assert groups(knowledge_base) == []
    assert knowledge_base.aliases.clear_decision("WMO", "World Meteorological Organization")
    assert not knowledge_base.aliases.clear_decision("WMO", "World Meteorological Organization")
    assert groups(knowledge_base) == [{"WMO", "World Meteorological Organization"}]
    asyncio.run(knowledge_base.worker.drain())
    check_indexes(knowledge_base)


def test_a_person_may_merge_names_that_nothing_connects(make: Make) -> None:
    knowledge_base = make([WEATHER, DIRECTOR])
    group = knowledge_base.aliases.merge("Anna Berg", "Geneva")
    assert set(group.names) == {"Anna Berg", "Geneva"}
    assert [reason.kind for reason in group.reasons] == ["decision"]


def test_what_may_be_the_same_is_suggested(make: Make) -> None:
    knowledge_base = make(["世界气象组织（World Meteorological Organization）在日内瓦。"])
    (suggestion,) = knowledge_base.aliases.suggestions()
    assert {suggestion.name, suggestion.other} == {"世界气象组织", "World Meteorological Organization"}
    assert suggestion.kind == "translation"
    knowledge_base.aliases.merge("世界气象组织", "World Meteorological Organization")
    assert knowledge_base.aliases.suggestions() == []


def test_decisions_about_unknown_or_equal_names_are_refused(make: Make) -> None:
    knowledge_base = make([WEATHER])
    with pytest.raises(NotFoundError, match="Unknown"):
        knowledge_base.aliases.merge("WMO", "Unknown")
    with pytest.raises(InvalidInputError, match="spellings of one name"):
        knowledge_base.aliases.split("WMO", "wmo")


def test_a_merge_against_a_split_is_refused(make: Make) -> None:
    knowledge_base = make([CHINESE])
    knowledge_base.aliases.split("WMO", "世界气象组织")
    assert groups(knowledge_base) == [{"世界气象组织", "World Meteorological Organization"}]
    with pytest.raises(InvalidInputError, match="were split"):
        knowledge_base.aliases.merge("WMO", "World Meteorological Organization")
    knowledge_base.aliases.merge("WMO", "世界气象组织")  # which takes back what was decided of these two
    assert len(groups(knowledge_base)[0]) == 3


def test_groups_come_in_pages(make: Make) -> None:
    knowledge_base = make([WEATHER, TAIWAN])
    first, after = knowledge_base.aliases.groups(limit=1)
    assert after is not None
    second, end = knowledge_base.aliases.groups(limit=1, after=after)
    assert end is None
    assert {name for group in first + second for name in group.names} >= {"WMO", "臺大"}


@pytest.mark.slow
async def test_spellings_are_one_entity_where_a_model_finds_them_alike() -> None:
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("e5-small"))
    await knowledge_base.add_texts(
        [
            "Ask the System Admin.",
            "There is Rock Music.",
            "Our SystemAdmin rebooted it.",
            "She likes Rock Musics and Jazz.",
        ]
    )
    found = [set(group.names) for group in knowledge_base.aliases.groups()[0]]
    knowledge_base.close()
    assert {"System Admin", "SystemAdmin"} in found
    assert {"Rock Musics", "Rock Music"} in found


def test_one_name_in_several_scripts_is_listed_apart_from_merges(make: Make) -> None:
    knowledge_base = make([TAIWAN, SIMPLIFIED, "McDonald lives in Oslo.", "Mcdonald left Oslo."])
    listed = {frozenset(names) for names in knowledge_base.aliases.in_several_scripts()}
    assert listed == {
        frozenset({"國立臺灣大學", "国立台湾大学"}),
        frozenset({"臺大", "台大"}),
        frozenset({"臺北", "台北"}),
    }
    with pytest.raises(InvalidInputError, match="spellings of one name"):
        knowledge_base.aliases.split("臺大", "台大")


def test_all_names_of_an_entity_are_told_in_every_script(make: Make) -> None:
    knowledge_base = make([TAIWAN, SIMPLIFIED, WEATHER])
    for name in ("国立台湾大学", "臺大"):
        (key,) = knowledge_base.store.graph.find_canonical([name_key(name)]).values()
        names = knowledge_base.aliases.names_of(key)
        assert sorted(names) == sorted(["國立臺灣大學", "国立台湾大学", "臺大", "台大"])


@pytest.fixture
def store() -> Iterator[KnowledgeStore]:
    store = KnowledgeStore(None)
    yield store
    store.close()


def write(store: KnowledgeStore, entity: int, *names: tuple[str, int]) -> None:
    """Write an entity whose names were used so many times."""
    with store.database.write() as db:
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
        ([("Zürich", 1), ("Zu\u0308rich", 2)], []),  # which no one sees
        ([("U.S.", 1), ("US", 2)], []),
        ([("厦门", 1)], []),
    ],
)
def test_only_names_that_differ_by_their_script_are_listed(
    store: KnowledgeStore, names: list[tuple[str, int]], found: list[tuple[str, ...]]
) -> None:
    write(store, 1, *names)
    write(store, 2, ("Basel", 1))
    assert in_several_scripts(store.database) == found


def test_spellings_come_the_most_used_first_and_once_for_each_that_differs_by_more_than_case(
    store: KnowledgeStore,
) -> None:
    write(store, 1, ("臺灣", 1), ("台湾", 4), ("TAIWAN", 2), ("Taiwan", 3))
    write(store, 2, ("Formosa", 9))
    assert spellings_of(store.database, [1]) == ["台湾", "Taiwan", "臺灣"]
    assert spellings_of(store.database, [1, 2]) == ["Formosa", "台湾", "Taiwan", "臺灣"]
    assert spellings_of(store.database, []) == []


# -- hiding ------------------------------------------------------------------------------------------------


def test_a_hidden_entity_is_in_no_answer_with_all_its_names(make: Make) -> None:
    knowledge_base = make([WEATHER, DIRECTOR, CHINESE])
    graph = knowledge_base.graph
    entities, relations, _ = graph.counts()
    (key,) = graph.search("WMO", limit=1)
    names = knowledge_base.aliases.hide("WMO")
    assert {"WMO", "World Meteorological Organization"} <= set(names)
    assert graph.search("WMO", limit=5) == []
    assert graph.search("World Meteorological", limit=5) == []
    assert graph.find_canonical([name_key("WMO")]) == {}
    assert graph.nodes([key]) == []
    assert all(key not in (edge.subject, edge.object) for edge in graph.all_edges())
    assert key not in {node.key for node in graph.all_nodes()}
    chunks = [chunk for chunk, _ in knowledge_base.documents.chunk_documents()]
    assert key not in {row.entity for row in graph.mentions_in(chunks)} | graph.entities_in(chunks)
    assert graph.counts()[0] == entities - 1
    assert graph.counts()[1] <= relations
    assert check_indexes(knowledge_base) is None


def test_what_is_hidden_stays_hidden_and_can_be_shown_again(make: Make, tmp_path: Path) -> None:
    knowledge_base = make([WEATHER, DIRECTOR])
    asyncio.run(knowledge_base.worker.drain())
    before = content(knowledge_base.store)
    knowledge_base.aliases.hide("United Nations")
    assert knowledge_base.aliases.hidden() == [name_key("United Nations")]
    for document in knowledge_base.documents.list():
        asyncio.run(knowledge_base.remove(document.id))
    asyncio.run(add(knowledge_base, [WEATHER, DIRECTOR]))
    assert knowledge_base.graph.search("United Nations", limit=5) == []
    assert knowledge_base.aliases.unhide("united nations")
    assert not knowledge_base.aliases.unhide("united nations")
    assert knowledge_base.graph.search("United Nations", limit=5) != []
    assert knowledge_base.aliases.hidden() == []
    asyncio.run(knowledge_base.worker.drain())
    assert content(knowledge_base.store) == before


def test_only_what_exists_can_be_hidden(make: Make) -> None:
    with pytest.raises(NotFoundError, match="no entity"):
        make([WEATHER]).aliases.hide("Lisbon")


def test_passages_are_counted_once_for_all_names_of_an_entity(make: Make) -> None:
    knowledge_base = make([WEATHER, DIRECTOR, CHINESE])
    graph = knowledge_base.graph
    (wmo,), (lisbon,) = graph.search("WMO", limit=1), graph.search("Lisbon", limit=1)
    assert graph.passage_counts([wmo, lisbon]) == {wmo: 3, lisbon: 1}
    assert graph.passage_counts([]) == {}
