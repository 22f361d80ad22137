from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp import Client

from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import TOKEN_CAP
from loom_core.server.search.chatgpt import ChatGPTWording, register_chatgpt_tools


@dataclass
class Passage:
    id: str
    source: str = "港口"
    title: str = ""
    heading_path: list[str] = field(default_factory=list)
    uri: str = ""


@dataclass
class Found:
    passages: list[Passage]


@dataclass
class Document:
    title: str
    uri: str
    text: str = "港长是李明。"
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Service:
    """A search service without a server."""

    passages: list[Passage] = field(default_factory=list)
    document: Document = field(default_factory=lambda: Document("", ""))
    asked: list[object] = field(default_factory=list)

    async def query(self, question: str, *, limit: int) -> Found:
        self.asked.append((question, limit))
        return Found(self.passages[:limit])

    async def fetch(self, id_: str, *, start: int | None, tokens: int) -> Document:
        self.asked.append((id_, start, tokens))
        return self.document

    async def describe_sources(self) -> list[SourceInfo]:
        return [SourceInfo("港口", description="青岛港的手册。")]


@asynccontextmanager
async def connected(service):
    server = LoomServer("chat", version="1", title="Chat")
    wording = ChatGPTWording("Search", "Search it.", "Read", "Read it.", "港口:d1.a")
    register_chatgpt_tools(server, service, wording=wording, open_world=True)
    async with Client(server.protocol) as client:
        yield client


def both(result):
    """The data of an answer, which must be its only text, too."""
    (content,) = result.content
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


async def test_there_are_two_tools_of_one_argument_in_the_words_of_the_server():
    async with connected(Service()) as client:
        search, fetch = (await client.list_tools()).tools
    assert (search.name, search.title) == ("search", "Search")
    assert search.description == "Search it.\n\nSources:\n- 港口: 青岛港的手册。\n\nReturns ids for `fetch`."
    assert list(search.input_schema["properties"]) == search.input_schema["required"] == ["query"]
    assert (fetch.name, fetch.title, fetch.description) == ("fetch", "Read", "Read it.")
    assert fetch.input_schema["properties"]["id"]["examples"] == ["港口:d1.a"]
    assert all(
        tool.annotations.read_only_hint and tool.annotations.open_world_hint for tool in (search, fetch)
    )


async def test_a_hit_has_an_id_a_title_and_an_address_whatever_is_known_of_it():
    service = Service(
        [
            Passage("a", title="手册", heading_path=["收费", "小船"], uri="note:手册"),
            Passage("b", uri="note:b"),
            Passage("c"),
        ]
    )
    async with connected(service) as client:
        answer = await client.call_tool("search", {"query": "港长是谁？"})
    assert both(answer)["results"] == [
        {"id": "a", "title": "手册 › 收费 › 小船", "url": "note:手册"},
        {"id": "b", "title": "note:b", "url": "note:b"},
        {"id": "c", "title": "港口", "url": "c"},
    ]
    assert service.asked == [("港长是谁？", 10)]


async def test_nothing_found_is_an_empty_list():
    async with connected(Service()) as client:
        assert both(await client.call_tool("search", {"query": "x"})) == {"results": []}


async def test_a_document_keeps_the_id_it_was_asked_by_and_has_an_address():
    service = Service(document=Document("手册", "note:手册", metadata={"tags": "港"}))
    async with connected(service) as client:
        assert both(await client.call_tool("fetch", {"id": "d1.a"})) == {
            "id": "d1.a",
            "title": "手册",
            "text": "港长是李明。",
            "url": "note:手册",
            "metadata": {"tags": "港"},
        }
        service.document = Document("", "")
        assert both(await client.call_tool("fetch", {"id": "d1.a"}))["url"] == "d1.a"
    assert [asked[:2] for asked in service.asked] == [("d1.a", None)] * 2
    assert service.asked[0][2] < TOKEN_CAP  # JSON needs room besides
