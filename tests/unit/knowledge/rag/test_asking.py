"""Asking: strategies, filters, notes, and what every answer says of itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError, InvalidInputError
from loom_core.knowledge.rag import ExtractionConfig, GraphRAGKnowledgeBase, RAGConfig, SearchAnswer, Strategy
from loom_core.knowledge.retrieval.config import WaitSettings

HOP = "Where was the director of The Silent Harbour born?"
HOP_IN_CHINESE = "《静港》的导演是哪里人？"
STRATEGIES: tuple[Strategy, ...] = ("hybrid", "vector_first", "graph_first", "graph_only", "bm25")


def titles(answer: SearchAnswer) -> list[str]:
    return [item.metadata["title"] for item in answer.items]


# -- strategies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("question", "answer"), [(HOP, "Mara Lindqvist"), (HOP_IN_CHINESE, "林若曦")])
async def test_a_question_over_two_documents_needs_the_links_between_them(understood_films, question, answer):
    assert answer in titles(await understood_films.search(question, limit=3, strategy="hybrid"))
    for strategy in ("bm25", "vector_first"):
        found = await understood_films.search(question, limit=2, strategy=strategy)
        assert answer not in titles(found)


async def test_the_way_to_a_passage_is_told(understood_films):
    answer = await understood_films.search(HOP)
    found = {item.metadata["title"]: item for item in answer.items}
    why = found["Mara Lindqvist"].metadata["why"]
    assert "“The Silent Harbour” mentions “Mara Lindqvist”, which this passage is about" in why
    assert "links" in found["Mara Lindqvist"].metadata["scores"]
    why = found["The Silent Harbour"].metadata["why"]
    assert "the question names “Silent Harbour”, which it is about" in why
    assert "shares words with the question" in why
    assert "is close to the question in meaning" in why


async def test_a_way_over_two_links_is_told_from_its_beginning(films):
    answer = await films.search("The Silent Harbour", limit=15, strategy="graph_only")
    reasons = {item.metadata["title"]: item.metadata["why"] for item in answer.items}
    assert reasons["Visby"][:2] == [
        "“The Silent Harbour” mentions “Mara Lindqvist”, which “Mara Lindqvist” is about",
        "“Mara Lindqvist” mentions “Visby”, which this passage is about",
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("question", [HOP, "厦门在哪里", "max_retries", "Pavel Horak"])
async def test_every_strategy_answers_with_places_and_scores(films, strategy: Strategy, question: str):
    answer = await films.search(question, strategy=strategy, limit=7)
    assert answer.strategy == strategy
    assert answer.items
    assert len({item.id for item in answer.items}) == len(answer.items) <= 7
    relevance = [item.relevance for item in answer.items]
    assert relevance == sorted(relevance, reverse=True)
    assert 0 <= relevance[-1] <= relevance[0] <= 1
    for item in answer.items:
        assert item.metadata["why"]
        document = films.store.documents.get(item.source)
        assert document is not None
        text = films.store.documents.text(document.key)
        assert text[item.metadata["start"] : item.metadata["end"]] == item.content


async def test_each_strategy_uses_its_own_channels(films):
    channels = {
        strategy: {
            name
            for item in (await films.search(HOP, strategy=strategy, limit=20)).items
            for name in item.metadata["scores"]
        }
        for strategy in STRATEGIES
    }
    assert channels == {
        "hybrid": {"bm25", "vector", "links", "graph"},
        "vector_first": {"vector"},
        "bm25": {"bm25"},
        "graph_only": {"bm25", "links", "graph"},
        "graph_first": {"vector", "graph"},
    }


@pytest.mark.parametrize("strategy", ["hybrid", "graph_only", "bm25"])
async def test_plain_look_ups_come_first(films, strategy: Strategy):
    for question, answer in (
        ("max_retries HTTPClient", "Settings"),
        ("marzipan", "Lübeck"),
        ("鼓浪屿", "厦门"),
    ):
        assert titles(await films.search(question, strategy=strategy))[0] == answer


async def test_the_strategy_follows_what_there_is(films):
    assert films.strategy == "hybrid"
    off = RAGConfig(extraction=ExtractionConfig(enabled=False))
    embedder = create_embedder("hashing")
    for arguments, strategy in (
        ({}, "graph_only"),
        ({"config": off}, "bm25"),
        ({"config": off, "embedding_provider": embedder}, "vector_first"),
        ({"config": RAGConfig(strategy="graph_first"), "embedding_provider": embedder}, "graph_first"),
    ):
        knowledge_base = GraphRAGKnowledgeBase.from_config(**arguments)
        assert knowledge_base.strategy == strategy
        await knowledge_base.add_texts(["A town called Zell.", "A river."])
        assert titles(await knowledge_base.search("town", limit=1)) == [""]
        knowledge_base.close()


# -- what is asked ----------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["", "  \n\t "])
async def test_an_empty_question_is_refused(films, question: str):
    with pytest.raises(InvalidInputError, match="empty"):
        await films.query(question)


@pytest.mark.parametrize("limit", [0, -1, 101, 2.5, "3", True, None])
async def test_a_limit_that_is_no_number_of_passages_is_refused(films, limit):
    with pytest.raises(InvalidInputError, match=f"limit is {limit!r}") as caught:
        await films.query("town", limit)
    assert "1 to 100" in caught.value.advice
    for call in (films.ask("bm25", "town", limit=limit), films.passages(limit=limit)):
        if limit != 101:
            with pytest.raises(InvalidInputError, match="limit is") as caught:
                await call
            assert "1 to 10000" in caught.value.advice
        else:
            await call


async def test_an_unknown_strategy_is_refused_with_those_there_are(films):
    with pytest.raises(InvalidInputError, match="'fast'") as caught:
        await films.search("town", strategy="fast")
    assert caught.value.advice == "Use one of: hybrid, vector_first, graph_first, graph_only, bm25."


async def test_as_many_as_there_are_come_at_the_most(films):
    assert len(await films.query("film director town 电影", 100)) <= 16
    assert len(await films.query("film director", 1)) == 1


@pytest.mark.parametrize(
    "question", ["🙂", "的", "the of", "?", "\0", "\ud83d", "a" * 100_000, "film " * 50_000, "图" * 9000]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_odd_questions_do_no_harm(films, question: str, strategy: Strategy):
    assert (await films.search(question, strategy=strategy)).strategy == strategy


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    question=st.text(st.characters(exclude_categories=()), min_size=1, max_size=60),
    strategy=st.sampled_from(STRATEGIES),
)
async def test_any_question_is_answered(films, question: str, strategy: Strategy):
    if question.strip():
        await films.search(question, strategy=strategy)


async def test_a_passage_is_had_by_its_id(films):
    (item,) = await films.query("marzipan", 1)
    again = await films.get_by_id(item.id)
    assert again is not None
    assert (again.content, again.source, again.metadata["title"]) == (item.content, item.source, "Lübeck")
    assert again.metadata["rank"] == item.metadata["rank"]
    assert await films.get_by_id("d0.none") is None


# -- filters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("filters", "allowed"),
    [
        ({"tags": "even"}, lambda m: "even" in m["tags"]),
        ({"tags": ["odd", "none"], "language": "en"}, lambda m: "odd" in m["tags"] and m["language"] == "en"),
        ({"language": ["zh"]}, lambda m: m["language"] == "zh"),
        ({"title": ("Brno", "Visby")}, lambda m: m["title"] in {"Brno", "Visby"}),
        ({"rank": 1}, lambda m: m["rank"] == 1),
        ({"path": "file:///films/1"}, lambda m: m["rank"] == 1 or m["rank"] >= 10),
        ({"rank": {"gte": 2, "lt": 5}}, lambda m: 2 <= m["rank"] < 5),
        ({"path": ["静港", "厦门"]}, lambda m: m["title"] in {"静港", "厦门"}),
        ({"source": "file:///films/4/Lübeck.md"}, lambda m: m["title"] == "Lübeck"),
        ({"tags": "no such tag"}, lambda _: False),
    ],
)
async def test_filters_hold_for_every_passage(films, strategy: Strategy, filters, allowed):
    answer = await films.search(HOP + HOP_IN_CHINESE, limit=50, filters=filters, strategy=strategy)
    assert all(allowed(item.metadata) for item in answer.items)
    if strategy == "vector_first":  # the question counts as English, and hashing compares no languages
        assert len(answer.items) == sum(
            allowed({**document.metadata, "title": document.title, "language": document.language})
            for document in films.store.documents.list()
            if document.language != "zh"
        )


async def test_an_unknown_filter_is_told_with_those_there_are(films):
    with pytest.raises(InvalidInputError, match="'colour'") as caught:
        await films.query("town", filters={"colour": "red"})
    assert caught.value.advice == "Use: source, path, language, type, title, rank, tags."
    assert list(films.supported_filters) == ["source", "path", "language", "type", "title", "rank", "tags"]


async def test_a_field_called_path_does_not_stand_twice_among_the_filters():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    await knowledge_base.add_texts(["Some text."], metadatas=[{"path": "x"}])
    assert list(knowledge_base.supported_filters).count("path") == 1
    knowledge_base.close()


# -- embedders --------------------------------------------------------------------------------------


class SwitchedEmbedder(EmbeddingProvider):
    """The hashing embedder with a switch, and languages to choose."""

    def __init__(self, *, languages: frozenset[str] | None = None) -> None:
        self.on = True
        self._inner = create_embedder("hashing")
        self._languages = languages

    @property
    def id(self) -> str:
        return "switched"

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    @property
    def languages(self) -> frozenset[str] | None:
        return self._languages

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        if not self.on:
            raise EmbeddingError("The model is switched off.", advice="Switch it on.")
        return await self._inner.embed(texts, kind=kind)


async def test_without_vectors_words_and_graph_answer_and_the_reason_is_told():
    embedder = SwitchedEmbedder()
    embedder.on = False
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "Nothing else."])
    answer = await knowledge_base.search("town")
    assert answer.items[0].content == "Zell is a town in Austria."
    assert (answer.embedded, answer.chunks) == (0, 2)
    assert any("The model is switched off. Switch it on." in note for note in answer.notes)
    knowledge_base.close()


async def test_a_question_that_cannot_be_embedded_is_answered_by_words_and_graph():
    embedder = SwitchedEmbedder()
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "Nothing else."])
    answer = await knowledge_base.search("town")
    assert (answer.notes, answer.embedded, answer.chunks) == ((), 2, 2)
    assert "vector" in answer.items[0].metadata["scores"]
    embedder.on = False
    answer = await knowledge_base.search("town")
    assert "vector" not in answer.items[0].metadata["scores"]
    assert "words and graph only: The model is switched off." in answer.notes[0]
    knowledge_base.close()


async def test_a_language_the_embedder_does_not_cover_leaves_its_channel_out():
    embedder = SwitchedEmbedder(languages=frozenset({"en"}))
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "采尔是奥地利的城市。"])
    answer = await knowledge_base.search("奥地利的城市")
    assert answer.items[0].content == "采尔是奥地利的城市。"
    assert all("vector" not in item.metadata["scores"] for item in answer.items)
    assert answer.notes == ("the embedder switched does not cover 'zh': words and graph only",)
    for question in ("a town", "12"):
        assert (await knowledge_base.search(question)).notes == ()
    knowledge_base.close()


async def test_a_slow_embedder_is_not_waited_for_for_ever():
    import anyio

    class SleepyEmbedder(SwitchedEmbedder):
        async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
            if kind == "query":
                await anyio.sleep_forever()
            return await super().embed(texts, kind=kind)

    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=SleepyEmbedder(), config=RAGConfig(waits=WaitSettings(embedder=0.01))
    )
    await knowledge_base.add_texts(["Zell is a town."])
    answer = await knowledge_base.search("town")
    assert answer.items
    assert "took over" in answer.notes[0]
    knowledge_base.close()


async def test_the_words_of_a_removed_document_make_room_for_others():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    ids = await knowledge_base.add_texts([f"Town number {n}." for n in range(6)])
    removed = await knowledge_base.remove([*ids[:4], "text:none"])
    assert [document.id for document in removed] == ids[:4]
    assert len(await knowledge_base.query("town", 2)) == 2
    knowledge_base.close()


@pytest.mark.slow
async def test_a_real_model_finds_what_is_meant_across_languages_and_documents(films):
    embedder = create_embedder("e5-small")
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(
        ["The cat sleeps on the sofa.", "股票市场今天大幅下跌。", "Rain is expected."]
    )
    hits = (await films.search(HOP, limit=20)).items
    await knowledge_base.add_texts(
        [hit.content for hit in hits], titles=[hit.metadata["title"] for hit in hits]
    )
    assert "股票市场今天大幅下跌。" in [
        item.content for item in await knowledge_base.query("Did share prices fall?", 3)
    ]
    assert titles(await knowledge_base.search(HOP))[:2] == ["The Silent Harbour", "Mara Lindqvist"]
    knowledge_base.close()
