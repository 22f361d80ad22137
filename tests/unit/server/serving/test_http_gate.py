"""HTTP authorization: tokens and scopes, and responses without them."""

from __future__ import annotations

import sys

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from loom_core.errors import ConfigError
from loom_core.server.auth.access_tokens import Issuer
from loom_core.server.auth.authentication import AuthSettings
from loom_core.server.auth.caller import current_caller
from loom_core.server.auth.tokens import TokenFile
from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_settings import HttpSettings
from tests.fixtures.asker import Asker, guarded, open_session, shown
from tests.fixtures.serving import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]


class Who(BaseModel):
    name: str
    sources: list[str]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_token_lets_its_holder_in_in_both_eras(sample, tokens, make, mode):
    headers = make("laptop", "read", "write")
    async with (
        serving(sample, HttpSettings(port=0, auth=AuthSettings(tokens.path))) as url,
        httpx2.AsyncClient(headers=headers) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode) as client,
    ):
        assert not (await client.call_tool("add", {"name": "more"})).is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_knows_its_caller_and_so_does_what_it_starts(sample, tokens, make, mode):
    @sample.tool(title="Who", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def who(ctx: ToolContext) -> ToolReply[Who]:
        """Tells who asks."""
        caller = await anyio.to_thread.run_sync(current_caller)
        assert caller == ctx.caller
        return tool_result("", Who(name=caller.name, sources=sorted(caller.sources or [])))

    headers = make("张三", sources=["文档"])
    async with (
        serving(sample, HttpSettings(port=0, auth=AuthSettings(tokens.path))) as url,
        httpx2.AsyncClient(headers=headers) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode) as client,
    ):
        result = await client.call_tool("who", {})

    assert result.structured_content == {"name": "张三", "sources": ["文档"]}
    async with Client(sample.protocol, mode=mode) as client:
        result = await client.call_tool("who", {})
    assert result.structured_content == {"name": "local", "sources": []}


async def test_clients_learn_who_issues_tokens_for_this_server(sample):
    issuer = Issuer("https://login.example", "https://kb.example/mcp")
    async with (
        serving(sample, HttpSettings(port=0, auth=AuthSettings(issuer=issuer))) as url,
        httpx2.AsyncClient() as web,
    ):
        place = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        metadata = await web.get(place, headers={"Host": "kb.example"})
        refused = await web.post(url, headers={"Host": "kb.example", "Origin": "https://kb.example"})
        foreign = await web.get(place, headers={"Host": "evil.example"})

    assert metadata.json() == {
        "resource": "https://kb.example/mcp",
        "authorization_servers": ["https://login.example"],
        "scopes_supported": ["read", "write"],
        "resource_name": "Sample",
        "bearer_methods_supported": ["header"],
    }
    expected = 'resource_metadata="https://kb.example/.well-known/oauth-protected-resource/mcp"'
    assert expected in refused.headers["www-authenticate"]
    assert (refused.status_code, foreign.status_code) == (401, 421)


async def test_a_network_may_be_served_where_callers_are_asked(sample, tokens, make):
    headers = make("laptop")
    async with (
        serving(sample, HttpSettings(port=0, host="0.0.0.0", auth=AuthSettings(tokens.path))) as url,
        httpx2.AsyncClient() as web,
    ):
        ask = Asker(web, url.replace("0.0.0.0", "127.0.0.1"))
        assert (await ask.rpc("tools/list", headers)).status_code == 200
        assert (await ask.rpc("tools/list", {**headers, "Host": "0.0.0.0"})).status_code == 421


async def test_settings_that_ask_no_one_do_not_open_a_network(sample):
    with pytest.raises(ConfigError, match="without authentication"):
        await serve_http(sample, HttpSettings(host="0.0.0.0", auth=AuthSettings()))


async def test_without_a_token_nothing_is_told_but_that_one_is_wanted(sample, tokens):
    async with guarded(sample, tokens) as ask:
        answer = await ask.rpc("tools/list", {})
        elsewhere = await ask.get("/nothing")

    assert (answer.status_code, elsewhere.status_code) == (401, 401)
    assert answer.headers["www-authenticate"] == 'Bearer realm="sample", scope="read write"'
    assert answer.json() == {
        "error": "unauthorized",
        "error_description": "This server requires a bearer token.",
    }


@pytest.mark.parametrize(
    "given",
    ["Bearer loom_0", "Bearer", "Basic eDp5", "Bearer " + "x" * 9000, "bearer a.b.c", "loom_x"],
)
async def test_what_is_no_token_of_ours_is_invalid(sample, tokens, given):
    async with guarded(sample, tokens) as ask:
        answer = await ask.rpc("tools/list", {"Authorization": given})

    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


@pytest.mark.hostile("HTTP requests")
async def test_two_authorization_headers_are_refused(sample, tokens, make):
    shown = make("laptop")["Authorization"]
    async with guarded(sample, tokens) as ask:
        both = [("Authorization", shown), ("Authorization", shown)]
        assert (await ask.web.get(ask.url, headers=both)).status_code == 401


async def test_a_token_in_the_address_is_none(sample, tokens, make):
    token = make("laptop")["Authorization"].removeprefix("Bearer ")
    async with guarded(sample, tokens) as ask:
        assert (await ask.web.get(f"{ask.url}?access_token={token}")).status_code == 401


async def test_an_expired_token_is_told_from_an_unknown_one(sample, tokens, make):
    headers = make("old", seconds=-1.0)
    async with guarded(sample, tokens) as ask:
        answer = await ask.rpc("tools/list", headers)

    assert answer.status_code == 401
    assert answer.json()["error_description"] == "The token has expired."


async def test_revoking_works_at_once_and_a_new_token_of_the_name_is_another(sample, tokens, make):
    headers = make("laptop")
    elsewhere = TokenFile(tokens.path)
    async with guarded(sample, tokens) as ask:
        assert (await ask.rpc("tools/list", headers)).status_code == 200
        elsewhere.revoke("laptop")
        assert (await ask.rpc("tools/list", headers)).status_code == 401
        again = make("laptop")
        assert (await ask.rpc("tools/list", again)).status_code == 200
        assert (await ask.rpc("tools/list", headers)).status_code == 401


async def test_a_reader_sees_and_may_call_what_changes_nothing_only(sample, tokens, make):
    headers = make("reader", "read")
    async with guarded(sample, tokens) as ask:
        listed = (await ask.rpc("tools/list", headers)).json()["result"]["tools"]
        read = await ask.call("query", headers, query="x")
        refused = await ask.call("add", headers, name="more")
        unknown = await ask.call("ad", headers)

    assert "add" not in [tool["name"] for tool in listed]
    assert read.status_code == 200
    assert refused.status_code == 403
    assert refused.json()["error"] == "insufficient_scope"
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    assert 'scope="read write"' in refused.headers["www-authenticate"]
    assert "`add`" not in unknown.text
    assert " add" not in unknown.text


async def test_a_writer_who_may_not_read_reads_no_resources(sample, tokens, make):
    headers = make("writer", "write")
    async with guarded(sample, tokens) as ask:
        assert (await ask.call("add", headers, name="more")).status_code == 200
        for method in ("resources/list", "resources/templates/list", "prompts/list"):
            assert (await ask.rpc(method, headers)).status_code == 403


async def test_a_session_takes_no_other_token_than_the_one_that_opened_it(sample, tokens, make):
    mine, yours = make("mine"), make("yours")
    async with guarded(sample, tokens) as ask:
        session = await open_session(ask, mine)
        named = {"mcp-session-id": session, "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        own = await ask.web.post(ask.url, json=body, headers={**named, **mine})
        foreign = await ask.web.post(ask.url, json=body, headers={**named, **yours})
        unknown = await ask.web.post(
            ask.url, json=body, headers={**named, **yours, "mcp-session-id": "0" * 32}
        )

    assert own.status_code == 200
    assert (foreign.status_code, foreign.text) == (unknown.status_code, unknown.text) == (404, foreign.text)


async def test_a_stream_ends_soon_after_its_token_is_revoked(sample, tokens, make):
    headers = make("laptop")
    async with guarded(sample, tokens) as ask:
        session = await open_session(ask, headers)
        sent = {**headers, "mcp-session-id": session, "Accept": "text/event-stream"}
        async with ask.web.stream("GET", ask.url, headers=sent, timeout=20) as stream:
            assert stream.status_code == 200
            tokens.revoke("laptop")
            assert [part async for part in stream.aiter_bytes() if b"data: {" in part] == []


async def test_a_call_ends_soon_after_its_token_is_revoked(sample, tokens, make):
    headers = make("laptop")
    async with guarded(sample, tokens) as ask, anyio.create_task_group() as tasks:
        answers = []

        async def wait():
            answers.append(await ask.call("wait", headers))

        tasks.start_soon(wait)
        await shown(sample, "loom_http_calls 1")
        tokens.revoke("laptop")
        await shown(sample, "loom_http_calls 0")
    assert answers[0].status_code == 401


async def test_a_call_without_its_client_ends_soon_after_its_token_is_revoked(sample, tokens, make):
    headers = make("laptop")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    async with guarded(sample, tokens) as ask:
        sent = {
            "mcp-session-id": await open_session(ask, headers),
            "Accept": "application/json, text/event-stream",
        }
        with pytest.raises(httpx2.ReadTimeout):
            await ask.web.post(ask.url, json=call, headers={**headers, **sent}, timeout=0.2)
        await shown(sample, "loom_http_calls 1")
        tokens.revoke("laptop")
        await shown(sample, "loom_http_calls 0")
        await shown(sample, 'loom_mcp_calls_total{tool_name="wait",status="cancelled"} 1')


async def test_metrics_are_for_operators_and_hold_no_data_of_users(sample, tokens, make):
    reader, operator = make("张三的电脑", "read", sources=["产品文档"]), make("operator", "admin")
    async with guarded(sample, tokens) as ask:
        await ask.call("query", reader, query="机密")
        await ask.call("fail", reader, how="expected")
        await ask.call("no_tool_of_ours", reader)
        assert (await ask.get("/metrics")).status_code == 401
        assert (await ask.get("/metrics", reader)).status_code == 403
        answer = await ask.get("/metrics", operator)

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'loom_mcp_calls_total{tool_name="query",status="success"} 1' in answer.text
    assert 'loom_mcp_calls_total{tool_name="fail",status="error"} 1' in answer.text
    assert 'loom_mcp_call_duration_seconds_count{tool_name="query"} 1' in answer.text
    assert 'loom_http_refused_total{reason="no_token"} 1' in answer.text
    assert 'loom_http_refused_total{reason="scope"} 1' in answer.text
    assert answer.text.isascii()
    assert "no_tool_of_ours" not in answer.text


async def test_health_and_readiness_want_no_token(sample, tokens):
    async with guarded(sample, tokens) as ask:
        assert (await ask.get("/healthz")).json()["status"] == "ok"
        assert (await ask.get("/readyz")).json() == {"status": "ready"}


async def test_metrics_are_open_where_no_one_is_asked(sample):
    async with serving(sample) as url, httpx2.AsyncClient() as web:
        assert (await web.get(url.replace("/mcp", "/metrics"))).status_code == 200


@pytest.mark.hostile("HTTP requests")
async def test_the_log_names_who_was_refused_and_never_the_token(sample, tokens, make, caplog):
    known, expired = make("laptop"), make("old", seconds=-1.0)
    tokens.revoke("laptop")
    async with guarded(sample, tokens) as ask:
        await ask.rpc("tools/list", known)
        await ask.rpc("tools/list", expired)

    assert "refused an unauthenticated client at 127.0.0.1" in caplog.text
    assert "refused old at 127.0.0.1" in caplog.text
    for headers in (known, expired):
        assert headers["Authorization"].removeprefix("Bearer ") not in caplog.text


@pytest.mark.hostile("HTTP requests")
@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("localhost:/healthz?", "/mcp", 401),  # Starlette 1.0 finds the path of a URL in it
        ("localhost:/healthz#", "/metrics", 401),
        ("localhost", "/mcp%0A", 401),  # the router's patterns match it, too
        ("localhost", "/metrics%0A", 401),
        ("localhost", "/healthz%0A", 200),
    ],
)
async def test_no_form_of_a_path_or_host_makes_a_guarded_path_an_open_one(sample, tokens, host, path, status):
    async with guarded(sample, tokens) as ask:
        assert (await ask.get(path, {"Host": host})).status_code == status


@pytest.mark.hostile("HTTP requests")
async def test_a_path_with_a_newline_demands_the_same_scope(sample, tokens, make):
    headers = make("reader", "read")
    async with guarded(sample, tokens) as ask:
        assert (await ask.get("/metrics%0A", headers)).status_code == 403
        ask.url += "%0A"
        assert (await ask.call("add", headers, name="more")).status_code == 403


@pytest.mark.hostile("HTTP requests")
async def test_an_open_path_waits_for_no_body(sample, tokens):
    async with (
        guarded(sample, tokens, body_seconds=1) as ask,
        await anyio.connect_tcp("127.0.0.1", httpx2.URL(ask.url).port) as connection,
    ):
        await connection.send(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        assert (await connection.receive()).startswith(b"HTTP/1.1 405 ")
