"""Contract of every retriever, tried with those that need no language model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.errors import ConfigError, EmbeddingError, InvalidInputError, NotFoundError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.retrievers import RetrievalRequest, SourceRetriever
from loom_core.knowledge.retrieval.retrievers.base import gather
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.plugins import create

if TYPE_CHECKING:
    from tests.unit.knowledge.retrieval.retrievers.conftest import MemorySource

    MakeSource = Callable[..., MemorySource]

_NAMES = ["dense", "bm25", "keyword", "hybrid", "fusion"]
_FIELDS = {"Lübeck": {"tenant_id": "north"}, "厦门": {"tenant_id": "south"}, "泉州": {"tenant_id": "south"}}


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(("query", "best"), [("marzipan from a port", "Lübeck"), ("海上丝绸之路", "泉州")])
async def test_passage_that_answers_comes_first_and_tells_where_it_is_from(
    harbours: MemorySource, name: str, query: str, best: str
) -> None:
    passages = await create("retriever", name, [harbours]).retrieve(query, top_k=3)
    first = passages[0]
    assert set(first) == {
        "chunk_id", "text", "score", "metadata", "knowledge_base_id", "document_id", "source"
    }  # fmt: skip
    assert first["chunk_id"] == f"c-{best}"
    assert first["document_id"] == f"d-{best}"
    assert first["knowledge_base_id"] == "harbours"
    assert first["source"] == name
    assert first["metadata"]["uri"] == f"text:{best}"
    assert first["metadata"]["title"] == best
    assert first["metadata"]["scores"].keys() <= {"dense", "bm25", "keyword"}
    assert len(passages) <= 3
    assert [p["score"] for p in passages] == sorted((p["score"] for p in passages), reverse=True)


@pytest.mark.parametrize("name", _NAMES)
async def test_limit_is_the_retrievers_own_unless_the_question_says_another(
    harbours: MemorySource, name: str
) -> None:
    retriever = create("retriever", name, [harbours], top_k=2)
    assert len(await retriever.retrieve("harbour port city 港口")) == 2
    assert len(await retriever.retrieve("harbour port city 港口", top_k=1)) == 1
    assert len(await create("retriever", name, [harbours]).retrieve("harbour port city 港口", top_k=4)) == 4


@pytest.mark.parametrize("name", _NAMES)
async def test_only_passages_that_tenant_and_filters_allow_are_found(
    make_source: MakeSource, name: str
) -> None:
    source = make_source(fields=_FIELDS)
    retriever = create("retriever", name, [source])
    found = await retriever.retrieve("harbour 港口", tenant_id="south")
    assert {p["chunk_id"] for p in found} == {"c-厦门", "c-泉州"}
    found = await retriever.retrieve("harbour 港口", tenant_id="south", filters={"title": "厦门"})
    assert [p["chunk_id"] for p in found] == ["c-厦门"]


async def test_filters_cannot_reach_another_tenant(make_source: MakeSource) -> None:
    retriever = create("retriever", "bm25", [make_source(fields=_FIELDS)])
    with pytest.raises(InvalidInputError, match="different tenants"):
        await retriever.retrieve("harbour", tenant_id="north", filters={"tenant_id": "south"})
    same = await retriever.retrieve("harbour", tenant_id="north", filters={"tenant_id": "north"})
    assert [p["chunk_id"] for p in same] == ["c-Lübeck"]


async def test_filters_of_the_caller_are_left_as_they_were(harbours: MemorySource) -> None:
    filters = {"title": "Visby"}
    await create("retriever", "dense", [harbours]).retrieve("wall", tenant_id="x", filters=filters)
    assert filters == {"title": "Visby"}


@pytest.mark.parametrize("query", ["", " \n\t ", "\u3000"])
async def test_empty_question_is_refused(harbours: MemorySource, query: str) -> None:
    with pytest.raises(InvalidInputError, match="question is empty"):
        await create("retriever", "bm25", [harbours]).retrieve(query)


@pytest.mark.parametrize("top_k", [0, -1, 1001])
async def test_limit_out_of_range_is_refused_with_the_range(harbours: MemorySource, top_k: int) -> None:
    with pytest.raises(InvalidInputError, match="1 to 1000"):
        await create("retriever", "dense", [harbours]).retrieve("port", top_k=top_k)
    with pytest.raises(InvalidInputError, match="1 to 1000"):
        create("retriever", "dense", [harbours], top_k=top_k)


async def test_very_long_question_is_cut(harbours: MemorySource) -> None:
    assert len(RetrievalRequest.of("港口" * 50_000, top_k=5).text) == 8000
    found = await create("retriever", "hybrid", [harbours]).retrieve("marzipan " * 20_000)
    assert found[0]["chunk_id"] == "c-Lübeck"


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("query", ["?!…", "🚢⚓", "\x00\x07", "\ud800", "\u202eport", "a" * 10_000])
async def test_odd_question_finds_something_or_nothing(harbours: MemorySource, name: str, query: str) -> None:
    harbours_only = create("retriever", name, [harbours])
    if name == "keyword" and not query.isalnum():
        return  # the test's own channel divides by the number of words
    assert len(await harbours_only.retrieve(query)) <= 5


# -- several knowledge bases -----------------------------------------------------------------------


async def test_several_knowledge_bases_are_asked_and_merged_by_score(make_source: MakeSource) -> None:
    north = make_source("north", {"Kiel": "Kiel is a port. Sailing week in June.", "Moss": "Moss is green."})
    south = make_source("南方", {"宁波": "宁波是港口城市。", "Port": "Sailing week in the port in June."})
    found = await create("retriever", "dense", [north, south]).retrieve("sailing week in June", top_k=10)
    assert {p["knowledge_base_id"] for p in found} == {"north", "南方"}
    assert {found[0]["chunk_id"], found[1]["chunk_id"]} == {"c-Kiel", "c-Port"}
    assert [p["score"] for p in found] == sorted((p["score"] for p in found), reverse=True)


async def test_knowledge_bases_are_chosen_by_name(make_source: MakeSource) -> None:
    a, b = make_source("a"), make_source("b")
    retriever = create("retriever", "bm25", [a, b])
    found = await retriever.retrieve("harbour", kb_ids=["b", "b"])
    assert {p["knowledge_base_id"] for p in found} == {"b"}
    assert a.asked == []
    assert len(b.asked) == 1


async def test_unknown_knowledge_base_is_told_with_those_that_exist(make_source: MakeSource) -> None:
    retriever = create("retriever", "bm25", [make_source("b"), make_source("a")])
    with pytest.raises(NotFoundError, match=r"'c'.*a, b"):
        await retriever.retrieve("harbour", kb_ids=["a", "c"])


async def test_no_knowledge_base_is_not_every_knowledge_base(harbours: MemorySource) -> None:
    with pytest.raises(InvalidInputError, match="kb_ids"):
        await create("retriever", "bm25", [harbours]).retrieve("harbour", kb_ids=[])


async def test_same_document_in_two_knowledge_bases_is_found_in_both(make_source: MakeSource) -> None:
    found = await create("retriever", "fusion", [make_source("b"), make_source("a")]).retrieve("marzipan")
    assert [(p["knowledge_base_id"], p["chunk_id"]) for p in found[:2]] == [
        ("a", "c-Lübeck"),
        ("b", "c-Lübeck"),
    ]


async def test_knowledge_base_that_fails_is_left_out_and_logged(
    make_source: MakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = make_source("good"), make_source("bad")
    bad.failure = EmbeddingError("The model is gone.")
    retriever = create("retriever", "dense", [bad, good])
    with caplog.at_level(logging.WARNING):
        found = await retriever.retrieve("a secret question about marzipan")
    assert {p["knowledge_base_id"] for p in found} == {"good"}
    assert caplog.messages == ["Retriever 'dense': 'bad' was left out, because it failed: The model is gone."]


async def test_first_error_is_raised_where_all_knowledge_bases_fail(make_source: MakeSource) -> None:
    one, two = make_source("one"), make_source("two")
    one.failure, two.failure = EmbeddingError("First."), EmbeddingError("Second.")
    with pytest.raises(EmbeddingError, match="First"):
        await create("retriever", "dense", [one, two]).retrieve("marzipan")
    with pytest.raises(EmbeddingError, match="Second"):
        await create("retriever", "dense", [one, two]).retrieve("marzipan", kb_ids=["two"])


@pytest.mark.parametrize("name", ["dense", "keyword", "graph"])
async def test_knowledge_base_without_the_channel_is_passed_over_or_told(
    make_source: MakeSource, name: str
) -> None:
    without = make_source("without", channels=["bm25"])
    with pytest.raises(InvalidInputError, match=f"without.*channel '{name}'.*bm25"):
        await create("retriever", name, [without]).retrieve("marzipan")
    if name != "graph":
        both = create("retriever", name, [without, make_source("with")])
        assert {p["knowledge_base_id"] for p in await both.retrieve("marzipan")} == {"with"}


def test_retriever_without_sources_or_with_two_of_one_name_is_refused(make_source: MakeSource) -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        create("retriever", "hybrid", [])
    with pytest.raises(ConfigError, match="same name"):
        create("retriever", "hybrid", [make_source("a"), make_source("a")])


@pytest.mark.parametrize("name", [*_NAMES, "graph", "knowledge_base"])
def test_retriever_knows_its_registered_name(name: str) -> None:
    from loom_core.plugin_registry import _registry

    factory = _registry.get("retriever", name)
    assert factory.name == name  # type: ignore[attr-defined]
    parameters = list(signature(factory).parameters.values())
    assert parameters[0].name == "sources"
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[1:])


# -- one's own retriever ---------------------------------------------------------------------------


class _Fixed(SourceRetriever):
    """Returns what it was given."""

    name = "fixed"

    def __init__(self, sources: Any, *, items: list[KnowledgeItem]) -> None:
        super().__init__(sources)
        self._items = items

    async def _search(self, source: Any, request: RetrievalRequest) -> list[KnowledgeItem]:
        return self._items


async def test_passage_that_comes_twice_is_returned_once_with_its_best_score(harbours: MemorySource) -> None:
    items = [KnowledgeItem("a", "text", "uri", relevance) for relevance in (0.2, 0.9, 0.5)]
    found = await _Fixed([harbours], items=items).retrieve("x")
    assert [(p["chunk_id"], p["score"], p["document_id"]) for p in found] == [("a", 0.9, None)]


async def test_equal_scores_come_by_knowledge_base_and_id(make_source: MakeSource) -> None:
    items = [KnowledgeItem(id_, "text", "uri", 0.5) for id_ in "cab"]
    found = await _Fixed([make_source("z"), make_source("y")], items=items).retrieve("x", top_k=6)
    assert [p["knowledge_base_id"] + p["chunk_id"] for p in found] == ["ya", "yb", "yc", "za", "zb", "zc"]


async def test_searches_run_at_the_same_time() -> None:
    started = 0
    both = anyio.Event()

    async def search() -> int:
        nonlocal started
        started += 1
        if started == 2:
            both.set()
        await both.wait()
        return started

    with anyio.fail_after(30):
        assert await gather({"a": search, "b": search}, of="test") == {"a": 2, "b": 2}


async def test_error_of_another_kind_of_a_single_search_comes_out_as_it_is() -> None:
    async def search() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await gather({"a": search}, of="test")


@pytest.mark.parametrize("name", ["dense", "bm25", "keyword", "graph", "hybrid", "fusion"])
def test_a_source_without_channels_is_refused_with_the_retriever_that_takes_it(name: str) -> None:
    handbook = DocumentsKnowledgeBase([TextDocument(text="年假二十五天。")], name="手册")
    with pytest.raises(ConfigError, match=f"'{name}' cannot search '手册'.*\"knowledge_base\""):
        create("retriever", name, [handbook])
    assert create("retriever", "knowledge_base", [handbook]).name == "knowledge_base"
