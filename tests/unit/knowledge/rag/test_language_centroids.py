"""What is usual in a language: made when it is first needed, kept, and done without where it cannot be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import numpy as np
import pytest

from loom_core.embedding.hashing import HashingEmbedder
from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError
from loom_core.knowledge.language import detect_language, language_group
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.language_centroids import LanguageCentroids
from loom_core.knowledge.rag.question import QuestionReader
from loom_core.knowledge.rag.stock_sentences import STOCK_SENTENCES
from loom_core.knowledge.record import Record

BOTH = frozenset({"alphabetic", "zh"})


class CountingEmbedder(EmbeddingProvider):
    """The hashing embedder as if it compared languages; it notes stock sentences and can be switched off."""

    def __init__(self, *, languages: frozenset[str] | None = None, cross_lingual: bool = True) -> None:
        self.on = True
        self.hangs = False
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
        stock = [language for language, sentences in STOCK_SENTENCES.items() if set(sentences) & set(texts)]
        if stock and not self.on:
            raise EmbeddingError("The model is switched off.", advice="Switch it on.")
        if stock and self.hangs:
            await asyncio.Event().wait()
        self.embedded += stock
        return await self._inner.embed(texts, kind=kind)


# -- the sentences ----------------------------------------------------------------------------------


def test_there_are_as_many_different_sentences_for_every_language_that_retrieval_tells_apart():
    assert STOCK_SENTENCES.keys() == {language_group(code) for code in ("en", "de", "und", "zh", "ja", "ko")}
    assert {len(set(sentences)) for sentences in STOCK_SENTENCES.values()} == {20}


@pytest.mark.parametrize("group", STOCK_SENTENCES)
def test_every_sentence_is_told_to_be_in_its_language(group: str):
    assert {language_group(detect_language(sentence)) for sentence in STOCK_SENTENCES[group]} == {group}


# -- made once --------------------------------------------------------------------------------------


async def test_a_centroid_is_the_average_of_its_sentences_and_made_once():
    embedder = CountingEmbedder()
    centroids = LanguageCentroids(embedder)
    made = await centroids.of({"zh"})
    expected = (await embedder.embed(STOCK_SENTENCES["zh"])).mean(axis=0)
    assert np.array_equal(made["zh"], expected)
    embedder.embedded.clear()
    assert (await centroids.of(BOTH)).keys() == BOTH
    assert (await centroids.of(BOTH))["zh"] is made["zh"]
    assert embedder.embedded == ["alphabetic"]


async def test_where_embedding_fails_there_is_none_and_it_is_tried_again_later(
    caplog: pytest.LogCaptureFixture,
):
    embedder = CountingEmbedder()
    patient, hasty = LanguageCentroids(embedder), LanguageCentroids(embedder, retry_after=0.0)
    await patient.of({"zh"})
    embedder.on = False
    for centroids in (patient, hasty):
        with caplog.at_level(logging.WARNING):
            assert await centroids.of(BOTH) == {}
        assert "The model is switched off." in caplog.text
    embedder.on = True
    assert await patient.of(BOTH) == {}
    assert (await patient.of({"zh"})).keys() == {"zh"}
    assert (await hasty.of(BOTH)).keys() == BOTH


async def test_a_slow_embedder_is_not_waited_for_for_ever(caplog: pytest.LogCaptureFixture):
    embedder = CountingEmbedder()
    embedder.hangs = True
    with caplog.at_level(logging.WARNING):
        assert await LanguageCentroids(embedder, patience=0.01).of(BOTH) == {}
    assert "too slow" in caplog.text


# -- made where they make a difference --------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedder", "languages", "passages", "made"),
    [
        (CountingEmbedder(), BOTH, 1000, BOTH),
        (CountingEmbedder(), {"zh"}, 1000, {"zh"}),  # a question in English
        (CountingEmbedder(), {"alphabetic"}, 1000, set()),
        (CountingEmbedder(), {"alphabetic"}, 3, {"alphabetic"}),  # their average is chance
        (CountingEmbedder(), set(), 0, set()),
        (CountingEmbedder(cross_lingual=False), BOTH, 1000, set()),
        (CountingEmbedder(languages=frozenset({"en", "zh"})), {*BOTH, "ja"}, 1000, BOTH),
        (CountingEmbedder(languages=frozenset({"zh"})), BOTH, 1000, {"zh"}),
        (HashingEmbedder(), BOTH, 3, set()),
        (None, BOTH, 3, set()),
    ],
)
async def test_only_languages_that_questions_are_compared_with_are_embedded(
    embedder, languages, passages, made
):
    record = Record(None)
    reader = QuestionReader(record, embedder)
    centroids = await reader.centroids(frozenset(languages), asked="alphabetic", passages=passages)
    assert centroids.keys() == made
    assert set(getattr(embedder, "embedded", ())) == made
    record.close()


async def test_a_knowledge_base_embeds_them_at_its_first_question_by_vectors():
    embedder = CountingEmbedder()
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "采尔是奥地利的城市。"])
    for strategy in ("bm25", "graph_only"):
        await knowledge_base.search("town", strategy=strategy)
    assert embedder.embedded == []
    for _ in range(2):
        assert (await knowledge_base.search("town")).items[0].content == "Zell is a town in Austria."
        assert sorted(embedder.embedded) == sorted(BOTH)
    knowledge_base.close()


async def test_a_question_is_answered_without_them():
    embedder = CountingEmbedder()
    embedder.on = False
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder)
    await knowledge_base.add_texts(["Zell is a town in Austria.", "采尔是奥地利的城市。"])
    answer = await knowledge_base.search("town")
    assert (answer.items[0].content, answer.notes) == ("Zell is a town in Austria.", ())
    knowledge_base.close()


@pytest.mark.skipif("e5-small" not in create_embedder("auto").id, reason="this platform has no e5-small")
async def test_the_only_english_document_is_found_by_a_chinese_question():
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("e5-small"))
    english = "While a typhoon lasts, the quay stays closed and every boat has to go back to the harbour."
    chinese = ["面包店早上六点开门。", "央行加息之后，股价大幅下跌。", "新学校可以容纳四百名学生。"]
    await knowledge_base.add_texts([english, *chinese])
    assert (await knowledge_base.search("遇到强风暴，船怎么办？")).items[0].content == english
    assert (await knowledge_base.search("早上几点可以买到吐司？")).items[0].content == chinese[0]
    knowledge_base.close()
