"""The retrievers that combine: hybrid, fusion, and the order again by a reranker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loom_core import config
from loom_core.errors import ConfigError, EmbeddingError, LLMError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.retrievers.passages import with_scores
from loom_core.llm.mock import MockProvider
from loom_core.plugins import create

if TYPE_CHECKING:
    from tests.unit.knowledge.retrieval.retrievers.conftest import MemorySource

    MakeSource = Callable[..., MemorySource]

_QUERY = "harbour festival of a port 港口"


class _Shortest:
    """A real, if simple, reranker: the shortest passage first."""

    def __init__(self) -> None:
        self.seen: list[KnowledgeItem] = []

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        self.seen = list(items)
        best = sorted(items, key=lambda item: (len(item.content), item.id))[:limit]
        return [with_scores(item, 1 / len(item.content), {"rerank": -len(item.content)}) for item in best]


class _Failing:
    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        raise LLMError("No answer in time.")


async def _scores(source: MemorySource, name: str, **params: Any) -> dict[str, float]:
    retriever = create("retriever", name, [source], **params)
    return {p["chunk_id"]: p["score"] for p in await retriever.retrieve(_QUERY, top_k=10)}


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("hybrid", {"dense_weight": 0.6, "sparse_weight": 0.4}),
        ("fusion", {"mode": "weighted", "dense_weight": 0.6, "bm25_weight": 0.4}),
    ],
)
async def test_weighted_score_is_cosine_and_normalised_bm25_times_their_weights(
    harbours: MemorySource, name: str, params: dict[str, Any]
) -> None:
    dense, words = await _scores(harbours, "dense"), await _scores(harbours, "bm25")
    fused = await _scores(harbours, name, **params)
    assert fused == pytest.approx(
        {id_: 0.6 * dense.get(id_, 0) + 0.4 * words.get(id_, 0) for id_ in dense | words}
    )


async def test_rrf_score_is_the_sum_of_reciprocal_ranks(harbours: MemorySource) -> None:
    rankings = [list(await _scores(harbours, name)) for name in ("dense", "bm25")]
    fused = await _scores(harbours, "fusion", rrf_k=10)
    for id_, score in fused.items():
        ranks = [ranking.index(id_) + 1 for ranking in rankings if id_ in ranking]
        assert score == pytest.approx(sum(1 / (10 + rank) for rank in ranks))


@pytest.mark.parametrize("name", ["hybrid", "fusion"])
async def test_passage_tells_what_both_channels_said(harbours: MemorySource, name: str) -> None:
    best = (await create("retriever", name, [harbours]).retrieve("marzipan from a port"))[0]
    assert best["metadata"]["scores"].keys() == {"dense", "bm25"}
    assert 0 < best["metadata"]["scores"]["dense"] < 1 < best["metadata"]["scores"]["bm25"]


@pytest.mark.parametrize("name", ["hybrid", "fusion"])
async def test_channels_are_asked_for_more_than_is_wanted(harbours: MemorySource, name: str) -> None:
    await create("retriever", name, [harbours]).retrieve(_QUERY, top_k=20)
    assert sorted(harbours.asked) == [("bm25", 80), ("dense", 80)]


@pytest.mark.parametrize("name", ["hybrid", "fusion"])
async def test_source_without_vectors_is_searched_by_words_alone(make_source: MakeSource, name: str) -> None:
    source = make_source(channels=["bm25"])
    found = await create("retriever", name, [source]).retrieve("marzipan")
    assert [p["chunk_id"] for p in found] == ["c-Lübeck"]
    assert source.asked == [("bm25", 50)]


@pytest.mark.parametrize("name", ["hybrid", "fusion"])
async def test_source_without_an_index_of_words_is_read_for_it(make_source: MakeSource, name: str) -> None:
    source = make_source(channels=["dense"])
    found = await create("retriever", name, [source]).retrieve(_QUERY)
    assert found == await create("retriever", name, [make_source()]).retrieve(_QUERY)
    assert source.listed == 1


async def test_channel_that_fails_contributes_nothing(
    make_source: MakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    source = make_source(channels=["dense"])  # its words are read, so that asking it fails for dense only
    retriever = create("retriever", "hybrid", [source])
    await retriever.retrieve("marzipan")
    source.failure = EmbeddingError("The model is gone.")
    with caplog.at_level(logging.WARNING):
        found = await retriever.retrieve("marzipan")
    assert [p["chunk_id"] for p in found] == ["c-Lübeck"]
    assert "Knowledge base 'harbours': 'dense' was left out" in caplog.text


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("hybrid", {"dense_weight": -0.1}),
        ("hybrid", {"sparse_weight": float("nan")}),
        ("hybrid", {"dense_weight": 0.0, "sparse_weight": 0.0}),
        ("fusion", {"bm25_weight": float("inf")}),
        ("fusion", {"rrf_k": 0}),
        ("fusion", {"mode": "sum"}),
        ("fusion", {"rerank": True, "rerank_model": "no-such"}),
    ],
)
def test_parameters_out_of_range_are_refused(
    harbours: MemorySource, name: str, params: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        create("retriever", name, [harbours], **params)


async def test_rankings_of_several_sources_interleave_by_rank(make_source: MakeSource) -> None:
    """A source with one channel has lower sums, but its first is still the first of a source."""
    both, words = make_source("both"), make_source("words", channels=["bm25"])
    found = await create("retriever", "fusion", [both, words]).retrieve("harbour", top_k=6)
    assert [p["knowledge_base_id"] for p in found] == ["both", "words"] * 3
    assert [p["score"] for p in found] == pytest.approx([1 / 61, 1 / 61, 1 / 62, 1 / 62, 1 / 63, 1 / 63])


async def test_reranker_orders_the_best_candidates_of_all_sources(make_source: MakeSource) -> None:
    reranker = _Shortest()
    a, b = make_source("a"), make_source("b")
    retriever = create("retriever", "fusion", [a, b], rerank=True, reranker=reranker, top_k=3)
    found = await retriever.retrieve(_QUERY)
    assert len(reranker.seen) == 12
    assert [item.source for item in reranker.seen[:2]] == ["text:Lübeck", "text:Lübeck"]
    assert [(p["knowledge_base_id"], p["chunk_id"]) for p in found] == [
        ("a", "c-泉州"),
        ("b", "c-泉州"),
        ("a", "c-厦门"),
    ]
    assert found[0]["source"] == "fusion"
    assert found[0]["score"] == 1 / len(found[0]["text"])
    assert found[0]["metadata"]["scores"]["rerank"] == -len(found[0]["text"])
    assert found[0]["metadata"]["uri"] == "text:泉州"
    assert "knowledge_base_id" not in found[0]["metadata"]


async def test_reranker_that_is_not_named_is_the_one_that_needs_no_model(harbours: MemorySource) -> None:
    found = await create("retriever", "fusion", [harbours], rerank=True).retrieve("marzipan from a port")
    by_name = create("retriever", "fusion", [harbours], rerank=True, rerank_model="features")
    assert found == await by_name.retrieve("marzipan from a port")
    assert found[0]["chunk_id"] == "c-Lübeck"
    assert all("rerank" in p["metadata"]["scores"] and 0 <= p["score"] <= 1 for p in found)


async def test_no_more_than_some_candidates_go_through_the_reranker(make_source: MakeSource) -> None:
    reranker = _Shortest()
    source = make_source(texts={f"Port {n}": f"Port number {n} in the harbour" for n in range(60)})
    retriever = create("retriever", "fusion", [source], rerank=True, reranker=reranker)
    for top_k, seen in [(1, 20), (5, 20), (8, 32)]:
        await retriever.retrieve("harbour", top_k=top_k)
        assert len(reranker.seen) == seen


async def test_order_stays_where_the_reranker_fails(
    harbours: MemorySource, caplog: pytest.LogCaptureFixture
) -> None:
    plain = create("retriever", "fusion", [harbours])
    retriever = create("retriever", "fusion", [harbours], rerank=True, reranker=_Failing())
    with caplog.at_level(logging.WARNING):
        assert await retriever.retrieve(_QUERY, top_k=3) == await plain.retrieve(_QUERY, top_k=3)
    assert "No answer in time." in caplog.text
    assert _QUERY not in caplog.text


async def test_reranker_that_is_given_is_used_without_saying_rerank(harbours: MemorySource) -> None:
    reranker = _Shortest()
    found = await create("retriever", "fusion", [harbours], reranker=reranker).retrieve(_QUERY, top_k=2)
    assert [passage["chunk_id"] for passage in found] == ["c-泉州", "c-厦门"]
    named = create("retriever", "fusion", [harbours], rerank_model="features")
    said = create("retriever", "fusion", [harbours], rerank=True)
    assert await named.retrieve(_QUERY) == await said.retrieve(_QUERY)


@pytest.mark.parametrize("given", [{"reranker": _Shortest()}, {"rerank_model": "features"}])
async def test_reranking_that_is_switched_off_is_off(harbours: MemorySource, given: dict[str, Any]) -> None:
    off = create("retriever", "fusion", [harbours], rerank=False, **given)
    assert await off.retrieve(_QUERY) == await create("retriever", "fusion", [harbours]).retrieve(_QUERY)


async def test_reranker_named_llm_takes_the_default_model(harbours: MemorySource) -> None:
    model = MockProvider(["[2, 1]"])
    config.set_default_llm(model)
    try:
        retriever = create("retriever", "fusion", [harbours], rerank_model="llm")
    finally:
        config.reset()
    plain = await create("retriever", "fusion", [harbours]).retrieve(_QUERY, top_k=2)
    found = await retriever.retrieve(_QUERY, top_k=2)
    assert [p["chunk_id"] for p in found] == [p["chunk_id"] for p in reversed(plain)]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"rerank_model": "bge-reranker-large"},
            r"no reranker 'bge-reranker-large'.*ONNX.*\"api\", base_url",
        ),
        ({"rerank_model": "重排模型"}, "no reranker '重排模型'"),
        ({"rerank_model": "api"}, r"base_url.*reranker=create\(\"reranker\", \"api\", …\)"),
        ({"rerank_model": "cross_encoder"}, r"path.*reranker=create\(\"reranker\", \"cross_encoder\", …\)"),
        ({"rerank_model": "llm"}, "needs a language model.*set_default_llm"),
        ({"rerank_model": "features", "reranker": _Shortest()}, "Both `reranker` and `rerank_model`"),
    ],
)
def test_reranker_that_cannot_be_made_is_refused_with_what_to_do(
    harbours: MemorySource, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create("retriever", "fusion", [harbours], **params)


async def test_fusion_without_weights_for_a_channel_is_that_of_the_other(harbours: MemorySource) -> None:
    only_dense = await _scores(harbours, "hybrid", dense_weight=1.0, sparse_weight=0.0)
    assert only_dense == pytest.approx(await _scores(harbours, "dense"))


def test_item_of_a_passage_can_be_replaced_without_touching_the_passage(harbours: MemorySource) -> None:
    item = harbours._items[0]
    assert with_scores(item, 0.5, {"x": 1.0}).metadata is not item.metadata
    assert "scores" not in replace(item).metadata
