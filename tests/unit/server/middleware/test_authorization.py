"""What holds for a request of the protocol whatever way it has come."""

from __future__ import annotations

import pytest
from mcp import MCPError
from mcp.server import ServerRequestContext
from starlette.requests import Request

from loom_core.observability.metrics import LoomMetrics, new_registry
from loom_core.server.auth.caller import FULL_ACCESS, Caller, current_caller
from loom_core.server.middleware.authorization import CALLER_KEY, AuthorizationMiddleware

READER = Caller("张三", frozenset({"read"}), frozenset({"文档"}), id="t")
SCOPES = {"query": "read", "add": "write"}


@pytest.fixture
def metrics():
    return LoomMetrics(registry=new_registry())


@pytest.fixture
def ask(metrics):
    """Sends a request through the admission to a handler that tells whom it serves."""

    async def through(caller, method, name="", *, fails=None):
        async def handle(_ctx):
            if fails:
                raise fails
            return {"caller": current_caller(), "isError": name == "add"}

        request = Request({"type": "http", CALLER_KEY: caller}) if caller else None
        params = {"name": name} if name else None
        ctx = ServerRequestContext(
            session=None,
            lifespan_context=None,
            protocol_version="",
            method=method,
            params=params,
            request=request,
        )
        return (await AuthorizationMiddleware(SCOPES.get, metrics)(ctx, handle))["caller"]

    return through


async def test_a_request_is_served_for_its_caller_and_nothing_else_is(ask):
    assert await ask(READER, "tools/call", "query") == READER
    assert await ask(READER, "resources/list") == READER
    assert await ask(None, "tools/call", "add") == FULL_ACCESS
    assert current_caller() == FULL_ACCESS


async def test_what_needs_a_scope_that_the_caller_lacks_is_refused(ask, metrics):
    with pytest.raises(MCPError, match="needs the scope write"):
        await ask(READER, "tools/call", "add")
    writer = Caller("writer", frozenset({"write"}))
    for reading in ("resources/read", "prompts/get", "completion/complete", "subscriptions/listen"):
        with pytest.raises(MCPError, match="needs the scope read"):
            await ask(writer, reading)
    for open_to_all in ("initialize", "ping", "tools/list", "server/discover"):
        assert await ask(writer, open_to_all) == writer
    assert "tool_name=" not in metrics.text()


async def test_calls_are_counted_by_how_they_ended_and_those_of_unknown_tools_without_their_names(
    ask, metrics
):
    await ask(None, "tools/call", "query")
    await ask(None, "tools/call", "add")
    await ask(None, "tools/call", "机密")
    with pytest.raises(MCPError):
        await ask(None, "tools/call", "query", fails=MCPError(code=-32602, message="no"))
    text = metrics.text()
    assert 'loom_mcp_calls_total{tool_name="query",status="success"} 1' in text
    assert 'loom_mcp_calls_total{tool_name="query",status="refused"} 1' in text
    assert 'loom_mcp_calls_total{tool_name="add",status="error"} 1' in text
    assert 'loom_mcp_calls_total{tool_name="unknown",status="success"} 1' in text
    assert 'loom_mcp_call_duration_seconds_count{tool_name="unknown"}' not in text
    assert text.isascii()
