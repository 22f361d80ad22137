from __future__ import annotations

import json
import logging
from functools import partial

import anyio
import pytest

from loom_core.errors import ConfigError, InvalidInputError, LLMError, LoomError
from loom_core.llm.mock import MockProvider
from loom_core.plugins import create

_VARIANTS = ["Which port is known for marzipan?", "福建省的海滨城市是哪个？"]


def _model(*variants: str) -> MockProvider:
    return MockProvider(lambda _: json.dumps(variants or _VARIANTS))


def _ids(passages) -> list[str]:
    return [passage["chunk_id"] for passage in passages]


async def test_passages_that_only_a_variant_finds_are_found(harbours):
    question = "Where do ships stop?"
    alone = await create("retriever", "bm25", [harbours]).retrieve(question)
    retriever = create("retriever", "multi_query", [harbours], llm_provider=_model(), base_retriever="bm25")
    found = await retriever.retrieve(question)
    assert not {"c-Lübeck", "c-厦门"} & set(_ids(alone))
    assert {"c-Lübeck", "c-厦门"} <= set(_ids(found))


async def test_rankings_are_fused_by_reciprocal_rank(harbours):
    retriever = create(
        "retriever", "multi_query", [harbours], llm_provider=_model(), rrf_k=10, num_queries=2, top_k=4
    )
    found = await retriever.retrieve("harbour")
    details = found[0]["retrieval_details"]
    ranks = {
        passage["chunk_id"]: sum(
            1 / (11 + ids.index(passage["chunk_id"]))
            for ids in ([hit["chunk_id"] for hit in detail["hits"]] for detail in details)
            if passage["chunk_id"] in ids
        )
        for passage in found
    }
    assert [passage["score"] for passage in found] == pytest.approx(list(ranks.values()))
    assert _ids(found) == sorted(ranks, key=lambda id_: -ranks[id_])


async def test_every_passage_tells_the_variants_and_what_each_question_found(harbours):
    retriever = create("retriever", "multi_query", [harbours], llm_provider=_model(), top_k=2)
    found = await retriever.retrieve("harbour")
    alone = await create("retriever", "dense", [harbours]).retrieve("harbour", top_k=20)
    assert len(found) == 2
    for passage in found:
        assert passage["source"] == "multi_query"
        assert passage["knowledge_base_id"] == "harbours"
        assert passage["generated_queries"] == _VARIANTS
        assert passage["queries_count"] == 2
        details = passage["retrieval_details"]
        assert [detail["query"] for detail in details] == ["harbour", *_VARIANTS]
        assert all(detail["hits_count"] == len(detail["hits"]) for detail in details)
        assert details[0]["hits"] == [
            {"chunk_id": hit["chunk_id"], "text": hit["text"], "score": hit["score"]} for hit in alone
        ]


async def test_without_the_original_only_the_variants_count(harbours):
    retriever = create(
        "retriever",
        "multi_query",
        [harbours],
        llm_provider=_model("Moravia"),
        base_retriever="bm25",
        include_original=False,
    )
    found = await retriever.retrieve("marzipan")
    assert _ids(found) == ["c-Brno"]
    assert [detail["query"] for detail in found[0]["retrieval_details"]] == ["Moravia"]


@pytest.mark.parametrize("include_original", [True, False])
@pytest.mark.parametrize(
    "model", [MockProvider([]), MockProvider(["<think>"]), MockProvider(["x"], delay=3600)]
)
async def test_without_an_answer_of_the_model_the_question_is_searched_for(harbours, model, include_original):
    base = create("retriever", "dense", [harbours])
    retriever = create(
        "retriever",
        "multi_query",
        [harbours],
        llm_provider=model,
        include_original=include_original,
        timeout=0.02,
    )
    found = await retriever.retrieve("harbour festival")
    assert _ids(found) == _ids(await base.retrieve("harbour festival"))
    assert found[0]["generated_queries"] == []
    assert found[0]["queries_count"] == 0
    assert [detail["query"] for detail in found[0]["retrieval_details"]] == ["harbour festival"]


async def test_the_question_is_searched_for_while_the_model_is_at_work(harbours):
    asked_before_the_answer: list[object] = []

    def answer(_):
        asked_before_the_answer.extend(harbours.asked)
        return "[]"

    retriever = create(
        "retriever",
        "multi_query",
        [harbours],
        llm_provider=MockProvider(answer, delay=0.01),
        base_retriever="bm25",
    )
    await retriever.retrieve("harbour")
    assert asked_before_the_answer


async def test_a_variant_whose_search_fails_is_left_out(harbours, caplog):
    class Choosy(type(harbours)):
        async def ask(self, channel, query, **options):
            if query == "bad one":
                raise LoomError("The store does not like it.")
            return await super().ask(channel, query, **options)

    retriever = create(
        "retriever",
        "multi_query",
        [Choosy()],
        llm_provider=_model("bad one", "marzipan"),
        base_retriever="bm25",
    )
    with caplog.at_level(logging.WARNING):
        found = await retriever.retrieve("silk road 丝绸")
    assert set(_ids(found)) == {"c-Lübeck", "c-泉州"}
    assert found[0]["generated_queries"] == ["bad one", "marzipan"]
    assert [detail["query"] for detail in found[0]["retrieval_details"]] == ["silk road 丝绸", "marzipan"]
    assert "bad one" not in caplog.text


async def test_what_is_wrong_with_the_request_is_told_without_waiting_for_the_model(harbours):
    harbours.failure = InvalidInputError("There is no such filter.")
    retriever = create(
        "retriever", "multi_query", [harbours], llm_provider=MockProvider(["late"], delay=3600), timeout=3600
    )
    with anyio.fail_after(10), pytest.raises(InvalidInputError, match="no such filter"):
        await retriever.retrieve("harbour", filters={"colour": "red"})


async def test_filters_and_tenant_apply_to_every_question(make_source):
    source = make_source(fields={"Visby": {"tenant_id": "t1"}, "厦门": {"tenant_id": "t1"}})
    retriever = create("retriever", "multi_query", [source], llm_provider=_model())
    found = await retriever.retrieve("harbour", tenant_id="t1")
    assert set(_ids(found)) == {"c-Visby", "c-厦门"}


async def test_only_the_chosen_knowledge_bases_are_searched(make_source):
    retriever = create(
        "retriever", "multi_query", [make_source("one"), make_source("two")], llm_provider=_model()
    )
    found = await retriever.retrieve("harbour", kb_ids=["two"])
    assert {passage["knowledge_base_id"] for passage in found} == {"two"}


async def test_expansion_nests_and_the_inner_retriever_gets_the_model_too(harbours):
    model = MockProvider(
        lambda request: (
            json.dumps(["marzipan"]) if "JSON" in request.messages[0].text else "A passage on ports."
        )
    )
    retriever = create(
        "retriever",
        "multi_query",
        [harbours],
        llm_provider=model,
        base_retriever="hyde",
        base_retriever_params={"base_retriever": "bm25", "num_queries": 1},
    )
    found = await retriever.retrieve("harbour")
    assert found[0]["source"] == "multi_query"
    assert found[0]["generated_queries"] == ["marzipan"]
    assert found[0]["hyde_queries"] == ["A passage on ports."]
    assert len(model.calls) == 3


async def test_parameters_reach_the_base_and_wrong_ones_are_named(harbours):
    made = partial(create, "retriever", "multi_query", [harbours], llm_provider=_model())
    with pytest.raises(ConfigError, match="colour"):
        made(base_retriever_params={"colour": "red"})
    with pytest.raises(ConfigError, match="minilm"):
        made(base_retriever_params={"embedding_config": "minilm"})
    with pytest.raises(ConfigError, match="There is no retriever 'sonar'"):
        made(base_retriever="sonar")


@pytest.mark.parametrize(
    "wrong", [{"num_queries": 0}, {"num_queries": 11}, {"rrf_k": -1}, {"max_tokens": 0}, {"timeout": 0}]
)
@pytest.mark.parametrize("name", ["multi_query", "hyde"])
def test_numbers_out_of_range_are_refused(harbours, name, wrong):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
        create("retriever", name, [harbours], **wrong)


async def test_cancellation_by_the_caller_passes(harbours):
    retriever = create(
        "retriever", "multi_query", [harbours], llm_provider=MockProvider(["late"], delay=3600)
    )
    with anyio.move_on_after(0.02) as scope:
        await retriever.retrieve("harbour")
    assert scope.cancelled_caught


async def test_the_model_s_error_does_not_reach_the_caller(harbours):
    retriever = create("retriever", "multi_query", [harbours], llm_provider=MockProvider([LLMError("down")]))
    assert await retriever.retrieve("harbour")
