"""Prefetched knowledge: retrieval runs concurrently with routing, and no turn waits for it without need."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from loom_core.errors import SourceError
from loom_core.flow.config import FlowFile, KnowledgeEndpointConfig, NetConfig
from loom_core.flow.http import EndpointCaller
from loom_core.flow.knowledge import ApiKnowledge, KnowledgeExecutor, ProviderKnowledge
from loom_core.flow.knowledge.executor import AnswerCache, normalize_question
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

TENANT = {"tenantId": "t1", "chatbotId": "b1"}


def item(text: str) -> KnowledgeItem:
    return KnowledgeItem(id=text, content=text, source="s", relevance=1.0)


class Source:
    """Answers as it is told to, and notes who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.answer: Callable[[], Any] = lambda: [item("年假五天")]
        self.go_on = anyio.Event()
        self.go_on.set()

    def identity(self, message: str, context: Mapping[str, Any]) -> str:
        return json.dumps([normalize_question(message), context.get("tenantId")])

    async def find(self, message: str, context: Mapping[str, Any]) -> Sequence[KnowledgeItem]:
        self.asked.append(message)
        try:
            await self.go_on.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(message)
            raise
        return self.answer()


@pytest.fixture
def source() -> Source:
    return Source()


async def test_a_question_is_asked_at_once_and_its_answer_is_there_when_it_is_wanted(source) -> None:
    async with KnowledgeExecutor(source) as knowledge:
        query = knowledge.pre_query("年假有几天？", TENANT)
        answer = await query.answer()
    assert answer.outcome == "retrieved"
    assert [each.content for each in answer.items] == ["年假五天"]
    assert "年假五天" in answer.text("年假有几天？")


@pytest.mark.parametrize("message", ["你好", "谢谢", "ok, go on", "", "？？"])
async def test_manners_are_not_looked_up(message: str, source) -> None:
    async with KnowledgeExecutor(source) as knowledge:
        query = knowledge.pre_query(message, TENANT)
        assert (await query.answer()).outcome == "not_needed"
    assert source.asked == []


async def test_without_a_source_nothing_is_asked() -> None:
    async with KnowledgeExecutor(None) as knowledge:
        assert (await knowledge.pre_query("How many days?", TENANT).answer()).outcome == "not_needed"


async def test_a_slow_source_is_waited_for_no_longer_than_allowed_and_answers_the_next_one(source) -> None:
    source.go_on = anyio.Event()
    async with KnowledgeExecutor(source, seconds=0.05) as knowledge:
        query = knowledge.pre_query("How many days?", TENANT)
        with anyio.fail_after(30):
            answer = await query.answer()
        assert (answer.outcome, answer.items) == ("late", ())
        assert answer.problem
        second = knowledge.pre_query("how many  days", TENANT)
        source.go_on.set()
        assert (await second.answer(5)).outcome == "retrieved"
        assert (await query.answer()).outcome == "late"
    assert source.asked == ["How many days?"]


async def test_an_answer_that_is_not_needed_is_not_waited_for_and_the_source_is_left_alone(source) -> None:
    source.go_on = anyio.Event()
    async with KnowledgeExecutor(source) as knowledge:
        with knowledge.pre_query("How many days?", TENANT) as query:
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert source.cancelled == ["How many days?"]
        assert (await query.answer()).outcome == "not_needed"
        source.go_on.set()
        assert (await knowledge.pre_query("How many days?", TENANT).answer()).outcome == "retrieved"
    assert len(source.asked) == 2


async def test_many_who_ask_the_same_at_the_same_time_ask_once(source) -> None:
    source.go_on = anyio.Event()
    async with KnowledgeExecutor(source) as knowledge:
        queries = [
            knowledge.pre_query(text, TENANT)
            for text in ("How many days?", "ＨＯＷ many days", "how many days??")
        ]
        await anyio.wait_all_tasks_blocked()
        queries[0].cancel()  # others still wait
        await anyio.wait_all_tasks_blocked()
        source.go_on.set()
        assert [(await query.answer()).outcome for query in queries[1:]] == ["retrieved"] * 2
    assert (len(source.asked), source.cancelled) == (1, [])


async def test_an_answer_is_kept_for_its_tenant_for_a_while(source) -> None:
    time = 0.0
    async with KnowledgeExecutor(source, cache_seconds=60, now=lambda: time) as knowledge:

        async def is_kept(message: str, tenant: str) -> bool:
            before = len(source.asked)
            await knowledge.pre_query(message, {"tenantId": tenant}).answer()
            return len(source.asked) == before

        assert not await is_kept("How many days?", "t1")
        assert await is_kept(" how MANY days ", "t1")
        assert not await is_kept("How many days?", "t2")
        time = 61.0
        assert not await is_kept("How many days?", "t1")
    assert len(source.asked) == 3


async def test_that_nothing_is_known_is_kept_too(source) -> None:
    source.answer = list
    async with KnowledgeExecutor(source) as knowledge:
        for _ in range(2):
            answer = await knowledge.pre_query("How many days?", TENANT).answer()
            assert (answer.outcome, answer.text("")) == ("nothing", "")
    assert len(source.asked) == 1


@pytest.mark.parametrize("error", [SourceError("Closed.", advice="Open it."), ZeroDivisionError("x")])
async def test_a_source_that_fails_costs_its_knowledge_and_is_asked_again(error, source, caplog) -> None:
    def fail() -> None:
        raise error

    good, source.answer = source.answer, fail
    async with KnowledgeExecutor(source) as knowledge:
        answer = await knowledge.pre_query("How many days?", TENANT).answer()
        assert answer.outcome == "failed"
        assert answer.problem
        source.answer = good
        assert (await knowledge.pre_query("How many days?", TENANT).answer()).outcome == "retrieved"


async def test_leaving_ends_what_is_under_way(source) -> None:
    source.go_on = anyio.Event()
    with anyio.fail_after(30):
        async with KnowledgeExecutor(source) as knowledge:
            query = knowledge.pre_query("How many days?", TENANT)
            await anyio.wait_all_tasks_blocked()
        assert (await query.answer()).outcome == "late"
    assert source.cancelled


def test_kept_answers_are_bounded_by_number_and_size() -> None:
    cache = AnswerCache(seconds=60, most=2, characters=10)
    for key in ("a", "b", "a", "c"):
        if cache.get(key) is None:
            cache.put(key, (item("x"),))
    assert [key for key in "abc" if cache.get(key) is not None] == ["a", "c"]
    cache.put("d", (item("y" * 9),))
    assert len(cache) == 2
    assert cache.get("c") is not None
    cache.put("e", (item("z" * 11),))
    assert cache.get("e") is None
    nothing = AnswerCache(seconds=0)
    nothing.put("a", ())
    assert nothing.get("a") is None


# ---- the API of a flow file


@pytest.fixture
def server(local_servers: Callable[..., LocalServer]) -> LocalServer:
    return local_servers(keeps=True)


@pytest.fixture
async def caller() -> Any:
    async with EndpointCaller(FlowFile(net=NetConfig(allow=["127.0.0.1"]))) as made:
        yield made


FOUND = json.dumps({"data": [{"id": "1", "content": "年假五天", "score": 0.9}, {"id": "2", "content": "b"}]})


def api(server: LocalServer, caller: EndpointCaller, *, body: str = FOUND, **written: Any) -> ApiKnowledge:
    url = server.answers("/retrieve", body.encode(), Content_Type="application/json")
    return ApiKnowledge(KnowledgeEndpointConfig.model_validate({"url": url, **written}), caller)


async def test_the_api_is_asked_as_the_specification_says(server, caller) -> None:
    found = await api(server, caller).find("年假有几天？", TENANT)
    assert [each.content for each in found] == ["年假五天", "b"]
    (asked,) = server.asked
    assert (asked.method, asked.body) == ("GET", b"")
    assert parse_qs(urlsplit(asked.target).query) == {
        "chatbotId": ["b1"], "tenantId": ["t1"], "keywords": ["年假有几天？"],
    }  # fmt: skip


async def test_what_the_context_does_not_say_is_left_out(server, caller) -> None:
    await api(server, caller).find("How many days?", {"tenantId": "t1"})
    assert "chatbotId" not in server.asked[0].target


async def test_post_sends_json_with_secrets_and_keywords(server, caller, monkeypatch) -> None:
    monkeypatch.setenv("LOOM_TEST_KEY", "s3cret-of-the-kb")
    source = api(
        server,
        caller,
        method="POST",
        send="keywords",
        query_field="query.text",
        limit_field="query.top_k",
        limit=1,
        parameters={"api_key": "env:LOOM_TEST_KEY", "tenant": "{$context.tenantId}", "bot": "{$context.no}"},
    )
    assert len(await source.find("What is the annual leave?", TENANT)) == 1
    assert json.loads(server.asked[0].body) == {
        "query": {"text": "annual leave", "top_k": 1}, "api_key": "s3cret-of-the-kb", "tenant": "t1",
    }  # fmt: skip
    assert "s3cret" not in source.identity("x", TENANT)


async def test_a_message_is_data_and_never_a_template_or_a_reference(server, caller, monkeypatch) -> None:
    monkeypatch.setenv("LOOM_TEST_KEY", "s3cret-of-the-kb")
    source = api(server, caller)
    for message in ("env:LOOM_TEST_KEY", "{$context.password}", "a&tenantId=t2", "x\r\ny", "长" * 5000):
        await source.find(message, {**TENANT, "password": "hidden"})
    for asked in server.asked:
        assert "s3cret" not in asked.target
        assert "hidden" not in asked.target
        assert parse_qs(urlsplit(asked.target).query)["tenantId"] == ["t1"]


def test_questions_are_the_same_only_if_the_same_answer_fits_both(caller) -> None:
    config = KnowledgeEndpointConfig.model_validate(
        {"url": "https://kb.example/q", "headers": {"X-User": "{$context.user}"}}
    )
    source = ApiKnowledge(config, caller)
    same = source.identity("How many days?", TENANT)
    assert source.identity(" ＨＯＷ  many days", {**TENANT, "session": "s"}) == same
    others = [
        source.identity("How many weeks?", TENANT),
        source.identity("How many days?", {**TENANT, "tenantId": "t2"}),
        source.identity("How many days?", {**TENANT, "chatbotId": "b2"}),
        source.identity("How many days?", {**TENANT, "user": "u"}),
    ]
    assert len({same, *others}) == 5


@pytest.mark.parametrize("body", ["<html>", '{"code": 500, "msg": "忙"}', '"text"'])
async def test_an_answer_without_passages_is_a_failure(body: str, server, caller) -> None:
    with pytest.raises(SourceError):
        await api(server, caller, body=body).find("How many days?", TENANT)


async def test_a_refusal_is_a_failure_and_no_passages_are_none(server, caller) -> None:
    assert await api(server, caller, body='{"data": []}').find("How many days?", TENANT) == []
    source = api(server, caller)
    server.answers("/retrieve", b"{}", status=403)
    with pytest.raises(SourceError, match="403 Forbidden"):
        await source.find("How many days?", TENANT)


async def test_a_slow_api_does_not_hold_up_what_does_not_need_it(server, caller) -> None:
    over = threading.Event()

    def slow(asked, connection: socket.socket) -> None:
        over.wait(60)
        raise OSError("closed")

    source = api(server, caller)
    server.routes["/retrieve"] = slow
    with anyio.fail_after(30):
        async with KnowledgeExecutor(source) as knowledge:
            with knowledge.pre_query("How many days?", TENANT):
                await anyio.wait_all_tasks_blocked()
    over.set()


# ---- any source of Loom


def documents(*metadata: Mapping[str, Any]) -> DocumentsKnowledgeBase:
    texts = [
        TextDocument(text=f"Annual leave is {number + 5} days.", title=f"Leave {number}", metadata=each)
        for number, each in enumerate(metadata)
    ]
    return DocumentsKnowledgeBase(texts, name="rules")


async def test_any_source_of_loom_can_be_asked() -> None:
    provider = documents({}, {})
    found = await ProviderKnowledge(provider, limit=2).find("annual leave days", {})
    provider.close()
    assert len(found) == 2


async def test_a_source_that_tells_tenants_apart_gives_no_one_what_is_anothers() -> None:
    provider = documents({"tenantId": "t1"}, {"tenantId": "t2"})
    source = ProviderKnowledge(provider)
    for tenant, text in (("t1", "5 days"), ("t2", "6 days")):
        found = await source.find("annual leave days", {"tenantId": tenant})
        assert [text in each.content for each in found] == [True]
    for context in ({}, {"tenantId": ""}, {"tenantId": ["t1", "t2"]}):
        with pytest.raises(SourceError, match="the message has no tenantId"):
            await source.find("annual leave days", context)
    provider.close()


def test_another_version_of_the_source_is_another_question() -> None:
    version = "1"
    source = ProviderKnowledge(documents({}), version=lambda: version)
    first = source.identity("How many days?", TENANT)
    assert source.identity("how many days", TENANT) == first
    version = "2"
    assert source.identity("How many days?", TENANT) != first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("年假有几天？", "年假有几天"),
        ("ＶＰＮ 怎么连", "vpn  怎么连?"),
        ("Straße", "STRASSE"),
        ("？？", "？？"),
    ],
)
def test_a_question_has_one_form(one: str, other: str) -> None:
    assert normalize_question(one) == normalize_question(other) != ""


async def test_a_question_that_cannot_even_be_put_costs_its_knowledge_only(caller) -> None:
    config = KnowledgeEndpointConfig.model_validate({"url": "https://kb.example/{$context.tenantId}"})
    async with KnowledgeExecutor(ApiKnowledge(config, caller)) as knowledge:
        answer = await knowledge.pre_query("How many days?", {"tenantId": "../admin"}).answer()
    assert answer.outcome == "failed"
    with pytest.raises(RuntimeError, match="use a KnowledgeExecutor as a context manager"):
        knowledge.pre_query("How many days?", {"tenantId": "t1"})
