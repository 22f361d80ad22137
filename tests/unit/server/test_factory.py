from __future__ import annotations

import json
import logging
import re
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from pydantic import BaseModel

from loom_core.server.factory import LoomServer
from loom_core.server.results import ToolReply, tool_result


class Answer(BaseModel):
    text: str


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    return request.param


@pytest.fixture
def connect(mode):
    """Connects to a server in memory, in both eras."""

    def connected(server, **options):
        return Client(server.protocol, mode=mode, **options)

    return connected


def text(result):
    (content,) = result.content
    return content.text


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
            "source": {"type": "string", "default": "", "enum": ["docs"]},
            "order": {"type": "string", "enum": ["best", "newest"], "default": "best"},
        },
        "required": ["query"],
    }
    assert tool.output_schema == {
        "type": "object",
        "properties": {"hits": {"type": "array", "items": {"$ref": "#/$defs/Hit"}}},
        "required": ["hits"],
        "$defs": {
            "Hit": {
                "type": "object",
                "description": "One hit.",
                "properties": {"title": {"type": "string"}, "score": {"type": "number", "default": 1.0}},
                "required": ["title"],
            }
        },
    }


async def test_a_tool_answers_with_text_and_structured_data(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("query", {"query": "你好", "limit": 1})

    assert not result.is_error
    assert text(result) == "你好  None best"
    assert result.structured_content == {"hits": [{"title": "你好0", "score": 1.0}]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "a", "limit": "2"}, "a  None best"),
        ({"query": 12, "limit": 2.0}, "12  None best"),
        ({"query": "a", "tags": None}, "a  None best"),
        ({"query": "a", "tags": '["x", "中"]'}, "a  ['x', '中'] best"),
        ({"query": '["x"]'}, '["x"]  None best'),
    ],
)
async def test_arguments_that_models_often_quote_wrongly_are_understood(sample, connect, arguments, expected):
    async with connect(sample) as client:
        result = await client.call_tool("query", arguments)

    assert not result.is_error
    assert text(result) == expected


VALID = "Valid arguments: query (required), limit, tags, source, order."


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "`query` is required"),
        ({"query": ""}, "`query`: string should have at least 1 character, got ''"),
        ({"query": "a", "limit": 51}, "`limit`: input should be less than or equal to 50, got 51"),
        ({"query": "a", "order": "worst"}, "`order`: input should be 'best' or 'newest', got 'worst'"),
        ({"query": "a", "tags": ["x", None]}, "`tags.1`: input should be a valid string, got None"),
        ({"query": "a", "tags": "[broken"}, "`tags`: input should be a valid list, got '[broken'"),
        ({"query": "a", "sorce": "docs"}, "`sorce` is not an argument, did you mean `source`"),
        ({"query": "a", "zzz": 1}, "`zzz` is not an argument"),
        ({"qery": "a"}, "`query` is required; `qery` is not an argument, did you mean `query`"),
        (
            {"query": "a", "limit": ["字" * 500]},
            f"`limit`: input should be a valid integer, got ['{'字' * 58}…",
        ),
    ],
)
async def test_wrong_arguments_are_a_tool_error_that_says_what_is_right(sample, connect, arguments, reason):
    async with connect(sample) as client:
        result = await client.call_tool("query", arguments)

    assert result.is_error
    assert text(result) == f"Invalid arguments for `query`: {reason}. {VALID}"


async def test_a_tool_without_arguments_says_that_it_takes_none(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("chatter", {"loud": True})

    assert (
        text(result) == "Invalid arguments for `chatter`: `loud` is not an argument. It takes no arguments."
    )


async def test_an_unknown_tool_is_an_error_that_names_the_nearest(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("qeury", {})

    assert result.is_error
    assert text(result).startswith("There is no tool `qeury`, did you mean `query`. Tools: query, add, fail,")


@pytest.mark.parametrize(
    ("how", "expected"),
    [("expected", "There is no 文件. Ask for another."), ("grouped", "One of the tasks refused.")],
)
async def test_our_own_errors_reach_the_model_with_their_advice(sample, connect, how, expected):
    async with connect(sample) as client:
        result = await client.call_tool("fail", {"how": how})

    assert result.is_error
    assert text(result) == expected


async def test_an_unexpected_error_is_told_by_an_id_only_and_logged_with_its_traceback(
    sample, connect, caplog
):
    async with connect(sample) as client:
        result = await client.call_tool("fail", {"how": "unexpectedly"})

    assert result.is_error
    told = re.fullmatch(
        r"Internal error in tool `fail`\. The server's log says more under id ([0-9a-f]{8})\.", text(result)
    )
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told
    assert told[1] in record.getMessage()
    assert "a secret detail" in caplog.text


async def test_a_protocol_error_that_a_tool_raises_stays_one(connect):
    server = LoomServer("s", version="1", title="S")

    @server.tool(title="Refuse", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def refuse() -> ToolReply[Answer]:
        """Refuses."""
        raise MCPError(code=-32021, message="A capability is missing")

    async with connect(server) as client:
        with pytest.raises(MCPError, match="A capability is missing"):
            await client.call_tool("refuse", {})


async def test_text_that_is_not_valid_unicode_does_not_break_the_connection(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("fail", {"how": "surrogate"})

    assert text(result) == "name ?"
    assert result.structured_content == {"names": ["name ?"]}


async def test_progress_is_reported_to_a_client_that_asks(sample, connect):
    seen = []

    async def on_progress(value, total, message):
        seen.append((value, total, message))

    async with connect(sample) as client:
        await client.call_tool("work", {"steps": 3}, progress_callback=on_progress)

    assert seen[-1] == (3, 3, "step 3")
    assert sorted(seen) == seen


async def test_progress_without_a_token_is_silent(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("work", {"steps": 3})
        assert text(result) == f"done at {client.protocol_version}"


async def test_a_cancelled_call_is_cancelled_on_the_server_too(connect):
    server = LoomServer("slow", version="1", title="Slow")
    started, ended = anyio.Event(), anyio.Event()

    @server.tool(title="Wait", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def wait() -> ToolReply[Answer]:
        """Waits."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with connect(server) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "wait", {})
        await started.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        await ended.wait()


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
        with anyio.fail_after(5):
            await both.wait()

    assert received == [ToolListChangedNotification, ResourceListChangedNotification]


async def test_changes_reach_every_legacy_client_and_end_with_its_connection(sample):
    received = anyio.Event()

    async def on_message(message):
        received.set()

    async with Client(sample.protocol, mode="legacy", message_handler=on_message) as watching:
        async with Client(sample.protocol, mode="legacy") as acting:
            await acting.call_tool("add", {"name": "more"})
        with anyio.fail_after(5):
            await received.wait()
        await watching.list_tools()
    await sample.tools_changed()  # nobody is there any more, and nothing complains


async def test_a_modern_client_that_listens_is_told_what_has_changed(sample):
    async with (
        Client(sample.protocol) as client,
        client.listen(
            tools_list_changed=True, resources_list_changed=True, resource_subscriptions=["loom://docs/a%2Fb"]
        ) as events,
    ):
        await client.call_tool("add", {"name": "more"})
        with anyio.fail_after(5):
            seen = [type(await anext(events)).__name__ for _ in range(3)]

    assert sorted(seen) == ["ResourceUpdated", "ResourcesListChanged", "ToolsListChanged"]


async def test_subscriptions_can_be_ended_by_the_server(sample):
    async with Client(sample.protocol) as client, client.listen(tools_list_changed=True) as events:
        sample.end_subscriptions()
        with anyio.fail_after(5):
            assert [event async for event in events] == []


async def test_the_lifespan_is_open_while_the_server_serves(sample_server, connect):
    log = []
    async with connect(sample_server(log)) as client:
        await client.list_tools()
        assert log == ["opened"]
    assert log == ["opened", "closed"]


@pytest.mark.parametrize(
    ("uri", "content"),
    [
        ("loom://产品文档/一", "你好，世界"),
        ("loom://%E4%BA%A7%E5%93%81%E6%96%87%E6%A1%A3/%E4%B8%80", "你好，世界"),
    ],
)
async def test_a_resource_is_read_by_its_uri_in_any_script(sample, connect, uri, content):
    async with connect(sample) as client:
        (found,) = (await client.read_resource(uri)).contents

    assert (found.uri, found.text, found.mime_type) == (uri, content, "text/markdown")


async def test_a_binary_resource_is_read_as_bytes(sample, connect):
    async with connect(sample) as client:
        (found,) = (await client.read_resource("loom://docs/raw")).contents

    assert (found.blob, found.mime_type) == ("AAE=", "application/octet-stream")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("loom://docs/none", "There is no document 'none' in 'docs'."),
        ("loom://docs", "There is no resource 'loom://docs'."),
        ("file:///etc/passwd", "There is no resource 'file:///etc/passwd'."),
    ],
)
async def test_a_resource_that_does_not_exist_is_an_invalid_parameter(sample, connect, uri, message):
    async with connect(sample) as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(uri)

    assert (raised.value.error.code, raised.value.error.message) == (INVALID_PARAMS, message)
    assert raised.value.error.data == {"uri": uri}


async def test_a_crash_while_reading_does_not_show_its_details(sample, connect):
    async with connect(sample) as client:
        with pytest.raises(MCPError, match="Internal error in resource 'loom://docs/crash'") as raised:
            await client.read_resource("loom://docs/crash")

    assert raised.value.error.code == INTERNAL_ERROR


async def test_resources_are_listed_page_by_page(sample, connect):
    async with connect(sample) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)

    assert [entry.uri for entry in first.resources] == ["loom://docs/a%2Fb", "loom://docs/raw"]
    assert [(entry.name, entry.title) for entry in second.resources] == [("一", "产品文档")]
    assert second.next_cursor is None


async def test_every_listed_resource_can_be_read(sample, connect):
    async with connect(sample) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        contents = [
            (await client.read_resource(e.uri)).contents for e in [*first.resources, *second.resources]
        ]

    assert [getattr(content, "text", None) for (content,) in contents] == ["hello", None, "你好，世界"]


async def test_a_strange_cursor_is_refused_with_advice(sample, connect):
    async with connect(sample) as client:
        with pytest.raises(MCPError, match="Start without one") as raised:
            await client.list_resources(cursor="elsewhere")

    assert raised.value.error.code == INVALID_PARAMS


async def test_templates_are_listed(sample, connect):
    async with connect(sample) as client:
        (template,) = (await client.list_resource_templates()).resource_templates

    assert (template.uri_template, template.name, template.title) == (
        "loom://{kb}/{id}",
        "document",
        "Document",
    )


async def test_templates_without_a_list_give_an_empty_list(connect):
    server = LoomServer("bare", version="1", title="Bare")

    @server.resource("loom://{id}", name="document", title="Document", description="A document.")
    async def document(id):  # noqa: A002
        raise AssertionError

    async with connect(server) as client:
        assert (await client.list_resources()).resources == []


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


def test_a_resource_function_takes_the_variables_of_its_template():
    async def read(kb: str):
        raise AssertionError

    server = LoomServer("s", version="1", title="S")
    with pytest.raises(ValueError, match="are not the variables"):
        server.resource("loom://{kb}/{id}", name="n", title="T", description="D.")(read)


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
