"""Tasks over HTTP: they outlive a connection, are told to their own caller only, and named by a header."""

from __future__ import annotations

import sys

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError

from loom_core.server.auth.caller import SCOPES, Caller, use_caller
from loom_core.server.calls.tasks import TASKS
from tests.fixtures.serving import serving
from tests.fixtures.task_client import KNOWS_TASKS, answer, cancel, connected, get, until


async def by_name(ctx, call_next):
    """Middleware that takes the name of a client for a caller, as authentication would a token."""
    who = ctx.session.client_params
    with use_caller(Caller("token", SCOPES, id=who.client_info.name if who else "")):
        return await call_next(ctx)


over_http = pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")


@over_http
async def test_a_task_survives_a_client_that_comes_back(kitchen):
    async with serving(kitchen.server) as url:
        async with connected(url) as (_, start):
            task_id = await start("cook", dish="soup")
        async with connected(url) as (client, _):
            assert (await get(client, task_id)).status == "working"
            kitchen.go_on.set()
            task = await until(client, task_id, "completed")
    assert task.result["structuredContent"] == {"said": "soup as a task"}


@over_http
async def test_a_task_is_unknown_to_other_callers(kitchen):
    kitchen.server.protocol.middleware.append(by_name)
    mine = types.Implementation(name="mine", version="1")
    theirs = types.Implementation(name="theirs", version="1")
    async with serving(kitchen.server) as url, connected(url, client_info=mine) as (client, start):
        task_id = await start("cook", dish="soup")
        async with Client(url, extensions=KNOWS_TASKS, client_info=theirs) as other:
            for request in (get, answer, cancel):
                with pytest.raises(MCPError, match="There is no such task"):
                    await request(other, task_id)
        assert (await get(client, task_id)).status == "working"


@pytest.mark.hostile("tokens")
@over_http
@pytest.mark.parametrize("name", [{}, {"Mcp-Name": "another"}])
async def test_a_header_that_names_another_task_is_refused(kitchen, name):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tasks/get",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "some", "_meta": meta}}
    async with serving(kitchen.server) as url, httpx2.AsyncClient() as http:
        refused = await http.post(url, json=body, headers={**headers, **name})
        unknown = await http.post(url, json=body, headers={**headers, "Mcp-Name": "some"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, types.HEADER_MISMATCH)
    assert unknown.json()["error"]["code"] == types.INVALID_PARAMS
