from __future__ import annotations

import asyncio
import sys

import pytest
from pydantic import BaseModel

from loom_core.errors import ServerError
from loom_core.mcp_client.callbacks import Callbacks
from loom_core.mcp_client.client import HttpClient, StdioClient
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.tools.depth import current_depth
from loom_core.tools.interface import QuestionAnswer
from tests.unit.mcp_client.asking_server import asking_server


class Said(BaseModel):
    text: str


@pytest.fixture
def command(raw):
    return [sys.executable, *raw().args]


async def test_a_child_is_asked_for_its_tools_and_to_run_one(command):
    program, *args = command
    async with StdioClient(program, args, env={"MODE": "测试"}) as client:
        assert client.facts is not None
        assert client.facts.name == "raw"
        assert "echo" in [tool.name for tool in await client.list_tools()]
        output = await client.call_tool("echo", {"文": "你好"})
        assert (output.text, output.is_error) == ('{"文": "你好"}', False)
        assert '"MODE": "\\u6d4b\\u8bd5"' in (await client.call_tool("environment")).text
        assert await client.list_resources() == await client.list_prompts() == []
        with pytest.raises(ServerError, match="-32601"):
            await client.read_resource("loom://x")
        with pytest.raises(ServerError, match="-32601"):
            await client.get_prompt("x")


async def test_a_client_is_connected_by_its_first_question_and_closed_by_any_task(command):
    program, *args = command
    client = StdioClient(program, args)
    assert client.facts is None
    assert (await asyncio.create_task(client.call_tool("echo"))).text == "{}"
    await asyncio.create_task(client.close())
    await client.close()
    with pytest.raises(ServerError, match="was closed"):
        await client.call_tool("echo")


async def test_who_cannot_connect_is_told_and_leaves_nothing_behind():
    client = StdioClient("no-such-program", name="文件")
    with pytest.raises(ServerError, match="Server '文件' cannot be started"):
        await client.connect()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "MCP 文件"] == []


async def test_a_web_server_is_asked_with_a_token_and_may_ask_back(serving):
    async def ask(question):
        return QuestionAnswer("accept", {"name": "小明"})

    async with (
        serving(asking_server()) as url,
        HttpClient(url, bearer="t0ken", headers={"X-A": "1"}, callbacks=Callbacks(ask=ask)) as client,
    ):
        assert (await client.call_tool("greet")).text == "accepted: 小明"


async def test_a_bearer_is_a_header_of_every_request(local_servers):
    web = local_servers()
    url = web.answers("/mcp", status=401)
    with pytest.raises(ServerError, match="401"):
        await HttpClient(url, bearer="t0ken-geheim").connect()
    assert {asked.headers["authorization"] for asked in web.asked} == {"Bearer t0ken-geheim"}


async def test_a_server_over_http_that_leads_back_to_itself_is_found_out(serving):
    server = LoomServer("回声", version="1", title="Echo")
    calls = []

    @server.tool(title="Ask", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def ask() -> ToolReply[Said]:
        """Asks this server itself."""
        calls.append(current_depth())
        async with HttpClient(calls_to[0], name="回声") as client:
            return tool_result((await client.call_tool("ask")).text, Said(text="said"))

    calls_to = []
    async with serving(server) as url:
        calls_to.append(url)
        async with HttpClient(url) as client:
            output = await client.call_tool("ask")
    assert calls == [1, 2, 3]
    assert "Server '回声' is not called: 3 programs are above this one" in output.text
