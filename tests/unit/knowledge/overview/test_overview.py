"""Topics and overview of a knowledge base, and answers to questions about all of its documents."""

from __future__ import annotations

import pytest

from loom_core.errors import InvalidInputError
from loom_core.knowledge.overview.overview import topic_lines
from loom_core.knowledge.overview.topics import TopicIndex, map_topics
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

BREAD = [
    "Sourdough bread needs a sourdough starter. The sourdough starter is fed with rye flour every day.",
    "Rye flour makes a sourdough starter rise fast. A bread oven should be hot before the bread goes in.",
    "The bread oven of the bakery burns beech wood. Rye flour and wheat flour are kept in the cellar.",
    "Wheat flour gives a light crumb. With rye flour and a sourdough starter the crumb is dark and moist.",
    "After two hours the sourdough starter has doubled. Bake the loaf in the bread oven on a baking stone.",
]
SHIPS = [
    "The container ship left Rotterdam harbour. A pilot boat led the container ship to the North Sea.",
    "Every pilot boat of Rotterdam harbour carries two pilots. The North Sea is rough in November.",
    "A container ship may not enter Rotterdam harbour without a pilot. The harbour master decides.",
    "The harbour master of Rotterdam harbour closed the lock. No pilot boat could leave for the North Sea.",
    "In the North Sea a container ship lost its cargo. The harbour master sent a pilot boat.",
]
CHINESE = [
    "青岛港是一个深水港。青岛港的集装箱码头有十二个泊位，港务局负责集装箱码头的安全。",
    "港务局规定，进入青岛港的船舶必须由引航员引航。引航员由港务局培训。",
    "集装箱码头的起重机每天检查一次。青岛港的引航员二十四小时值班。",
    "引航员登船以后，船长听从引航员的建议。集装箱码头由港务局管理。",
]


@pytest.fixture
def knowledge_base():
    knowledge_base = GraphRAGKnowledgeBase("harbour and bakery", memory=True, embedder="hashing")
    knowledge_base.add_texts_sync(
        [*BREAD, *SHIPS],
        uris=[f"text:{number}" for number in range(10)],
        titles=["Bread"] * 5 + ["Ships"] * 5,
    )
    yield knowledge_base
    knowledge_base.close()


def words_of(topic):
    return " ".join(topic.terms).casefold()


def test_topics_are_what_the_documents_are_about(knowledge_base):
    overview = knowledge_base.overview_sync(sentences=1)
    assert (overview.passages, overview.documents) == (10, 10)
    first, second = overview.topics[:2]
    bread, ships = (first, second) if "flour" in words_of(first) else (second, first)
    assert "flour" in words_of(bread)
    assert "harbour" in words_of(ships)
    assert {bread.passages, ships.passages} == {5}
    assert (bread.titles[0], ships.titles[0]) == ("Bread", "Ships")


def test_every_sentence_is_quoted_from_its_passage(knowledge_base):
    overview = knowledge_base.overview_sync(sentences=3)
    excerpts = [excerpt for topic in overview.topics for excerpt in topic.excerpts]
    assert len(excerpts) >= 4
    assert len({excerpt.text for excerpt in excerpts}) == len(excerpts)
    for excerpt in excerpts:
        row = knowledge_base.documents.chunk(excerpt.passage_id)
        assert row is not None
        assert excerpt.text in " ".join(row.text.split())


def test_filters_leave_only_what_they_allow(knowledge_base):
    overview = knowledge_base.overview_sync(filters={"title": "Ships"})
    assert (overview.passages, overview.documents) == (5, 5)
    assert all(topic.titles == ("Ships",) for topic in overview.topics)
    with pytest.raises(InvalidInputError):
        knowledge_base.overview_sync(filters={"colour": "red"})


def test_chinese_documents_have_chinese_topics():
    with GraphRAGKnowledgeBase("港口", memory=True, embedder="hashing") as knowledge_base:
        knowledge_base.add_texts_sync(CHINESE, uris=[f"text:{n}" for n in range(len(CHINESE))])
        (topic,) = knowledge_base.overview_sync(sentences=1).topics
        assert topic.passages == len(CHINESE)
        assert "青岛港" in words_of(topic)
        assert topic.excerpts[0].text in "".join(CHINESE)


def test_an_empty_knowledge_base_has_no_topics():
    with GraphRAGKnowledgeBase("empty", memory=True, embedder=None) as knowledge_base:
        overview = knowledge_base.overview_sync()
        assert (overview.passages, overview.topics, topic_lines(overview)) == (0, (), [])
        assert knowledge_base.query_sync("What are these documents about?") == []


@pytest.mark.parametrize("question", ["What are these documents about?", "这些文档主要讲什么？"])
def test_a_question_about_all_documents_is_answered_by_topics(knowledge_base, question):
    answer = knowledge_base.search_sync(question, limit=4)
    assert {item.metadata["title"] for item in answer.items} == {"Bread", "Ships"}
    assert answer.match.verdict == "strong"
    (note,) = answer.notes
    assert "10 passages of 10 documents" in note
    assert "flour" in note
    assert "harbour" in note
    assert all(0 < item.relevance <= 1 for item in answer.items)
    assert all(item.metadata["why"] for item in answer.items)


def test_a_question_with_a_focus_finds_passages_of_several_documents(knowledge_base):
    answer = knowledge_base.search_sync(
        "What are the duties of the harbour master in all these documents?", limit=3
    )
    assert len({item.source for item in answer.items}) == 3
    assert any("3 passages from 3 documents" in note for note in answer.notes)
    assert "harbour master" in answer.items[0].content


def test_filters_hold_for_questions_about_all_documents(knowledge_base):
    answer = knowledge_base.search_sync("Give me an overview", filters={"title": "Bread"})
    assert {item.metadata["title"] for item in answer.items} == {"Bread"}
    assert "5 passages of 5 documents" in answer.notes[0]


def test_an_ordinary_question_is_answered_as_before(knowledge_base):
    answer = knowledge_base.search_sync("Who closed the lock?", limit=1)
    assert "closed the lock" in answer.items[0].content
    assert not any("question is about" in note for note in answer.notes)


def test_topics_follow_the_documents(knowledge_base):
    assert "青岛港" not in str(knowledge_base.overview_sync())
    knowledge_base.add_texts_sync(CHINESE, uris=[f"port:{n}" for n in range(len(CHINESE))])
    overview = knowledge_base.overview_sync()
    assert overview.passages == 14
    assert "青岛港" in str(overview)


def test_a_few_new_passages_join_the_topic_of_their_entities(knowledge_base):
    index = TopicIndex(knowledge_base.store, changed=100, short=0)  # as if topics took long to find
    before = index.current()
    late = "A container ship from Rotterdam sank in the North Sea."
    knowledge_base.add_texts_sync([late], uris=["text:late"])
    after = index.current()
    (new,) = set(after.topic_of) - set(before.topic_of)
    ships = next(topic for topic in after.topics if "North Sea" in topic.terms)
    assert new in ships.chunks
    assert [topic.terms for topic in after.topics] == [topic.terms for topic in before.topics]
    assert index.current() is after


def test_topics_do_not_depend_on_the_order_of_questions(knowledge_base):
    one, other = map_topics(knowledge_base.store), map_topics(knowledge_base.store)
    assert one == other
    assert sorted(one.topic_of) == sorted(chunk for topic in one.topics for chunk in topic.chunks)


def test_a_hidden_entity_names_no_topic(knowledge_base):
    assert "North Sea" in str(knowledge_base.overview_sync().topics)
    knowledge_base.aliases.hide("North Sea")
    assert all("North Sea" not in topic.terms for topic in knowledge_base.overview_sync().topics)


def test_a_topic_without_terms_is_called_by_its_documents():
    with GraphRAGKnowledgeBase("numbers", memory=True, embedder=None) as knowledge_base:
        knowledge_base.add_texts_sync(["12 34 56 78 90."], titles=["Readings"])
        (topic,) = knowledge_base.overview_sync().topics
        assert (topic.terms, topic.name) in {((), "Readings"), (("Readings",), "Readings")}
        assert topic_lines(knowledge_base.overview_sync()) == ["- Readings (1 passages)"]


def test_code_in_a_passage_is_no_sentence():
    text = "# Use\n\nRun the program twice a day.\n\n```sh\nmake all. make install.\n```\n"
    with GraphRAGKnowledgeBase("code", memory=True, embedder=None) as knowledge_base:
        knowledge_base.add_texts_sync([text])
        (topic,) = knowledge_base.overview_sync(sentences=5).topics
        assert [excerpt.text for excerpt in topic.excerpts] == ["Run the program twice a day."]
