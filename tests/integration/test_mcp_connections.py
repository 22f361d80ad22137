"""The adapter's connections to the real `loom-kb`, over both transports and in both eras."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import pytest

from loom_core.mcp_client.client import HttpClient, StdioClient
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.storage.ownership import holder_of

OPTIONS = ["-m", "loom_kb", "--embedder", "hashing"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends servers by POSIX signals")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@asynccontextmanager
async def connected(config):
    connection = ServerConnection(config)
    async with anyio.create_task_group() as tasks:
        await tasks.start(connection.run)
        try:
            yield connection
        finally:
            await connection.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_knowledge_base_is_filled_and_asked_over_stdio(home, era):
    config = ServerConfig(
        name="kb",
        transport="stdio",
        command=sys.executable,
        args=(*OPTIONS, "--home", str(home)),
        start_seconds=60,
        era=era,
    )
    async with connected(config) as kb:
        tools = {tool.name for tool in (await kb.list_tools()).tools}
        assert {"query", "fetch", "add"} <= tools
        text = "第七号灯塔位于青岛市，看守人是李明。The keeper of lighthouse 7 is Li Ming."
        added = await kb.call_tool("add", {"text": text, "title": "灯塔"})
        assert not added.is_error, added.content
        answer = await kb.call_tool("query", {"query": "第七号灯塔的看守人是谁？"})
        assert "李明" in answer.content[0].text
        assert [prompt.name for prompt in await kb.list_prompts()]


async def test_a_knowledge_base_that_is_killed_is_started_again_with_all_it_knew(home):
    config = ServerConfig(
        name="kb",
        transport="stdio",
        command=sys.executable,
        args=(*OPTIONS, "--home", str(home)),
        start_seconds=60,
    )
    async with connected(config) as kb:
        added = await kb.call_tool("add", {"text": "茶马古道始于云南。", "title": "茶"})
        assert not added.is_error, added.content
        holder = holder_of(home / "kb" / "default")
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        answer = await kb.call_tool("query", {"query": "茶马古道"}, repeatable=True)
        assert "云南" in answer.content[0].text


@pytest.fixture
def url(home):
    """Where `loom-kb` serves over HTTP while the test runs."""
    command = [sys.executable, "-m", "loom_kb", "serve", "--http", "--port", "0"]
    command += ["--embedder", "hashing", "--home", str(home)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        yield next(line.split()[2] for line in process.stderr if line.startswith("loom-kb serves "))
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def test_a_program_asks_a_knowledge_base_over_stdio_and_http(home, url):
    async with HttpClient(url) as remote:
        added = await remote.call_tool("add", {"text": "The harbour of 青岛 is deep."})
        assert not added.is_error, added.text
        assert "deep" in (await remote.call_tool("query", {"query": "harbour"})).text
    async with StdioClient(sys.executable, [*OPTIONS, "--home", str(home)]) as local:
        assert "deep" in (await local.call_tool("query", {"query": "harbour"})).text, "the same folder"
