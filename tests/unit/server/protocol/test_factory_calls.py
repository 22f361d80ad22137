"""Tools called in both eras: their arguments, their errors, their progress, their end."""

from __future__ import annotations

import logging
import re

import anyio
import pytest
from mcp import MCPError

from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply
from tests.unit.server.conftest import Answer, text


async def test_a_tool_answers_with_text_and_structured_data(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("query", {"query": "你好", "limit": 1})

    assert not result.is_error
    assert text(result) == "你好  None best"
    assert result.structured_content == {"hits": [{"title": "你好0"}]}  # a score of 1 is the default


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


@pytest.mark.hostile("MCP requests")
async def test_an_error_about_a_huge_text_is_short_and_has_no_half_of_a_secret(sample, connect, caplog):
    caplog.set_level(logging.INFO, logger="loom_core")
    secret = "sk-0123456789abcdef0123456789abcdef"
    name = " ".join(["x" * 3_960, secret, "x" * 100_000])  # the secret is where the text is cut
    async with connect(sample) as client:
        result = await client.call_tool(name, {})

    assert text(result).startswith("There is no tool `xx")
    assert text(result).endswith("Tools: query, add, fail, work, wait, hang, chatter.")
    for told in (text(result), caplog.text):
        assert len(told) < 10_000
        assert "sk-" not in told


@pytest.mark.hostile("MCP requests")
async def test_an_error_does_not_list_a_thousand_arguments(sample, connect):
    async with connect(sample) as client:
        result = await client.call_tool("query", {"query": "a", **dict.fromkeys(map(str, range(1000)), 1)})

    assert "`7` is not an argument; and 992 more. Valid arguments: query" in text(result)


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


@pytest.mark.hostile("MCP requests")
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
    with anyio.fail_after(30):
        await ended.wait()
