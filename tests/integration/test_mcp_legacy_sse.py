"""Servers of the old kind, HTTP with SSE, through the adapter; the server is the SDK's."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import ServerError
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.connection import ServerConnection
from loom_core.mcp_client.oauth.authentication import oauth_auth
from loom_core.mcp_client.oauth.store import Login, LoginStore, Tokens

# Says its port, and serves. With an argument, that is the token without which nothing is answered.
SERVER = """
import socket, sys
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

mcp = MCPServer("old")

@mcp.tool()
async def repeat(text: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "半")
    return text * 2

@mcp.tool()
async def grow(ctx: Context) -> str:
    mcp.add_tool(lambda: "new", name="grown")
    await ctx.session.send_tool_list_changed()
    return "done"

inner = mcp.sse_app()

async def app(scope, receive, send):
    if scope["type"] == "http" and len(sys.argv) > 1:
        if dict(scope["headers"]).get(b"authorization") != f"Bearer {sys.argv[1]}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
    await inner(scope, receive, send)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).run(sockets=[listener])
"""


@contextmanager
def serving(*arguments):
    """The URL of a server, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def open_url():
    with serving() as url:
        yield url


@pytest.fixture(scope="module")
def guarded_url():
    with serving("geheim") as url:
        yield url


@asynccontextmanager
async def connected(config, **options):
    """A connection that is ready, and ends with the block."""
    connection = ServerConnection(config, **options)
    async with anyio.create_task_group() as owner:
        owner.start_soon(connection.run)
        try:
            yield connection
        finally:
            await connection.close()


def entry(url, **settings):
    return ServerConfig(name="old", transport="sse", url=url, start_seconds=30, **settings)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_tools_are_listed_and_called_with_their_progress(open_url, era):
    told = []
    was_told = anyio.Event()

    async def progress(done, total, text):
        told.append((done, total, text))
        was_told.set()

    async with connected(entry(f"{open_url}/sse", era=era)) as connection:
        await connection.ready(30)
        assert {tool.name for tool in (await connection.list_tools()).tools} >= {"repeat", "grow"}
        result = await connection.call_tool("repeat", {"text": "茶"}, progress=progress)
        with anyio.fail_after(10):
            await was_told.wait()

    assert result.content[0].text == "茶茶"
    assert told == [(1, 2, "半")]


async def test_a_change_of_its_tools_is_told(open_url):
    changed = anyio.Event()

    def on_change(change):
        if change == "tools":
            changed.set()

    async with connected(entry(f"{open_url}/sse", era="legacy"), on_change=on_change) as connection:
        await connection.ready(30)
        changed = anyio.Event()
        await connection.call_tool("grow", {})
        with anyio.fail_after(10):
            await changed.wait()
        assert "grown" in {tool.name for tool in (await connection.list_tools()).tools}


async def test_a_stored_login_goes_with_the_stream_and_with_each_message(guarded_url, tmp_path):
    config = entry(f"{guarded_url}/sse", auth="oauth")
    store = LoginStore(tmp_path, "old", config.url, keyring=False)
    async with store.exclusive(5):
        store.write(Login(tokens=Tokens(access=SecretStr("geheim"), endpoint=f"{guarded_url}/token")))
    auth = oauth_auth(config, tmp_path, keyring=False)
    async with connected(config, auth=lambda _: auth) as connection:
        await connection.ready(30)
        result = await connection.call_tool("repeat", {"text": "a"})

    assert result.content[0].text == "aa"


async def test_what_cannot_be_connected_says_why(open_url, guarded_url):
    for url, reason in ((f"{open_url}/mcp", "answers 404"), (f"{guarded_url}/sse", "answers 401")):
        async with connected(entry(url)) as connection:
            with pytest.raises(ServerError, match=reason):
                await connection.ready(30)
            assert connection.state == "failed"
