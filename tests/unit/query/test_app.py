"""Changes that are taken over while the server runs."""

from __future__ import annotations

import anyio
import pytest
from loom_kb.app import build as build_kb
from loom_kb.settings import Settings as KbSettings
from loom_query.federation.live_source import OwnLiveSource
from mcp import Client

from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument

pytestmark = pytest.mark.slow

TOOLS = "notifications/tools/list_changed"


class News:
    """Notifications that a client received."""

    def __init__(self):
        self._arrived = anyio.Event()

    async def __call__(self, message):
        if message.method == TOOLS:
            self._arrived.set()

    async def changed(self):
        """Wait until it was told that the tools have changed."""
        with anyio.fail_after(20):
            await self._arrived.wait()
        self._arrived = anyio.Event()


@pytest.fixture
def news():
    return News()


async def names(client):
    query = next(tool for tool in (await client.list_tools()).tools if tool.name == "query")
    return query.input_schema["properties"]["source"].get("enum", [])


async def became(client, expected, news):
    """Wait until the sources are these; the client is told whenever they may be others."""
    while await names(client) != expected:
        await news.changed()


async def test_clients_are_told_when_sources_come_and_go(configure, connected, harbour, ports, news):
    configure({"harbour": harbour})
    async with connected(mode="legacy", message_handler=news) as client:
        assert await names(client) == ["harbour"]
        configure({"harbour": harbour, "港口": ports})
        await became(client, ["harbour", "港口"], news)
        answer = await client.call_tool("query", {"query": "青岛港的港长是谁？", "source": "港口"})
        assert "李明" in answer.content[0].text
        configure({"港口": ports})
        await became(client, ["港口"], news)


async def test_a_broken_edit_keeps_the_sources_there_are_and_says_so(configure, running, harbour):
    path = configure({"harbour": harbour})
    async with running() as service:
        path.write_text('{"sources": {', encoding="utf-8")
        await service.sources.refresh()
        listed = await service.list_sources()
        assert [source.name for source in listed.sources] == ["harbour"]
        (problem,) = listed.problems
        assert "query.json:1:14: the text ends too early" in problem
        assert "the sources before this change are used" in problem
        answer = await service.query("Who is the harbour master?", limit=1)
        assert "Ada Brown" in answer.passages[0].text
        configure({})
        await service.sources.refresh()
        assert (await service.list_sources()).problems == []
        assert (await service.list_sources()).sources == []


async def test_a_knowledge_base_that_another_program_makes_becomes_a_source(connected, home, news):
    kb = build_kb(KbSettings(home=home, embedder="hashing"))
    async with connected(mode="legacy", message_handler=news) as client, Client(kb.protocol) as other:
        assert await names(client) == []
        await other.call_tool(
            "add", {"text": "青岛港在山东。", "source": "知识库", "description": "港口资料"}
        )
        await became(client, ["知识库"], news)
        answer = await client.call_tool("query", {"query": "青岛港在哪里？"})
        assert "山东" in answer.content[0].text


async def test_the_first_knowledge_base_of_another_folder_becomes_a_source(configure, running, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    configure({"others": {"kind": "local", "home": "../other"}})
    kb = build_kb(KbSettings(home=other, embedder="hashing"))
    async with running() as service, Client(kb.protocol) as client:
        assert list(service.sources.live) == []
        await service.sources.refresh()
        await client.call_tool("add", {"text": "青岛港在山东。", "source": "知识库"})
        await service.sources.refresh()
        assert list(service.sources.live) == ["知识库"]


async def test_a_source_that_stays_as_it_is_keeps_what_it_has_read(configure, running, harbour, ports):
    configure({"harbour": harbour})
    async with running() as service:
        before = service.sources.live["harbour"]
        configure({"港口": ports, "harbour": harbour}, deadline=10)
        await service.sources.refresh()
        assert service.sources.live["harbour"] is before
        configure({"harbour": {**harbour, "deadline": 3}})
        await service.sources.refresh()
        assert service.sources.live["harbour"] is not before
        assert list(service.sources.live) == ["harbour"]


async def test_a_question_ends_with_the_sources_that_it_began_with(configure, running, harbour, ports):
    configure({"harbour": harbour, "港口": ports})
    async with running() as service:
        names = service.select_sources([])
        async with service.sources.federate(names) as sources:
            await sources.query("Who is the harbour master?")
            configure({"港口": {**ports, "deadline": 3}})
            await service.sources.refresh()
            assert list(service.sources.live) == ["港口"]
            answer = await sources.query("青岛港的港长是谁？ Who is the harbour master?")
        assert {report.state for report in answer.reports} == {"answered"}
        assert {item.metadata["knowledge_base"] for item in answer.items} == {"harbour", "港口"}


async def test_a_source_that_is_retired_is_closed_by_its_last_user():
    texts = DocumentsKnowledgeBase([TextDocument(text="青岛港的港长是李明。")], name="港口")
    closed = []

    def close():
        texts.close()
        closed.append(True)

    source = OwnLiveSource(texts, base=texts, kind="documents", deadline=5, close=close)
    async with source.in_use():
        async with source.in_use():
            await source.retire()
        assert not closed
        assert (await source.provider.query("港长"))[0].content == "青岛港的港长是李明。"
    assert closed
