"""Words are searched while the question is embedded and compared with the vectors."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio
import numpy as np
import pytest
from anyio import to_thread

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError, IndexDamagedError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.retrieval.strategies import retrieve

PATIENCE = 60.0  # seconds until a test gives up what never comes


class WatchedEmbedder(EmbeddingProvider):
    """The hashing embedder, which does what a test wants before it embeds a question."""

    id = "watched"

    def __init__(self) -> None:
        self._inner = create_embedder("hashing")

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    async def before(self) -> None:
        """Replaced by tests."""

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        if kind == "query":
            await self.before()
        return await self._inner.embed(texts, kind=kind)


@pytest.fixture
def embedder() -> WatchedEmbedder:
    return WatchedEmbedder()


@pytest.fixture
async def towns(embedder: WatchedEmbedder) -> AsyncIterator[GraphRAGKnowledgeBase]:
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "采尔是奥地利的城市。", "Nothing else."])
    yield knowledge_base
    knowledge_base.close()


def meet_in(monkeypatch: pytest.MonkeyPatch, where: object, method: str, meeting: threading.Barrier) -> None:
    """Have the first call of a method go on only when the other one of the meeting is under way, too."""
    real, first = getattr(where, method), iter([True])

    def call(*args: object, **options: object) -> object:
        if next(first, False):
            meeting.wait(PATIENCE)
        return real(*args, **options)

    monkeypatch.setattr(where, method, call)


@pytest.mark.parametrize("question", ["town", "奥地利的城市"])
async def test_words_are_searched_while_the_question_is_embedded(towns, embedder, monkeypatch, question):
    meeting = threading.Barrier(2)
    meet_in(monkeypatch, towns._words.searcher(), "search", meeting)

    async def before() -> None:
        await to_thread.run_sync(meeting.wait, PATIENCE)

    embedder.before = before
    answer = await towns.search(question)
    assert answer.notes == ()
    assert {"bm25", "vector"} <= answer.items[0].metadata["scores"].keys()


async def test_words_and_vectors_are_searched_at_the_same_time(towns, monkeypatch):
    meeting = threading.Barrier(2)
    meet_in(monkeypatch, towns._words.searcher(), "search", meeting)
    meet_in(monkeypatch, towns._vectors.current(), "by_language", meeting)
    answer = await towns.search("town")
    assert {"bm25", "vector"} <= answer.items[0].metadata["scores"].keys()


@pytest.mark.parametrize("channel", ["words", "vectors"])
async def test_an_error_of_one_channel_comes_out_as_it_is(towns, monkeypatch, channel):
    class OddError(Exception):
        pass

    def fail(*_args: object, **_options: object) -> object:
        raise OddError

    index, method = (
        (towns._words.searcher(), "search")
        if channel == "words"
        else (towns._vectors.current(), "by_language")
    )
    monkeypatch.setattr(index, method, fail)
    with pytest.raises(OddError):
        await towns.search("town")


async def test_an_embedder_that_fails_costs_its_channel_alone(towns, embedder):
    async def before() -> None:
        raise EmbeddingError("The model is gone.")

    embedder.before = before
    answer = await towns.search("town")
    assert answer.items[0].content == "Zell is a town in Austria."
    assert [note for note in answer.notes if "The model is gone." in note]


async def test_words_that_are_damaged_are_rebuilt_and_asked_again(towns, monkeypatch):
    index = towns._words.searcher()
    real, first = index.search, iter([True])

    def search(*args: object, **options: object) -> object:
        if next(first, False):
            raise IndexDamagedError("A segment is gone.")
        return real(*args, **options)

    monkeypatch.setattr(index, "search", search)
    answer = await towns.search("town")
    assert (answer.items[0].content, answer.notes) == ("Zell is a town in Austria.", ())
    assert towns.store.changes.state("words").generation == 2


async def test_a_question_that_is_cancelled_ends_its_embedding(towns, embedder):
    embedding, ended = anyio.Event(), anyio.Event()

    async def before() -> None:
        embedding.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    embedder.before = before
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(towns.search, "town")
        await embedding.wait()
        tasks.cancel_scope.cancel()
    assert ended.is_set()


@pytest.mark.parametrize(
    "question",
    ["Where was the director of The Silent Harbour born?", "film", "《静港》的导演是哪里人？"],
)
async def test_what_is_found_is_what_one_channel_after_the_other_finds(films, question):
    vector = (await films.embed([question]))[0]
    searcher = films._searcher
    asked = await searcher._ask(question, None, "hybrid", embeds=True)
    channels = Channels(
        films._words.searcher(),
        films._vectors.current(),
        covered=films._reader.comparable_groups(asked.question.language),
        centroids=asked.channels.centroids,
        embed=searcher._embed_more,
    )
    retrieve_all = partial(
        retrieve,
        PreparedQuestion.of(question, vector=vector, space=films.embedder_id),
        50,
        strategy="hybrid",
        channels=channels,
        graph=films.store.graph,
        config=RAGConfig(),
    )
    expected = await to_thread.run_sync(retrieve_all)
    found, missing = await to_thread.run_sync(searcher._retrieve, asked, films.store.glance(), 50, "hybrid")
    assert (found.found, found.counts, found.nearness) == (expected.found, expected.counts, expected.nearness)
    assert missing == ""
    assert asked.hits.lexical
    assert asked.hits.near
