"""What stands in front of a server on HTTP: tokens, scopes, shares, time."""

from __future__ import annotations

import signal
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from loom_core.errors import ConfigError
from loom_core.server.authentication import AuthSettings
from loom_core.server.caller import current_caller
from loom_core.server.context import ToolContext
from loom_core.server.http import HttpSettings, serve_http
from loom_core.server.limits import Limits
from loom_core.server.oauth import Issuer
from loom_core.server.results import ToolReply, tool_result
from loom_core.server.tokens import TokenFile
from loom_core.testing.serving import serving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Done(BaseModel):
    done: bool


class Who(BaseModel):
    name: str
    sources: list[str]


@pytest.fixture
def tokens(tmp_path):
    return TokenFile(tmp_path / "tokens" / "sample.json")


@pytest.fixture
def make(tokens):
    """Makes a token and gives the header that shows it: `make("name", "read", "write")`."""

    def create(name, *scopes, **further):
        _, secret = tokens.create(name, scopes=scopes or ["read"], **further)
        return {"Authorization": f"Bearer {secret.get_secret_value()}"}

    return create


@asynccontextmanager
async def guarded(server, tokens, **settings):
    async with (
        serving(server, HttpSettings(port=0, auth=AuthSettings(tokens.path), **settings)) as url,
        httpx2.AsyncClient() as web,
    ):
        yield Asker(web, url)


class Asker:
    """Asks a server in the modern era, as whoever the headers say."""

    def __init__(self, web, url):
        self.web, self.url = web, url

    async def rpc(self, method, headers, *, name="", **params):
        sent = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
            **headers,
        }
        named = {"name": name} if name else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **named, **params}}
        return await self.web.post(self.url, json=body, headers=sent)

    async def call(self, tool, headers, **arguments):
        return await self.rpc("tools/call", headers, name=tool, arguments=arguments)

    async def get(self, path, headers=None):
        return await self.web.get(self.url.replace("/mcp", path), headers=headers or {})


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


async def test_settings_that_ask_nobody_do_not_open_a_network(sample):
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
        "error_description": "This server wants a bearer token.",
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


async def shown(server, line):
    """Waits until a number that the server tells has a value."""
    while f"{line}\n" not in server.metrics.text():  # noqa: ASYNC110 - it tells nobody
        await anyio.sleep(0.01)


async def open_session(ask, headers):
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    answer = await ask.web.post(
        ask.url,
        json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        headers={"Accept": "application/json, text/event-stream", **headers},
    )
    return answer.headers.get("mcp-session-id") or answer


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


async def test_too_many_requests_of_one_token_leave_the_others_alone(sample, tokens, make):
    greedy, other = make("greedy"), make("other")
    async with guarded(sample, tokens, limits=Limits(per_minute=12)) as ask:
        statuses = [(await ask.rpc("tools/list", greedy)) for _ in range(4)]
        assert [answer.status_code for answer in statuses] == [200, 200, 429, 429]
        assert 1 <= int(statuses[-1].headers["retry-after"]) <= 5
        assert (await ask.rpc("tools/list", other)).status_code == 200


async def test_calls_at_a_time_are_limited_by_token(sample, tokens, make):
    greedy, other = make("greedy"), make("other")
    limits = Limits(calls=2)
    async with guarded(sample, tokens, limits=limits) as ask, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(lambda: ask.call("wait", greedy))
        await shown(sample, "loom_http_calls 2")
        refused = await ask.call("query", greedy, query="x")
        served = await ask.call("query", other, query="x")
        tasks.cancel_scope.cancel()

    assert (refused.status_code, refused.json()["error"], served.status_code) == (429, "running", 200)


async def test_sessions_are_limited_by_token_and_freed_by_their_end(sample, tokens, make):
    greedy, other = make("greedy"), make("other")
    async with guarded(sample, tokens, limits=Limits(sessions=3)) as ask:
        opened = [await open_session(ask, greedy) for _ in range(3)]
        refused = await open_session(ask, greedy)
        assert isinstance(await open_session(ask, other), str)
        ended = await ask.web.delete(ask.url, headers={**greedy, "mcp-session-id": opened[0]})
        assert isinstance(await open_session(ask, greedy), str)

    assert (refused.status_code, refused.json()["error"], ended.status_code) == (429, "sessions", 200)


async def test_idle_sessions_end_and_make_room(sample, tokens, make):
    headers = make("laptop")
    async with guarded(sample, tokens, limits=Limits(sessions=1), session_idle_seconds=2.0) as ask:
        first = await open_session(ask, headers)
        assert (await open_session(ask, headers)).status_code == 429
        await shown(sample, "loom_http_sessions 0")
        assert isinstance(await open_session(ask, headers), str)
        sent = {**headers, "mcp-session-id": first, "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await ask.web.post(ask.url, json=body, headers=sent)).status_code == 404


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
    assert 'loom_tool_calls_total{tool="query",outcome="ok"} 1' in answer.text
    assert 'loom_tool_calls_total{tool="fail",outcome="error"} 1' in answer.text
    assert 'loom_tool_seconds_count{tool="query"} 1' in answer.text
    assert 'loom_http_refused_total{reason="no_token"} 1' in answer.text
    assert 'loom_http_refused_total{reason="scope"} 1' in answer.text
    assert answer.text.isascii()
    assert "no_tool_of_ours" not in answer.text


async def test_health_and_readiness_want_no_token(sample, tokens):
    async with guarded(sample, tokens) as ask:
        assert (await ask.get("/healthz")).json()["status"] == "ok"
        assert (await ask.get("/readyz")).json() == {"status": "ready"}


async def test_metrics_are_open_where_nobody_is_asked(sample):
    async with serving(sample) as url, httpx2.AsyncClient() as web:
        assert (await web.get(url.replace("/mcp", "/metrics"))).status_code == 200


async def test_the_log_names_who_was_refused_and_never_the_token(sample, tokens, make, caplog):
    known, expired = make("laptop"), make("old", seconds=-1.0)
    tokens.revoke("laptop")
    async with guarded(sample, tokens) as ask:
        await ask.rpc("tools/list", known)
        await ask.rpc("tools/list", expired)

    assert "refused somebody at 127.0.0.1" in caplog.text
    assert "refused old at 127.0.0.1" in caplog.text
    for headers in (known, expired):
        assert headers["Authorization"].removeprefix("Bearer ") not in caplog.text


async def test_a_slow_body_is_given_up(sample):
    async def drip():
        yield b'{"jsonrpc": '
        await anyio.sleep(5)
        yield b'"2.0"}'

    async with serving(sample, HttpSettings(port=0, body_seconds=0.2)) as url, httpx2.AsyncClient() as web:
        answer = await web.post(url, content=drip(), headers={"Content-Type": "application/json"})

    assert answer.status_code == 408
    assert 'reason="body_time"' in sample.metrics.text()


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_half_open_connection_is_closed(sample, sent):
    async with serving(sample, HttpSettings(port=0, head_seconds=0.3)) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            if sent:
                await connection.send(sent)
            with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await connection.receive()

    assert 'loom_http_refused_total{reason="head_time"} 1' in sample.metrics.text()


async def test_a_slow_second_head_is_given_up_and_an_idle_connection_is_not_cut_early(sample):
    async with serving(sample, HttpSettings(port=0, head_seconds=0.3)) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for _ in range(2):
                await connection.send(ask)
                assert b"200 OK" in await connection.receive()
                await anyio.sleep(0.4)
            await connection.send(ask[:20])
            with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await connection.receive()


async def test_readiness_fails_first_and_running_calls_end(sample, tokens, make):
    @sample.tool(title="Linger", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def linger(seconds: float) -> ToolReply[Done]:
        """Takes its time."""
        await anyio.sleep(seconds)
        return tool_result("done", Done(done=True))

    headers, answers = make("laptop", "read"), []
    async with (
        guarded(sample, tokens, drain_seconds=2.0) as ask,
        anyio.create_task_group() as tasks,
    ):

        async def work():
            answers.append(await ask.call("linger", headers, seconds=3.0))

        tasks.start_soon(work)
        await shown(sample, "loom_http_calls 1")
        signal.raise_signal(signal.SIGTERM)
        assert (await ask.get("/readyz")).status_code == 503
        assert (await ask.get("/healthz")).status_code == 200
        assert (await ask.call("query", headers, query="x")).status_code == 200

    assert answers[0].status_code == 200
    assert answers[0].json()["result"]["isError"] is False


@pytest.mark.parametrize("asked", [True, False])
async def test_a_call_that_outlasts_the_grace_is_told_that_the_server_ends(
    sample, tokens, make, asked, caplog
):
    answers, begun = [], anyio.Event()

    @sample.tool(title="Linger", read_only=True, destructive=False, idempotent=True, open_world=False)
    async def linger() -> ToolReply[Done]:
        """Never ends."""
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    settings = HttpSettings(port=0, auth=AuthSettings(tokens.path) if asked else None, grace_seconds=1)
    async with (
        serving(sample, settings) as url,
        httpx2.AsyncClient() as web,
        anyio.create_task_group() as tasks,
    ):

        async def work():
            answers.append(await Asker(web, url).call("linger", make("laptop", "read") if asked else {}))

        tasks.start_soon(work)
        await begun.wait()
        signal.raise_signal(signal.SIGTERM)

    assert (answers[0].status_code, answers[0].json()["error"]) == (503, "ending")
    assert "retry-after" in answers[0].headers
    assert "what ran for a client was ended (ending)" in caplog.text
    assert "Exception in ASGI application" not in caplog.text
