"""The retrievers of one channel: dense and BM25."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, StoreError
from loom_core.knowledge.retrieval.retrievers.channels import PassageLexicalIndexCache
from loom_core.plugins import create

if TYPE_CHECKING:
    from tests.unit.knowledge.retrieval.retrievers.conftest import MemorySource

    MakeSource = Callable[..., MemorySource]

_HASHING = {"provider": "local", "model": "hashing"}


class _Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- dense -----------------------------------------------------------------------------------------


async def test_dense_score_is_the_cosine(harbours: MemorySource) -> None:
    embedder = create_embedder("hashing")
    found = await create("retriever", "dense", [harbours]).retrieve("A port on the Trave")
    question = (await embedder.embed(["A port on the Trave"], kind="query"))[0]
    passage = await embedder.embed(["\n".join(["Lübeck", found[0]["text"]]), found[0]["text"]])
    assert found[0]["score"] == pytest.approx(float(max(passage @ question)), abs=1e-5)
    assert found[0]["metadata"]["scores"] == {"dense": found[0]["score"]}


@pytest.mark.parametrize("config", [_HASHING, {"model": "hashing"}, "hashing"])
async def test_question_is_embedded_by_the_model_of_the_configuration(
    harbours: MemorySource, config: Any
) -> None:
    by_config = create("retriever", "dense", [harbours], embedding_config=config)
    by_source = create("retriever", "dense", [harbours])
    assert await by_config.retrieve("海滨城市") == await by_source.retrieve("海滨城市")


@pytest.mark.parametrize("name", ["dense", "hybrid", "fusion"])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"provider": "local", "model": "static"}, "'harbours' were made by hashing"),
        ({"provider": "ollama", "model": "bge-m3", "base_url": "http://localhost:11434"}, "bge-m3.*were"),
        ({"provider": "local"}, "model"),
        ({"model": 5}, "names no model"),
        ("no-such-model", "no-such-model"),
    ],
)
def test_configuration_of_another_model_is_refused(
    harbours: MemorySource, name: str, config: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create("retriever", name, [harbours], embedding_config=config)


def test_configuration_does_not_matter_to_a_source_without_vectors(make_source: MakeSource) -> None:
    create("retriever", "hybrid", [make_source(channels=["bm25"])], embedding_config={"model": "static"})


async def test_question_in_a_language_that_the_model_does_not_cover_finds_nothing(
    make_source: MakeSource,
) -> None:
    source = make_source(embedder="minilm")
    retriever = create("retriever", "dense", [source], embedding_config={"model": "minilm"})
    assert await retriever.retrieve("海滨城市在哪里？") == []
    assert source.asked == []


# -- bm25 ------------------------------------------------------------------------------------------


async def test_bm25_of_a_batch_goes_from_one_to_zero_and_keeps_the_raw_score(harbours: MemorySource) -> None:
    found = await create("retriever", "bm25", [harbours]).retrieve("harbour festival")
    assert len(found) > 2
    assert found[0]["score"] == 1.0
    assert found[-1]["score"] == 0.0
    raw = [p["metadata"]["scores"]["bm25"] for p in found]
    assert raw == sorted(raw, reverse=True)
    assert raw[0] > 1


async def test_single_hit_of_bm25_has_one(harbours: MemorySource) -> None:
    found = await create("retriever", "bm25", [harbours]).retrieve("marzipan")
    assert [p["score"] for p in found] == [1.0]


async def test_score_of_a_passage_does_not_depend_on_how_many_are_wanted(harbours: MemorySource) -> None:
    retriever = create("retriever", "bm25", [harbours])
    assert (await retriever.retrieve("harbour festival", top_k=5))[:2] == await retriever.retrieve(
        "harbour festival", top_k=2
    )


async def test_source_with_an_index_of_words_is_asked_and_not_read(harbours: MemorySource) -> None:
    await create("retriever", "bm25", [harbours]).retrieve("marzipan")
    assert harbours.asked == [("bm25", 50)]
    assert harbours.listed == 0


@pytest.mark.parametrize("query", ["harbour festival", "港口城市", "max_retries", "nothing of it"])
async def test_source_without_an_index_of_words_is_ranked_alike(make_source: MakeSource, query: str) -> None:
    without = create("retriever", "bm25", [make_source(channels=["dense"])])
    with_index = create("retriever", "bm25", [make_source()])
    assert await without.retrieve(query) == await with_index.retrieve(query)


async def test_passages_of_a_source_are_read_once_until_they_are_too_old(make_source: MakeSource) -> None:
    source, clock = make_source(channels=["dense"]), _Clock()
    retriever = create("retriever", "bm25", [source], cache_ttl=60, clock=clock)
    await retriever.retrieve("marzipan")
    clock.now += 59
    await retriever.retrieve("港口")
    assert source.listed == 1
    clock.now += 1
    await retriever.retrieve("marzipan")
    assert source.listed == 2


async def test_filters_have_passages_of_their_own_in_any_order(make_source: MakeSource) -> None:
    source = make_source(channels=["dense"], fields={"厦门": {"tenant_id": "s"}})
    retriever = create("retriever", "bm25", [source])
    filters = {"title": "厦门"}
    for _ in range(2):
        await retriever.retrieve("港口")
        found = await retriever.retrieve("港口", filters=filters, tenant_id="s")
        assert [p["chunk_id"] for p in found] == ["c-厦门"]
        await retriever.retrieve("港口", filters={"tenant_id": "s", **filters})
    assert source.listed == 2


async def test_callers_at_the_same_time_read_a_source_once(make_source: MakeSource) -> None:
    source = make_source(channels=["dense"])
    retriever = create("retriever", "bm25", [source])
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(retriever.retrieve, "marzipan")
    assert source.listed == 1


async def test_indexes_that_are_kept_are_bounded(make_source: MakeSource) -> None:
    source = make_source(channels=["dense"])
    retriever = create("retriever", "bm25", [source])
    for number in range(20):
        await retriever.retrieve("marzipan", filters={"title": str(number)})
    assert source.listed == 20
    await retriever.retrieve("marzipan", filters={"title": "19"})
    assert source.listed == 20
    await retriever.retrieve("marzipan", filters={"title": "0"})
    assert source.listed == 21


async def test_passages_that_have_changed_are_indexed_anew_and_others_not(make_source: MakeSource) -> None:
    source, clock = make_source(channels=["dense"]), _Clock()
    cache = PassageLexicalIndexCache(max_chunks=100, ttl=60, clock=clock)
    words = await cache.of(source, None)
    clock.now += 60
    assert await cache.of(source, None) is words
    source._items.append(source._item("Kiel", "Kiel has marzipan too."))
    clock.now += 60
    assert {item.id for item in (await cache.of(source, None)).search("marzipan", 5)} == {
        "c-Lübeck",
        "c-Kiel",
    }


async def test_passages_that_are_too_old_are_not_used_where_the_source_fails(make_source: MakeSource) -> None:
    source, clock = make_source(channels=["dense"]), _Clock()
    retriever = create("retriever", "bm25", [source], clock=clock)
    await retriever.retrieve("marzipan")
    clock.now += 60
    source.failure = StoreError("Disk error.")
    for _ in range(2):
        with pytest.raises(StoreError):
            await retriever.retrieve("marzipan")


async def test_source_that_cannot_be_read_is_tried_again(make_source: MakeSource) -> None:
    source = make_source(channels=["dense"])
    retriever = create("retriever", "bm25", [source])
    source.failure = StoreError("Disk error.")
    with pytest.raises(StoreError):
        await retriever.retrieve("marzipan")
    source.failure = None
    assert (await retriever.retrieve("marzipan"))[0]["chunk_id"] == "c-Lübeck"


async def test_only_so_many_passages_are_read_and_the_log_says_so(
    make_source: MakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = create("retriever", "bm25", [make_source(channels=["dense"])], max_chunks=2)
    with caplog.at_level(logging.INFO):
        found = await retriever.retrieve("Lübeck Visby Brno")
    assert {p["chunk_id"] for p in found} == {"c-Lübeck", "c-Visby"}
    assert "first 2 passages of harbours" in caplog.text


@pytest.mark.parametrize("params", [{"max_chunks": 0}, {"cache_ttl": -1}, {"cache_ttl": float("nan")}])
def test_limits_of_the_cache_are_checked(harbours: MemorySource, params: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(params))):
        create("retriever", "bm25", [harbours], **params)


async def test_half_a_surrogate_pair_in_a_passage_does_not_spoil_the_index(make_source: MakeSource) -> None:
    source = make_source("odd", {}, channels=["dense"])
    source._items = [source._item("port", "a \ud800 port and \x00 more")]
    found = await create("retriever", "bm25", [source]).retrieve("port")
    assert [p["chunk_id"] for p in found] == ["c-port"]
