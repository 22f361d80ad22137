"""A knowledge base as a source of passages: one channel at a time."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, EmbeddingError, InvalidInputError
from loom_core.knowledge.interface import PassageSource
from loom_core.knowledge.rag import ExtractionConfig, GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.retrieval.channel_search import question_keywords
from loom_core.knowledge.text.passage_text import embedding_text

CHANNELS = ("dense", "bm25", "keyword", "graph")


def titles(items) -> list[str]:
    return [item.metadata["title"] for item in items]


async def asked(source: PassageSource, channel, question: str, limit: int = 5, **more) -> list[str]:
    return titles(await source.ask(channel, question, limit=limit, **more))


# -- what there is ----------------------------------------------------------------------------------


def test_the_channels_follow_what_there_is(films):
    off = RAGConfig(extraction=ExtractionConfig(enabled=False))
    assert (list(films.channels), films.embedder_id) == (list(CHANNELS), "hashing/512-1")
    for arguments, channels in (
        ({}, ["bm25", "keyword", "graph"]),
        ({"config": off}, ["bm25", "keyword"]),
        ({"config": off, "embedding_provider": create_embedder("hashing")}, ["dense", "bm25", "keyword"]),
    ):
        knowledge_base = GraphRAGKnowledgeBase.from_config(**arguments)
        assert list(knowledge_base.channels) == channels
        assert bool(knowledge_base.embedder_id) == ("dense" in channels)
        knowledge_base.close()


async def test_it_embeds_in_the_space_of_its_passages(films):
    vectors = await films.embed(["A town.", "城市"])
    assert vectors.shape == (2, 512)
    assert np.allclose(vectors, await create_embedder("hashing").embed(["A town.", "城市"]))
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    assert await knowledge_base.embed(["A town."]) is None
    knowledge_base.close()


# -- channels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", CHANNELS)
async def test_every_channel_answers_with_its_own_scores(films, channel):
    items = await films.ask(channel, "Where was Mara Lindqvist, director of 静港, born? 厦门", limit=4)
    assert 0 < len(items) <= 4
    relevance = [item.relevance for item in items]
    assert relevance == sorted(relevance, reverse=True)
    name = "vector" if channel == "dense" else channel
    for item in items:
        assert item.metadata["scores"] == {name: pytest.approx(item.relevance, abs=1e-4)}
        assert item.metadata["why"]
        again = await films.get_by_id(item.id)
        assert again is not None
        assert again.content == item.content


async def test_dense_gives_cosines_of_the_question_or_of_the_vector_given(films):
    items = await films.ask("dense", "marzipan in Lübeck", limit=3)
    vector = (await films.embed(["marzipan in Lübeck"]))[0]
    again = await films.ask("dense", "something else", limit=3, vector=5 * vector)
    assert [(i.id, round(i.relevance, 5)) for i in again] == [(i.id, round(i.relevance, 5)) for i in items]
    embedded = embedding_text(items[0].metadata["title"], (), items[0].content)
    passage = await films.embed([embedded], kind="passage")
    assert items[0].relevance == pytest.approx(float(passage[0] @ vector), abs=1e-3)
    assert await films.ask("dense", "x", limit=3, vector=np.zeros(512, dtype=np.float32)) == []


@pytest.mark.parametrize(
    "vector", [np.ones(3), np.full(512, np.nan), np.full(512, np.inf), np.ones((1, 512)), np.float32(1)]
)
async def test_a_vector_that_does_not_fit_is_refused(films, vector):
    with pytest.raises(InvalidInputError, match="512 finite numbers"):
        await films.ask("dense", "x", limit=3, vector=vector)


async def test_bm25_gives_raw_scores(films):
    items = await films.ask("bm25", "director film", limit=20)
    assert items[0].relevance > 1
    assert await films.ask("bm25", "?!", limit=20) == []


async def test_keyword_gives_the_share_of_the_keywords_that_a_passage_has(films):
    (item,) = await films.ask("keyword", "max_retries HTTPClient", limit=5)
    assert (item.metadata["title"], item.relevance) == ("Settings", 1.0)
    (item,) = await films.ask("keyword", "What is the max_retries of a zeppelin?", limit=5)
    assert item.relevance == pytest.approx(0.5)
    assert await asked(films, "keyword", "httpclient") == ["Settings"]
    assert await asked(films, "keyword", "--retry-limit") == ["Settings"]
    assert await asked(films, "keyword", "鼓浪屿在哪里") == ["厦门"]
    assert await films.ask("keyword", "the of 的", limit=5) == []


async def test_a_word_that_is_only_in_the_text_counts_half(films):
    (item,) = await films.ask("keyword", "marzipan", limit=5)
    assert (item.metadata["title"], item.relevance) == ("Lübeck", 0.5)


@pytest.mark.parametrize(
    ("question", "keywords"),
    [
        ("How does --dry-run use max_retries?", {"dry-run", "max_retries", "use"}),
        ("林若曦生于哪里", {"林若曦", "生于"}),
        ("ＨＴＴＰClient v2.3", {"httpclient", "v2.3"}),
        ("a I ? 的", set()),
    ],
)
def test_the_keywords_of_a_question_are_identifiers_and_significant_words(question: str, keywords: set[str]):
    assert question_keywords(question) >= keywords
    assert not question_keywords(question) & {"the", "of", "的", "a", "?", ""}


async def test_graph_finds_what_is_connected_with_what_the_question_names(films):
    found = await asked(films, "graph", "Mara Lindqvist", limit=10)
    assert {"Mara Lindqvist", "The Silent Harbour"} <= set(found)
    assert "Brno" not in found
    assert "静港" in await asked(films, "graph", "林若曦拍了什么？")
    assert await films.ask("graph", "nothing that has a name here", limit=5) == []


@pytest.mark.parametrize("channel", CHANNELS)
async def test_filters_hold_for_every_channel(films, channel):
    question = "Mara Lindqvist director film 厦门 max_retries"
    items = await films.ask(channel, question, limit=20, filters={"tags": "even"})
    assert items
    assert all("even" in item.metadata["tags"] for item in items)
    with pytest.raises(InvalidInputError, match="colour"):
        await films.ask(channel, question, limit=20, filters={"colour": "red"})


@pytest.mark.parametrize("channel", CHANNELS)
async def test_what_cannot_be_asked_is_refused(films, channel):
    with pytest.raises(InvalidInputError, match="empty"):
        await films.ask(channel, " \n", limit=5)
    for limit in (0, -1, 10_001):
        with pytest.raises(InvalidInputError, match="1 to 10000"):
            await films.ask(channel, "town", limit=limit)
    assert len(await films.ask(channel, "Mara Lindqvist max_retries", limit=10_000)) <= 16


async def test_a_channel_that_is_not_there_is_refused_with_those_that_are():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    with pytest.raises(InvalidInputError, match="'dense'") as caught:
        await knowledge_base.ask("dense", "town", limit=5)
    assert "bm25, keyword, graph" in caught.value.advice
    for channel in ("bm25", "keyword", "graph"):
        assert await knowledge_base.ask(channel, "town", limit=5) == []
    knowledge_base.close()


class PickyEmbedder(EmbeddingProvider):
    """English only, and only while it is on."""

    on = True
    id = "picky"
    dimension = 512
    languages = frozenset({"en"})

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        if not self.on:
            raise EmbeddingError("The model is switched off.")
        return await create_embedder("hashing").embed(texts, kind=kind)


async def test_dense_says_when_it_cannot_embed_and_leaves_other_languages_out():
    embedder = PickyEmbedder()
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town.", "采尔是城市。"])
    assert [item.content for item in await knowledge_base.ask("dense", "town", limit=5)] == [
        "Zell is a town."
    ]
    assert await knowledge_base.ask("dense", "城市", limit=5) == []
    embedder.on = False
    with pytest.raises(EmbeddingError, match="switched off"):
        await knowledge_base.ask("dense", "town", limit=5)
    knowledge_base.close()


@pytest.mark.parametrize("channel", ["bm25", "keyword"])
@pytest.mark.parametrize("left", [0, 0.5], ids=["gone", "cut short"])
async def test_an_index_of_words_that_is_damaged_is_built_again(tmp_path, channel, left: float):
    first = GraphRAGKnowledgeBase.from_config(path=tmp_path)
    await first.add_texts(["Set `max_retries` to 3."])
    first.close()
    for file in (tmp_path / "words-1").iterdir():
        if left:
            file.write_bytes(file.read_bytes()[: int(left * file.stat().st_size)])
        else:
            file.unlink()
    knowledge_base = GraphRAGKnowledgeBase.from_config(path=tmp_path)
    assert len(await knowledge_base.ask(channel, "max_retries", limit=5)) == 1
    assert knowledge_base.store.changes.state("words").generation == 2
    knowledge_base.close()


# -- passages and retrievers ------------------------------------------------------------------------


async def test_passages_come_in_the_order_they_were_added(films):
    everything = await films.passages(limit=100)
    assert titles(everything)[:3] == ["The Silent Harbour", "Mara Lindqvist", "Visby"]
    assert len(everything) == 16
    assert titles(await films.passages(limit=2)) == ["The Silent Harbour", "Mara Lindqvist"]
    assert titles(await films.passages(limit=2, filters={"language": "zh"})) == ["静港", "林若曦"]
    assert all((item.relevance, item.metadata["why"]) == (0.0, []) for item in everything)
    for limit in (0, 10_001):
        with pytest.raises(InvalidInputError, match=f"limit is {limit}"):
            await films.passages(limit=limit)


@pytest.mark.parametrize("name", ["knowledge_base", "dense", "bm25", "keyword", "graph", "hybrid", "fusion"])
async def test_it_makes_a_retriever_over_itself(films, name: str):
    retriever = films.retriever(name, top_k=2)
    passages = await retriever.retrieve("厦门 max_retries")
    assert {passage["metadata"]["title"] for passage in passages} & {"厦门", "Settings"}
    assert {passage["source"] for passage in passages} == {name}
    assert len(passages) <= 2


def test_an_unknown_retriever_is_refused(films):
    with pytest.raises(ConfigError, match="'nearest'"):
        films.retriever("nearest")


def test_its_methods_are_those_of_the_interface():
    for name in ("embed", "ask", "passages"):
        own = inspect.signature(getattr(GraphRAGKnowledgeBase, name))
        assert own.parameters.keys() == inspect.signature(getattr(PassageSource, name)).parameters.keys()
