from __future__ import annotations

from types import SimpleNamespace

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult
from pydantic import BaseModel

from loom_core.server.calls.context import ToolContext, bind_call_context
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_settings import HttpSettings

APPS = "io.modelcontextprotocol/ui"


class Answer(BaseModel):
    text: str


def seeing(*wanted):
    """A server whose tool keeps its context, and refuses whom it has to."""
    server = LoomServer("s", version="1", title="S")
    seen = []

    @server.tool(title="Look", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def look(ctx: ToolContext) -> ToolReply[Answer]:
        """Looks at its caller."""
        seen.append(SimpleNamespace(ctx=ctx, headers=dict(ctx.headers)))
        for capability in wanted:
            ctx.require(capability)
        return tool_result("ok", Answer(text="ok"))

    return server, seen


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    return request.param


async def decline(context, params):
    return ElicitResult(action="decline")


async def test_a_call_knows_what_its_client_has_declared(mode):
    server, seen = seeing()
    async with Client(
        server.protocol, mode=mode, elicitation_callback=decline, extensions=[advertise(APPS)]
    ) as client:
        await client.call_tool("look", {})
        version = client.protocol_version

    ctx = seen[0].ctx
    assert (ctx.can("elicitation"), ctx.can("sampling"), ctx.can("roots")) == (True, False, False)
    assert (ctx.can(APPS), ctx.can("example.com/other")) == (True, False)
    assert ctx.protocol_version == version
    assert ctx.client.startswith("mcp ")
    assert seen[0].headers == {}


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ("sampling", {"sampling": {}}),
        ("example.com/other", {"extensions": {"example.com/other": {}}}),
    ],
)
async def test_a_call_that_needs_more_than_the_client_can_is_refused_with_what_is_missing(
    mode, wanted, missing
):
    server, _ = seeing(wanted)
    async with Client(server.protocol, mode=mode) as client:
        with pytest.raises(MCPError, match=f"a client that has declared `{wanted}`") as refused:
            await client.call_tool("look", {})

    assert refused.value.error.code == -32021
    assert refused.value.error.data == {"requiredCapabilities": missing}


async def test_a_call_of_a_client_that_can_is_not_refused(mode):
    server, _ = seeing("elicitation", APPS)
    async with Client(
        server.protocol, mode=mode, elicitation_callback=decline, extensions=[advertise(APPS)]
    ) as client:
        assert not (await client.call_tool("look", {})).is_error


async def test_over_http_a_call_knows_its_headers_but_no_credentials(mode):
    server, seen = seeing()
    url, ready = [], anyio.Event()

    def on_ready(at):
        url.append(at)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_http(server, HttpSettings(port=0), on_ready=on_ready))
        with anyio.fail_after(10):
            await ready.wait()
        headers = {"X-Request-Id": "abc", "Authorization": "Bearer secret", "Cookie": "secret"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url[0], http_client=http), mode=mode) as client,
        ):
            await client.call_tool("look", {})
        tasks.cancel_scope.cancel()

    assert seen[0].headers["x-request-id"] == "abc"
    assert seen[0].headers["user-agent"]
    assert "secret" not in repr(seen[0].headers)
    assert "secret" not in repr(seen[0].ctx)


async def test_a_function_gets_the_context_only_if_it_wants_it():
    async def plain(value: str) -> str:
        return value

    async def wanting(value: str, *, ctx: ToolContext) -> str:
        return f"{value} {ctx}"

    assert await bind_call_context(plain)("context", "a") == "a"
    assert await bind_call_context(wanting)("context", value="a") == "a context"
