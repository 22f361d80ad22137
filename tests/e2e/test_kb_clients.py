"""The Python client of the SDK in both eras, over stdio and over HTTP."""

from __future__ import annotations

import os
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters

MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture(params=["stdio", "http"])
def target(request, home):
    """The server that a client connects to."""
    if request.param == "http":
        if sys.platform == "win32":
            pytest.skip("stopped by POSIX signals")
        return request.getfixturevalue("http_url")
    arguments = ["-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


async def ended(client, added):
    """The job of an `add` once it has ended: on a busy machine the answer comes before."""
    waited = await client.call_tool("job", {"id": added.structured_content["job"]["id"], "action": "wait"})
    return waited.structured_content["jobs"][0]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_lists_adds_asks_reads_and_removes(mode, target):
    progress = []

    async def on_progress(value, _total, message):
        progress.append((value, message))

    with anyio.fail_after(60):
        async with Client(target, mode=mode) as client:
            assert client.protocol_version == MODES[mode]
            assert client.server_info.title == "Loom knowledge base"
            tools = (await client.list_tools()).tools
            assert len(tools) == 8
            added = await client.call_tool(
                "add",
                {"text": "# 青岛港\n\n青岛港的港长是李明。", "source": "知识库"},
                progress_callback=on_progress,
            )
            assert (await ended(client, added))["state"] == "done"
            found = await client.call_tool("query", {"query": "谁是青岛港的港长？"})
            assert found.content[0].text.startswith("[1] 青岛港 (text:")
            passage = found.structured_content["passages"][0]
            resources = (await client.list_resources()).resources
            read = await client.read_resource(resources[0].uri)
            assert passage["text"] in read.contents[0].text
            await client.call_tool("remove", {"ids": [passage["uri"]]})
            gone = await client.call_tool("fetch", {"id": passage["id"]})
            assert gone.is_error
    assert progress


async def test_many_calls_at_once_are_all_answered(target):
    with anyio.fail_after(60):
        async with Client(target) as client:

            async def add(text):
                await ended(client, await client.call_tool("add", {"text": text}))

            async with anyio.create_task_group() as tasks:
                for i in range(5):
                    tasks.start_soon(add, f"# Buoy {i}\n\nBuoy {i} is red.")
            answers = {}

            async def ask(i):
                answers[i] = await client.call_tool("query", {"query": f"Buoy {i}", "limit": 1})

            async with anyio.create_task_group() as tasks:
                for i in range(20):
                    tasks.start_soon(ask, i % 5)
    for i, answer in answers.items():
        assert answer.structured_content["passages"][0]["title"] == f"Buoy {i}"
