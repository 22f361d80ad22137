"""A remote knowledge API against a real server: how it is asked, what is read, what goes wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest
from pydantic import ValidationError

from loom_core.errors import ConfigError, InvalidInputError, NetError, SourceError
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase, HTTPKnowledgeConfig

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

_FOUND = json.dumps(
    {"data": {"items": [{"id": 7, "title": "麻绳", "content": "麻绳用麻制成。", "score": 0.8}]}}
)


@pytest.fixture
def server(local_servers: Callable[..., LocalServer]) -> LocalServer:
    return local_servers()


def api(server: LocalServer, *, answer: str = _FOUND, status: int = 200, **options: Any) -> HTTPKnowledgeBase:
    url = server.answers("/retrieve", answer.encode(), status=status, Content_Type="application/json")
    config = HTTPKnowledgeConfig(**{"url": url, "allow": ["127.0.0.0/8"], **options})
    return HTTPKnowledgeBase(config, name="产品", description="Products", search_hints=["rope"])


async def test_a_question_goes_into_the_parameters_of_a_get(server):
    source = api(
        server, query_field="keywords", limit_field="top_k",
        fields={"chatbotId": "bot-1", "tenantId": 7, "tags": ["a", "b"]},
    )  # fmt: skip
    (item,) = await source.query("麻绳用什么制成？", limit=3)
    assert (item.id, item.content, item.relevance) == ("7", "麻绳用麻制成。", 0.8)
    (asked,) = server.asked
    assert (asked.method, asked.body) == ("GET", b"")
    assert parse_qs(urlsplit(asked.target).query) == {
        "keywords": ["麻绳用什么制成？"], "top_k": ["3"], "chatbotId": ["bot-1"], "tenantId": ["7"],
        "tags": ["a", "b"],
    }  # fmt: skip


async def test_parameters_are_added_to_those_that_the_address_has(server):
    url = server.answers("/retrieve", _FOUND.encode()) + "?v=2#top"
    await api(server, url=url).query("rope & sail")
    assert server.asked[0].target == "/retrieve?v=2&query=rope+%26+sail"


async def test_a_post_carries_an_object_with_fields_inside_fields(server):
    source = api(
        server, method="POST", limit_field="retrieval_setting.top_k",
        fields={"knowledge_id": "k", "retrieval_setting.score_threshold": 0.5},
        filters={"tags": "metadata.tags"},
    )  # fmt: skip
    await source.query("麻绳", limit=2, filters={"tags": ["gear"]})
    (asked,) = server.asked
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == {
        "query": "麻绳", "knowledge_id": "k", "retrieval_setting": {"score_threshold": 0.5, "top_k": 2},
        "metadata": {"tags": ["gear"]},
    }  # fmt: skip


async def test_keywords_are_the_content_words_of_the_question(server):
    source = api(server, send="keywords")
    await source.query("What is the rope of the harbour made of?")
    await source.query("the of")
    asked = [parse_qs(urlsplit(each.target).query)["query"] for each in server.asked]
    assert asked[1] == ["the of"]
    assert {"rope", "harbour"} <= set(asked[0][0].split())
    assert "the" not in asked[0][0].split()


async def test_secrets_come_from_references_and_are_seen_by_the_server_alone(server, monkeypatch, caplog):
    monkeypatch.setenv("KB_KEY", "s3cret-key")
    caplog.set_level(logging.DEBUG)
    source = api(
        server, answer="no", status=401, headers={"Authorization": "Bearer env:KB_KEY"},
        fields={"token": "env:KB_KEY"},
    )  # fmt: skip
    with pytest.raises(SourceError, match="401 Unauthorized") as refused:
        await source.query("rope")
    assert "Check the key" in refused.value.advice
    (asked,) = server.asked
    assert asked.headers["authorization"] == "Bearer s3cret-key"
    assert "token=s3cret-key" in asked.target
    assert "s3cret-key" not in f"{refused.value} {caplog.text} {source!r}"


async def test_a_secret_that_is_not_there_is_named(server, monkeypatch):
    monkeypatch.delenv("KB_MISSING", raising=False)
    with pytest.raises(ConfigError, match="KB_MISSING is not set"):
        await api(server, headers={"X-Key": "env:KB_MISSING"}).query("rope")
    assert server.asked == []


def test_a_configuration_does_not_show_its_headers_and_fields():
    config = HTTPKnowledgeConfig(
        url="https://kb.example/", headers={"X-Key": "abc123"}, fields={"k": "abc123"}
    )
    assert "abc123" not in repr(config)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(302, "redirects to"), (403, "Check the key"), (404, "`url` and `method`"), (501, "`url` and `method`"),
     (418, "documentation"), (429, "later"), (599, "later")],
)  # fmt: skip
async def test_a_refusal_says_what_can_be_done(server, status, advice):
    with pytest.raises(SourceError) as refused:
        await api(server, answer="{}", status=status, method="POST").query("rope")
    assert str(status) in refused.value.message
    assert advice in refused.value.advice
    assert "query" not in refused.value.message


@pytest.mark.hostile("HTTP answers")
async def test_an_answer_that_is_too_large_is_told_with_what_can_be_set(server):
    with pytest.raises(NetError, match="more than 8,388,608 bytes") as refused:
        await api(server, answer=json.dumps({"results": ["麻绳" * (3 << 20)]})).query("麻绳")
    assert "`limit_field`" in refused.value.advice


@pytest.mark.hostile("HTTP answers")
async def test_half_an_emoji_spoils_no_answer_of_several_sources(server):
    whole = api(server)
    url = server.answers("/half", rb'["Hemp \ud83d rope"]', Content_Type="application/json")
    half = HTTPKnowledgeBase(HTTPKnowledgeConfig(url=url, allow=("127.0.0.0/8",)), name="half")
    found = await Federation([half, whole]).query("麻绳 rope")
    assert {item.content for item in found.items} == {"Hemp \ufffd rope", "麻绳用麻制成。"}


async def test_what_is_no_json_is_told(server):
    with pytest.raises(SourceError, match="did not answer with JSON"):
        await api(server, answer="<html>").query("rope")
    with pytest.raises(SourceError, match="no list of passages"):
        await api(server, answer='{"error": "x"}').query("rope")
    assert await api(server, answer="").query("rope") == []


@pytest.mark.hostile("addresses")
async def test_private_places_are_asked_only_where_that_is_allowed(server):
    url = server.answers("/retrieve", _FOUND.encode())
    with pytest.raises(NetError, match="this machine itself"):
        HTTPKnowledgeBase(HTTPKnowledgeConfig(url=url), name="api")
    with pytest.raises(ConfigError, match="neither a host nor a network"):
        HTTPKnowledgeBase(HTTPKnowledgeConfig(url=url, allow=["a b"]), name="api")


async def test_it_waits_no_longer_than_configured(server):
    server.routes["/hang"] = lambda asked, connection: connection.recv(1)
    with anyio.fail_after(10), pytest.raises(NetError, match=r"not answered within 0\.1 seconds"):
        await api(server, url=server.url("/hang"), seconds=0.1).query("rope")


async def test_a_document_is_read_by_its_id_where_there_is_an_address_for_it(server):
    document = json.dumps({"id": "a/b", "title": "Rope", "text": "All about rope."})
    server.answers("/documents/a%2Fb", document.encode())
    server.answers("/documents/none", b"{}", status=404)
    source = api(server, document_url=server.url("/documents/{id}"))
    found = await source.get_by_id("a/b")
    assert found is not None
    assert (found.id, found.content) == ("a/b", "All about rope.")
    assert await source.get_by_id("none") is None


async def test_what_was_found_is_remembered_where_documents_cannot_be_read(server):
    source = api(server)
    (item,) = await source.query("rope")
    assert await source.get_by_id(item.id) == item
    assert await source.get_by_id("other") is None


async def test_what_cannot_be_asked_is_refused_before_anyone_is_asked(server):
    source = api(server, filters={"tags": "tags"})
    for asked in (
        {"query": " "},
        {"query": "rope", "limit": 0},
        {"query": "rope", "filters": {"colour": "red"}},
    ):
        with pytest.raises(InvalidInputError) as refused:
            await source.query(**asked)
        assert refused.value.advice
    assert server.asked == []


def test_it_says_of_itself_what_it_was_given(server):
    source = api(server, filters={"tags": "tags"})
    assert (source.name, source.description) == ("产品", "Products")
    assert (list(source.search_hints), list(source.supported_filters)) == (["rope"], ["tags"])


@pytest.mark.parametrize(
    "wrong",
    [{"query_field": "a..b"}, {"limit_field": "."}, {"document_url": "https://kb.example/documents"},
     {"seconds": 0}, {"method": "PUT"}, {"colour": "red"}],
)  # fmt: skip
def test_a_wrong_configuration_is_refused(wrong):
    with pytest.raises(ValidationError):
        HTTPKnowledgeConfig(**{"url": "https://kb.example/", **wrong})


def test_a_reference_that_may_be_a_key_itself_is_refused():
    config = HTTPKnowledgeConfig(url="https://kb.example/", headers={"X-Key": "env:sk-abcdef"})
    with pytest.raises(ConfigError):
        HTTPKnowledgeBase(config, name="api")
