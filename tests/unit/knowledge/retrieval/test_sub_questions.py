"""Sub-questions: what a good passage leaves open, asked again about the names that it mentions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, SearchOptions
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.retrieval.sub_questions import SubQuestionSettings

OFF = RAGConfig(sub_questions=SubQuestionSettings(most=0))

ENGLISH = "Which person founded the club of Jonas Ekberg?"
CHINESE = "陈远工作的大学是谁创办的？"

# More passages mention the club than links by a common name may connect, and the answer does not stand out.
CLUB = {
    "Jonas Ekberg": "Jonas Ekberg is a goalkeeper from Visby who plays for Alvik Rovers.",
    "Early years": "A teacher, Maria Holm, founded Alvik Rovers with eleven pupils in 1911.",
    "Season 1950": "In this season Alvik Rovers won nine games and lost two.",
    "Season 1951": "In this season Alvik Rovers won four games and lost seven.",
    "Season 1952": "In this season Alvik Rovers won five games and lost six.",
    "Season 1953": "In this season Alvik Rovers won six games and lost five.",
    "Season 1954": "In this season Alvik Rovers won eight games and lost three.",
    "Season 1955": "In this season Alvik Rovers won three games and lost eight.",
    "Season 1956": "In this season Alvik Rovers won two games and lost nine.",
    "Season 1957": "In this season Alvik Rovers won one game and lost ten.",
    "Clubs": "A club has members, a person each, who elect a chair.",
    "Towns": "It is not known who founded the town.",
    "Persons": "A person has a name.",
    "陈远": "陈远是数学家，在北京大学工作，喜欢下棋。",
    "往事": "1898年，孙家鼐创办了北京大学，当时有一百多名学生。",
    **{f"第{n}年": f"这一年北京大学有{n}千名学生毕业。" for n in "二三四五六七八九"},
    "甲": "大学是培养学生的地方。",
    "乙": "何时创办，是谁写的，都有记录。",
}


class CountingEmbedder(EmbeddingProvider):
    """The hashing embedder, which notes the questions, and fails for several at once if a test wants it."""

    id = "counting"

    def __init__(self) -> None:
        self._inner = create_embedder("hashing")
        self.batches: list[list[str]] = []
        self.fails_for_several = False

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        if kind == "query":
            self.batches.append(list(texts))
            if self.fails_for_several and len(self.batches) > 1:
                raise EmbeddingError("No more than one.")
        return await self._inner.embed(texts, kind=kind)


Club = Callable[..., GraphRAGKnowledgeBase]


@pytest.fixture
def club() -> Iterator[Club]:
    """Makes a knowledge base of the club, with an embedder and a configuration."""
    made: list[GraphRAGKnowledgeBase] = []

    def make(embedder: EmbeddingProvider | None, config: RAGConfig | None = None) -> GraphRAGKnowledgeBase:
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=embedder, config=config or RAGConfig()
        )
        made.append(knowledge_base)
        asyncio.run(
            knowledge_base.add_texts(
                list(CLUB.values()), titles=list(CLUB), uris=[f"text:{title}" for title in CLUB]
            )
        )
        return knowledge_base

    yield make
    for knowledge_base in made:
        knowledge_base.close()


def ask(knowledge_base: GraphRAGKnowledgeBase, question: str, **options: object) -> dict[str, KnowledgeItem]:
    """Return the answer by titles."""
    answer = asyncio.run(knowledge_base.search(question, limit=20, **options))
    return {item.metadata["title"]: item for item in answer.items}


CASES = [
    (ENGLISH, "Jonas Ekberg", "Early years", "Alvik Rovers"),
    (CHINESE, "陈远", "往事", "北京大学"),
]


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "words"])
@pytest.mark.parametrize(("question", "seed", "target", "name"), CASES, ids=["en", "zh"])
def test_what_answers_about_a_mentioned_name_rises_and_says_why(club, embedded, question, seed, target, name):
    embedder = create_embedder("hashing") if embedded else None
    before = ask(club(embedder, OFF), question)
    found = ask(club(embedder), question)
    why = f"“{seed}” mentions “{name}”, about which this passage answers the rest of the question"
    assert why in found[target].metadata["why"]
    assert why not in before[target].metadata["why"]
    assert found[target].relevance > before[target].relevance
    assert found[target].metadata["scores"]["links"] > before[target].metadata["scores"].get("links", 0)
    assert list(found)[:2] == list(before)[:2]


def test_the_answer_comes_before_what_only_shares_words_with_the_question(club):
    embedder = create_embedder("hashing")
    before, after = list(ask(club(embedder, OFF), ENGLISH)), list(ask(club(embedder), ENGLISH))
    assert after.index("Early years") == 2 < before.index("Early years")


def test_all_sub_questions_are_embedded_at_once_without_the_words_of_the_title(club):
    embedder = CountingEmbedder()
    ask(club(embedder), ENGLISH)
    assert embedder.batches[0][0] == ENGLISH
    assert embedder.batches[1:] == [["Which person founded the club of ? Alvik Rovers"]]
    embedder.batches.clear()
    ask(club(embedder), CHINESE)
    assert "工作的大学是谁创办的？ 北京大学" in embedder.batches[1]


def test_a_question_that_no_passage_is_about_has_no_sub_questions(club):
    embedder = CountingEmbedder()
    ask(club(embedder), "Which person founded something?")
    assert len(embedder.batches) == 1


def test_if_sub_questions_cannot_be_embedded_words_decide(club):
    embedder = CountingEmbedder()
    embedder.fails_for_several = True
    found = ask(club(embedder), ENGLISH)
    assert len(embedder.batches) == 2
    assert any("the rest of the question" in why for why in found["Early years"].metadata["why"])


def test_filters_apply_to_the_answers_of_sub_questions(club):
    knowledge_base = club(create_embedder("hashing"))
    found = ask(knowledge_base, ENGLISH, filters={"title": ["Jonas Ekberg", "Season 1950", "Clubs"]})
    assert set(found) <= {"Jonas Ekberg", "Season 1950", "Clubs"}


NAMES = [
    "Berlin",
    "Madrid",
    "Vienna",
    "Prague",
    "Lisbon",
    "Dublin",
    "Warsaw",
    "Athens",
    "Helsinki",
    "Budapest",
    "Stockholm",
    "Copenhagen",
    "Amsterdam",
    "Brussels",
]


@pytest.mark.parametrize(
    ("config", "options", "most"),
    [
        (RAGConfig(), None, 4),
        (RAGConfig(), SearchOptions(thorough=True), 12),
        (RAGConfig(thorough=True), None, 12),
        (RAGConfig(thorough=True), SearchOptions(thorough=False), 4),
        (RAGConfig(thorough=True), SearchOptions(), 12),
    ],
)
def test_a_thorough_search_asks_more_sub_questions(config, options, most):
    embedder = CountingEmbedder()
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, config=config)
    texts = {"Arno Vance": f"Arno Vance gave concerts in {', '.join(NAMES)}."}
    texts |= {f"Report {n}": f"{name} has a mayor since 1990." for n, name in enumerate(NAMES)}
    try:
        asyncio.run(
            knowledge_base.add_texts(
                list(texts.values()), titles=list(texts), uris=[f"text:{title}" for title in texts]
            )
        )
        ask(knowledge_base, "Who is the mayor where Arno Vance gave a concert?", options=options)
    finally:
        knowledge_base.close()
    assert [len(batch) for batch in embedder.batches] == [1, most]
