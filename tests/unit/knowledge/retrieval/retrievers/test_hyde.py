from __future__ import annotations

import json

import anyio
import numpy as np
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import EmbeddingError, InvalidInputError
from loom_core.llm.mock import MockProvider
from loom_core.plugins import create

_DOCUMENTS = ["Marzipan comes from Lübeck, a port.", "A harbour on the Trave has a festival."]


def _model(documents=_DOCUMENTS) -> MockProvider:
    return MockProvider([*documents])


def _hyde(*sources, **params):
    return create("retriever", "hyde", sources, **{"llm_provider": _model(), "num_queries": 2, **params})


def _ids(passages) -> list[str]:
    return [passage["chunk_id"] for passage in passages]


async def _mean(documents: list[str], question: str | None):
    embedder = create_embedder("hashing")
    vectors = [await embedder.embed(documents, kind="passage")]
    if question is not None:
        vectors.append(await embedder.embed([question], kind="query"))
    mean = np.concatenate(vectors).mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("include_original", [True, False])
async def test_over_dense_one_search_is_made_by_the_mean_vector(harbours, include_original):
    found = await _hyde(harbours, include_original=include_original).retrieve("sweets?", top_k=3)
    vector = await _mean(_DOCUMENTS, "sweets?" if include_original else None)
    expected = await harbours.ask("dense", "", limit=3, vector=vector)
    assert _ids(found) == [item.id for item in expected]
    assert [p["score"] for p in found] == pytest.approx([item.relevance for item in expected], abs=1e-6)
    assert found[0]["metadata"]["scores"]["dense"] == found[0]["score"]


async def test_a_passage_unlike_the_question_is_found_by_a_document_like_it(harbours):
    question = "哪里能坐船去古老的商路？"
    model = _model(["泉州港停满商船，是海上丝绸之路的起点。"])
    found = await _hyde(harbours, llm_provider=model, num_queries=1).retrieve(question, top_k=1)
    assert _ids(found) == ["c-泉州"]
    assert "中文回答" in model.calls[0].messages[0].text


async def test_every_passage_tells_the_hypothetical_documents(harbours):
    for base in ("dense", "bm25"):
        found = await _hyde(harbours, base_retriever=base).retrieve("sweets")
        assert found
        for passage in found:
            assert passage["source"] == "hyde"
            assert passage["hyde_queries"] == _DOCUMENTS
            assert passage["hyde_queries_count"] == 2


@pytest.mark.parametrize("include_original", [True, False])
async def test_over_another_base_the_rankings_of_the_texts_are_fused(harbours, include_original):
    retriever = _hyde(harbours, base_retriever="bm25", include_original=include_original, rrf_k=1)
    found = await retriever.retrieve("Gotland")
    base = create("retriever", "bm25", [harbours])
    scores: dict[str, float] = {}
    for text in _DOCUMENTS if not include_original else ["Gotland", *_DOCUMENTS]:
        for rank, id_ in enumerate(_ids(await base.retrieve(text, top_k=20)), start=1):
            scores[id_] = scores.get(id_, 0) + 1 / (1 + rank)
    assert {p["chunk_id"]: p["score"] for p in found} == pytest.approx(scores)
    assert ("c-Visby" in _ids(found)) is include_original


@pytest.mark.parametrize("base", ["dense", "bm25"])
@pytest.mark.parametrize("include_original", [True, False])
@pytest.mark.parametrize("model", [MockProvider([]), MockProvider(["x"] * 9, delay=3600)])
async def test_without_an_answer_of_the_model_the_base_s_own_result_is_returned(
    harbours, model, base, include_original
):
    retriever = _hyde(
        harbours, llm_provider=model, base_retriever=base, include_original=include_original, timeout=0.02
    )
    found = await retriever.retrieve("harbour festival", top_k=2)
    plain = await create("retriever", base, [harbours]).retrieve("harbour festival", top_k=2)
    assert _ids(found) == _ids(plain)
    assert [p["score"] for p in found] == [p["score"] for p in plain]
    assert found[0]["hyde_queries"] == []
    assert found[0]["hyde_queries_count"] == 0
    assert found[0]["source"] == "hyde"


async def test_several_knowledge_bases_are_merged_by_cosine_and_those_without_vectors_are_left_out(
    make_source,
):
    one = make_source("one", {"Lübeck": "Lübeck is known for marzipan."})
    two = make_source("two", {"Brno": "Brno lies in Moravia."})
    words = make_source("words", {"Trave": "The Trave is a river."}, channels=["bm25"])
    found = await _hyde(one, two, words).retrieve("sweets")
    assert [p["knowledge_base_id"] for p in found] == ["one", "two"]
    assert found[0]["score"] > found[1]["score"]


async def test_an_embedder_can_be_configured_for_the_base(harbours):
    retriever = _hyde(harbours, base_retriever_params={"embedding_config": "hashing"})
    assert _ids(await retriever.retrieve("sweets")) == _ids(await _hyde(harbours).retrieve("sweets"))


async def test_a_source_that_cannot_embed_searches_for_the_question_itself(make_source):
    class Closed(make_source):
        async def embed(self, texts, *, kind="query"):
            return None

    found = await _hyde(Closed()).retrieve("harbour festival")
    plain = await create("retriever", "dense", [Closed()]).retrieve("harbour festival")
    assert _ids(found) == _ids(plain)
    assert found[0]["hyde_queries"] == _DOCUMENTS


async def test_documents_without_any_words_leave_the_search_to_the_question(make_source):
    class Wordless(make_source):
        async def embed(self, texts, *, kind="query"):
            return 0 * await super().embed(texts, kind=kind)

    found = await _hyde(Wordless()).retrieve("harbour festival")
    plain = await create("retriever", "dense", [Wordless()]).retrieve("harbour festival")
    assert _ids(found) == _ids(plain)


async def test_a_knowledge_base_whose_model_fails_is_left_out(make_source):
    class Broken(make_source):
        @property
        def embedder_id(self):
            return "broken/1"

        async def embed(self, texts, *, kind="query"):
            raise EmbeddingError("The model does not answer.")

    found = await _hyde(make_source("good"), Broken("broken")).retrieve("sweets")
    assert {p["knowledge_base_id"] for p in found} == {"good"}


async def test_without_any_vectors_there_is_an_error_before_the_model_is_waited_for(make_source):
    retriever = _hyde(
        make_source(channels=["bm25"]), llm_provider=MockProvider(["late"] * 2, delay=3600), timeout=3600
    )
    with anyio.fail_after(10), pytest.raises(InvalidInputError, match="dense"):
        await retriever.retrieve("sweets")


async def test_hyde_over_multi_query_shares_the_model(harbours):
    model = MockProvider(
        lambda request: (
            json.dumps(["marzipan"]) if "JSON" in request.messages[0].text else "A passage on ports."
        )
    )
    retriever = _hyde(harbours, llm_provider=model, base_retriever="multi_query", num_queries=1)
    found = await retriever.retrieve("harbour")
    assert found[0]["source"] == "hyde"
    assert found[0]["generated_queries"] == ["marzipan"]
