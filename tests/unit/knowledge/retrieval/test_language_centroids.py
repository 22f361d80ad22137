"""Language centroids: the worker makes them before a question needs them, and the record keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.embedding.registry import create_embedder, requirement_of
from loom_core.errors import EmbeddingError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig
from loom_core.knowledge.retrieval.config import WaitSettings
from loom_core.knowledge.retrieval.current_embedder import CALIBRATION_TEXTS, LanguageCentroids
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.text.languages import detect_language, language_group

pytestmark = pytest.mark.slow

BOTH = frozenset({"alphabetic", "zh"})
TEXTS = ["Zell is a town in Austria.", "Boats go back to the harbour.", "采尔是奥地利的城市。"]

Open = Callable[..., GraphRAGKnowledgeBase]


class CountingEmbedder(EmbeddingProvider):
    """The hashing embedder as if it compared languages; it notes stock sentences, and can fail on them."""

    def __init__(self, *, languages: frozenset[str] | None = None, cross_lingual: bool = True) -> None:
        self.on = True
        self.embedded: list[str] = []
        self._inner = create_embedder("hashing")
        self._languages = languages
        self._cross_lingual = cross_lingual

    @property
    def id(self) -> str:
        return "counting"

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    @property
    def languages(self) -> frozenset[str] | None:
        return self._languages

    @property
    def cross_lingual(self) -> bool:
        return self._cross_lingual

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> np.ndarray:
        stock = [language for language, sentences in CALIBRATION_TEXTS.items() if set(sentences) & set(texts)]
        if stock and not self.on:
            raise EmbeddingError("The model is switched off.", advice="Switch it on.")
        self.embedded += stock
        return await self._inner.embed(texts, kind=kind)


@pytest.fixture
def open_base(tmp_path: Path) -> Iterator[Open]:
    """Opens the knowledge base of the test, each time as another process would."""
    opened: list[GraphRAGKnowledgeBase] = []

    def open_(embedder: EmbeddingProvider, **options: Any) -> GraphRAGKnowledgeBase:
        opened.append(
            GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, path=tmp_path / "kb", **options)
        )
        return opened[-1]

    yield open_
    for knowledge_base in opened:
        knowledge_base.close()


# -- the sentences ----------------------------------------------------------------------------------


def test_there_are_as_many_different_sentences_for_every_language_that_retrieval_tells_apart():
    assert CALIBRATION_TEXTS.keys() == {
        language_group(code) for code in ("en", "de", "und", "zh", "ja", "ko")
    }
    assert {len(set(sentences)) for sentences in CALIBRATION_TEXTS.values()} == {20}


@pytest.mark.parametrize("group", CALIBRATION_TEXTS)
def test_every_sentence_is_told_to_be_in_its_language(group: str):
    assert {language_group(detect_language(sentence)) for sentence in CALIBRATION_TEXTS[group]} == {group}


# -- made by the worker, kept in the record ---------------------------------------------------------


async def test_a_centroid_is_the_average_of_its_sentences(open_base: Open):
    embedder = CountingEmbedder()
    knowledge_base = open_base(embedder)
    await knowledge_base.add_texts(TEXTS)
    kept = LanguageCentroids(knowledge_base.store, embedder).of(BOTH, space=embedder.id)
    assert kept.keys() == BOTH
    for language, centroid in kept.items():
        vectors = await embedder.embed(CALIBRATION_TEXTS[language])
        assert np.array_equal(centroid, vectors.mean(axis=0))


async def test_the_worker_makes_each_once_there_are_passages_in_its_language(open_base: Open):
    embedder = CountingEmbedder()
    knowledge_base = open_base(embedder)
    await knowledge_base.add_texts(TEXTS[:2])
    assert embedder.embedded == ["alphabetic"]
    await knowledge_base.add_texts(TEXTS)
    assert sorted(embedder.embedded) == sorted(BOTH)
    await knowledge_base.add_texts(["一家面包店。"])
    assert sorted(embedder.embedded) == sorted(BOTH)


async def test_a_question_has_no_stock_sentence_embedded_whether_they_are_known_or_not(open_base: Open):
    embedder = CountingEmbedder()
    embedder.on = False  # for the stock sentences
    knowledge_base = open_base(embedder)
    await knowledge_base.add_texts(TEXTS)
    embedder.on = True
    answer = await knowledge_base.search("town")
    assert (embedder.embedded, answer.items[0].content) == ([], TEXTS[0])
    assert LanguageCentroids(knowledge_base.store, embedder).of(BOTH, space=embedder.id) == {}


async def test_another_process_that_answers_by_itself_finds_them_in_the_record(open_base: Open):
    await open_base(CountingEmbedder()).add_texts(TEXTS)
    embedder = CountingEmbedder()
    other = open_base(embedder)
    assert (await other.search("城市")).items[0].content == TEXTS[2]
    assert embedder.embedded == []
    assert LanguageCentroids(other.store, embedder).of(BOTH, space=embedder.id).keys() == BOTH


async def test_where_embedding_them_fails_the_worker_says_so_and_tries_again(open_base: Open):
    embedder = CountingEmbedder()
    embedder.on = False
    knowledge_base = open_base(embedder, config=RAGConfig(waits=WaitSettings(vectors=0.0)))
    await knowledge_base.add_texts(TEXTS)
    assert (await knowledge_base.search("town")).notes == (
        "No vectors for now: The model is switched off. Switch it on.",
    )
    embedder.on = True
    await knowledge_base.worker.drain()
    assert sorted(embedder.embedded) == sorted(BOTH)
    assert (await knowledge_base.search("town")).notes == ()


async def test_those_of_another_embedder_are_not_taken(open_base: Open):
    embedder = CountingEmbedder()
    knowledge_base = open_base(embedder)
    await knowledge_base.add_texts(TEXTS)
    centroids = LanguageCentroids(knowledge_base.store, embedder)
    assert centroids.of(BOTH, space="another") == {}
    assert centroids.missing(BOTH) == ""


# -- made where they make a difference --------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedder", "languages", "first"),
    [
        (CountingEmbedder(), BOTH, "alphabetic"),
        (CountingEmbedder(), {"zh"}, "zh"),
        (CountingEmbedder(), set(), ""),
        (CountingEmbedder(cross_lingual=False), BOTH, "alphabetic"),
        (HashingEmbedder(), BOTH, ""),
        (CountingEmbedder(languages=frozenset({"en", "zh"})), {*BOTH, "ja"}, "alphabetic"),
        (CountingEmbedder(languages=frozenset({"zh", "ko"})), {*BOTH, "ko"}, "ko"),
        (CountingEmbedder(languages=frozenset({"zh"})), BOTH, "zh"),
    ],
)
def test_only_languages_that_questions_are_compared_with_are_embedded(embedder, languages, first):
    store = KnowledgeStore(None)
    assert LanguageCentroids(store, embedder).missing(frozenset(languages)) == first
    store.close()


@pytest.mark.parametrize("embedder", ["e5-small", "e5-small+bge-small-en"])
async def test_the_only_english_document_is_found_by_a_chinese_question(embedder: str):
    if wheel := requirement_of(embedder):
        pytest.skip(f"{wheel} is not installed")
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder(embedder))
    english = "While a typhoon lasts, the quay stays closed and every boat has to go back to the harbour."
    chinese = ["面包店早上六点开门。", "央行加息之后，股价大幅下跌。", "新学校可以容纳四百名学生。"]
    await knowledge_base.add_texts([english, *chinese])
    assert (await knowledge_base.search("遇到强风暴，船怎么办？")).items[0].content == english
    assert (await knowledge_base.search("早上几点可以买到吐司？")).items[0].content == chinese[0]
    knowledge_base.close()
