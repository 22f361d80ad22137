from __future__ import annotations

from typing import Annotated

import pytest
from mcp import Client
from pydantic import BaseModel, Field

from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply
from loom_core.server.search.search_tool import Filters, Question, search_tool


class Hits(BaseModel):
    hits: list[str]


class Searching:
    """A server with a tool that has both arguments and one that has none of them."""

    def __init__(self) -> None:
        self.sources = [
            SourceInfo("notes", description="Notes of the port."),
            SourceInfo("港口", supported_filters=("tags",)),
        ]
        self.server = LoomServer("searching", version="1", title="Searching")

        async def described() -> list[SourceInfo]:
            if not self.sources:
                return []
            if self.sources[0].name == "broken":
                raise OSError("gone")
            return self.sources

        @search_tool(
            self.server,
            title="Search",
            head="Search it.",
            tail="Returns hits.",
            sources=described,
            without_sources="There is none.",
            open_world=True,
        )
        async def query(
            query: Question,
            source: Annotated[str | None, Field(description="One source.")] = None,
            filters: Filters = None,
        ) -> ToolReply[Hits]:
            return ToolReply(f"{query} {source} {filters}", Hits(hits=[query]))

        @search_tool(
            self.server,
            title="Find",
            head="Find it.",
            tail="Returns ids.",
            sources=described,
            open_world=False,
        )
        async def search(query: Question) -> ToolReply[Hits]:
            return ToolReply(query, Hits(hits=[query]))

    async def tools(self):
        async with Client(self.server.protocol) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}


@pytest.fixture
def searching():
    return Searching()


async def test_the_sources_are_in_the_description_and_in_the_arguments_that_name_them(searching):
    query = (await searching.tools())["query"]
    assert query.description == (
        "Search it.\n\nSources:\n- notes: Notes of the port.\n- 港口\n\nReturns hits."
    )
    properties = query.input_schema["properties"]
    assert properties["source"]["enum"] == ["notes", "港口"]
    assert properties["source"]["description"] == "One source."
    assert "港口: tags" in properties["filters"]["description"]


async def test_a_tool_without_these_arguments_is_only_described_by_its_sources(searching):
    search = (await searching.tools())["search"]
    assert "- 港口" in search.description
    assert list(search.input_schema["properties"]) == ["query"]


async def test_a_search_changes_nothing_and_says_how_far_it_reaches(searching):
    tools = await searching.tools()
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert all(hint.read_only_hint and hint.idempotent_hint for hint in hints.values())
    assert not any(hint.destructive_hint for hint in hints.values())
    assert (hints["query"].open_world_hint, hints["search"].open_world_hint) == (True, False)


async def test_a_source_more_or_less_is_seen_at_the_next_listing(searching):
    searching.sources = searching.sources[:1]
    assert (await searching.tools())["query"].input_schema["properties"]["source"]["enum"] == ["notes"]
    searching.sources = []
    tools = await searching.tools()
    assert tools["query"].description == "Search it.\n\nReturns hits.\n\nThere is none."
    assert tools["search"].description == "Find it.\n\nReturns ids."
    assert "enum" not in tools["query"].input_schema["properties"]["source"]


async def test_sources_that_cannot_be_described_do_not_hide_the_tool(searching):
    searching.sources = [SourceInfo("broken")]
    assert (await searching.tools())["query"].description == "Search it.\n\nReturns hits."
    async with Client(searching.server.protocol) as client:
        answer = await client.call_tool("query", {"query": "港长是谁？", "source": "港口"})
    assert answer.content[0].text == "港长是谁？ 港口 None"
