"""Server info and tool lists, also when tools change, and tools that the factory refuses to register."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ResourceListChangedNotification, ToolListChangedNotification

from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from tests.unit.server.conftest import Answer, text
from tests.unit.server.sample import sample_server


async def test_the_server_introduces_itself(sample, connect):
    async with connect(sample) as client:
        assert (client.server_info.name, client.server_info.version) == ("sample", "1.2.3")
        assert client.server_info.title == "Sample"
        assert client.instructions == "Call `query` first."
        assert client.server_capabilities.tools.list_changed
        assert client.server_capabilities.resources.list_changed


async def test_a_server_without_resources_does_not_claim_any(connect):
    async with connect(LoomServer("bare", version="1", title="Bare")) as client:
        assert client.server_capabilities.resources is None
        assert client.instructions is None


async def test_prompts_can_be_listed_but_there_are_none(connect):
    async with connect(LoomServer("bare", version="1", title="Bare")) as client:
        assert (await client.list_prompts()).prompts == []
        with pytest.raises(MCPError, match="There is no prompt 'plan'") as refused:
            await client.get_prompt("plan")
        assert refused.value.error.code == -32602


async def test_tools_are_listed_in_the_order_of_registration(sample, connect):
    async with connect(sample) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == ["query", "add", "fail", "work", "wait", "hang", "chatter"]


HIT = {"title": {"type": "string"}, "score": {"type": "number"}}


async def test_a_definition_is_complete_and_without_noise(sample, connect):
    async with connect(sample) as client:
        tool = (await client.list_tools()).tools[0]

    assert tool.title == "Search"
    assert tool.annotations.model_dump(exclude_none=True) == {
        "read_only_hint": True,
        "destructive_hint": False,
        "idempotent_hint": True,
        "open_world_hint": False,
    }
    assert tool.meta == {"anthropic/maxResultSizeChars": 200_000}
    assert tool.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string", "description": "What to look for.", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
            "tags": {"type": "array", "items": {"type": "string"}},
            "source": {"type": "string", "enum": ["docs"]},
            "order": {"type": "string", "enum": ["best", "newest"], "default": "best"},
        },
        "required": ["query"],
    }
    assert tool.output_schema == {
        "type": "object",
        "properties": {"hits": {"type": "array", "items": {"type": "object", "properties": HIT}}},
        "required": ["hits"],
    }
    assert sample.answer_schemas()["query"]["$defs"]["Hit"]["description"] == "One hit."


async def test_the_definition_follows_what_is_there_when_it_is_asked_for(sample, connect):
    async with connect(sample) as client:
        before = (await client.list_tools()).tools[0]
        await client.call_tool("add", {"name": "产品文档"})
        after = (await client.list_tools(cache_mode="bypass")).tools[0]

    assert before.description == "Searches docs."
    assert after.description == "Searches docs, 产品文档."
    assert after.input_schema["properties"]["source"]["enum"] == ["docs", "产品文档"]


@pytest.mark.parametrize("source", ["broken", "字" * 1000, ""])
async def test_a_wording_that_fails_leaves_the_fixed_description(sample, connect, source, caplog):
    async with connect(sample) as client:
        await client.call_tool("add", {"name": source})
        tools = (await client.list_tools()).tools

    if source:
        assert tools[0].description == "Searches the documents."
        assert "cannot word the tool 'query'" in caplog.text
    assert len(tools) == 7


async def test_a_legacy_client_is_told_that_the_lists_have_changed(sample):
    received, both = [], anyio.Event()

    async def on_message(message):
        received.append(type(message))
        if len(received) == 2:
            both.set()

    async with Client(sample.protocol, mode="legacy", message_handler=on_message) as client:
        await client.call_tool("add", {"name": "more"})
        with anyio.fail_after(30):
            await both.wait()

    assert received == [ToolListChangedNotification, ResourceListChangedNotification]


async def test_changes_reach_every_legacy_client_and_end_with_its_connection(sample):
    received = anyio.Event()

    async def on_message(message):
        received.set()

    async with Client(sample.protocol, mode="legacy", message_handler=on_message) as watching:
        async with Client(sample.protocol, mode="legacy") as acting:
            await acting.call_tool("add", {"name": "more"})
        with anyio.fail_after(30):
            await received.wait()
        await watching.list_tools()
    await sample.tools_changed()  # no one is there any more, and nothing complains


async def test_a_modern_client_that_listens_is_told_what_has_changed(sample):
    async with (
        Client(sample.protocol) as client,
        client.listen(
            tools_list_changed=True, resources_list_changed=True, resource_subscriptions=["loom://docs/a%2Fb"]
        ) as events,
    ):
        await client.call_tool("add", {"name": "more"})
        with anyio.fail_after(30):
            seen = [type(await anext(events)).__name__ for _ in range(3)]

    assert sorted(seen) == ["ResourceUpdated", "ResourcesListChanged", "ToolsListChanged"]


async def test_subscriptions_can_be_ended_by_the_server(sample):
    async with Client(sample.protocol) as client, client.listen(tools_list_changed=True) as events:
        sample.end_subscriptions()
        with anyio.fail_after(30):
            assert [event async for event in events] == []


async def test_the_lifespan_is_open_while_the_server_serves(connect):
    log = []
    async with connect(sample_server(log)) as client:
        await client.list_tools()
        assert log == ["opened"]
    assert log == ["opened", "closed"]


def register(server, function, **changes):
    options = {"title": "T", "read_only": True, "destructive": False, "idempotent": True, "open_world": False}
    return server.tool(**{**options, **changes})(function)


async def good(text: str) -> ToolReply[Answer]:
    """Answers."""
    return tool_result(text, Answer(text=text))


async def undescribed() -> ToolReply[Answer]: ...


async def wrongly_annotated(text: str) -> str:
    """Answers."""
    return text


async def not_annotated(text) -> ToolReply[Answer]:
    """Answers."""
    raise AssertionError


async def starred(*texts: str) -> ToolReply[Answer]:
    """Answers."""
    raise AssertionError


def blocking(text: str) -> ToolReply[Answer]:
    """Answers."""
    return tool_result(text, Answer(text=text))


@pytest.mark.parametrize(
    ("function", "changes", "reason"),
    [
        (good, {"name": "Bad"}, "a name is lower case"),
        (good, {"name": "server:tool"}, "a name is lower case"),
        (good, {"name": "x" * 41}, "at most 40"),
        (good, {"name": "搜索"}, "a name is lower case"),
        (good, {"title": " "}, "a title is required"),
        (good, {"description": "字" * 683}, "the description has 2049 bytes"),
        (undescribed, {}, "a description is required"),
        (wrongly_annotated, {}, "must be annotated"),
        (not_annotated, {}, "parameter 'text' has no annotation"),
        (starred, {}, "parameter 'texts' cannot be given by name"),
        (blocking, {}, "must be async"),
    ],
)
def test_a_tool_that_breaks_a_rule_is_refused_at_registration(function, changes, reason):
    with pytest.raises(ValueError, match=reason):
        register(LoomServer("s", version="1", title="S"), function, **changes)


def test_a_name_is_registered_once():
    server = LoomServer("s", version="1", title="S")
    register(server, good)
    with pytest.raises(ValueError, match="'good' is registered already"):
        register(server, good)


def test_instructions_longer_than_hosts_show_are_refused():
    with pytest.raises(ValueError, match="2049 bytes"):
        LoomServer("s", version="1", title="S", instructions="字" * 683)


class Service:
    """A server's own state, with a tool as a method."""

    def __init__(self):
        self.open = False

    @asynccontextmanager
    async def lifespan(self):
        self.open = True
        yield
        self.open = False

    async def status(self) -> ToolReply[Answer]:
        """Says whether the service is open."""
        return tool_result(json.dumps(self.open), Answer(text="ok"))


async def test_a_tool_may_be_a_method_of_what_the_lifespan_opens(connect):
    service = Service()
    server = LoomServer("s", version="1", title="S", lifespan=service.lifespan)
    register(server, service.status)

    async with connect(server) as client:
        assert text(await client.call_tool("status", {})) == "true"
    assert not service.open
