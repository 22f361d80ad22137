"""Quotas per token on HTTP: requests, concurrent calls, sessions, time."""

from __future__ import annotations

import signal
import sys

import anyio
import httpx2
import pytest
from pydantic import BaseModel

from loom_core.server.auth.authentication import AuthSettings
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.limits import Limits
from tests.fixtures.asker import Asker, guarded, open_session, shown
from tests.fixtures.serving import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]


class Done(BaseModel):
    done: bool


@pytest.mark.hostile("HTTP requests")
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


@pytest.mark.hostile("HTTP requests")
async def test_a_call_whose_client_disconnects_or_calls_it_a_stream_counts_as_one(sample, tokens, make):
    greedy = make("greedy")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    async with guarded(sample, tokens, limits=Limits(calls=1)) as ask:
        session = await open_session(ask, greedy)
        await shown(sample, "loom_http_calls 0")
        sent = {**greedy, "mcp-session-id": session, "Accept": "application/json, text/event-stream"}
        with pytest.raises(httpx2.ReadTimeout):
            await ask.web.post(ask.url, json=call, headers=sent, timeout=0.2)
        await shown(sample, "loom_http_calls 1")
        named = {**sent, "Mcp-Method": "subscriptions/listen"}
        for headers in (sent, named):
            refused = await ask.web.post(ask.url, json={**call, "id": 3}, headers=headers)
            assert (refused.status_code, refused.json()["error"]) == (429, "running")


async def test_what_may_end_a_call_needs_no_slot(sample, tokens, make):
    headers, answers = make("laptop"), []
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    response = {"jsonrpc": "2.0", "id": 3, "result": {}}
    async with guarded(sample, tokens, limits=Limits(calls=1)) as ask, anyio.create_task_group() as tasks:
        session = await open_session(ask, headers)
        await shown(sample, "loom_http_calls 0")
        sent = {**headers, "mcp-session-id": session, "Accept": "application/json, text/event-stream"}

        async def wait():
            answers.append(await ask.web.post(ask.url, json=call, headers=sent))

        tasks.start_soon(wait)
        await shown(sample, "loom_http_calls 1")
        for message in (response, cancel):
            assert (await ask.web.post(ask.url, json=message, headers=sent)).status_code == 202
        await shown(sample, "loom_http_calls 0")
        assert (await ask.web.delete(ask.url, headers=sent)).status_code == 200

    assert "Request cancelled" in answers[0].text


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


@pytest.mark.hostile("HTTP requests")
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
            with anyio.fail_after(30), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await connection.receive()

    assert 'loom_http_refused_total{reason="head_time"} 1' in sample.metrics.text()


@pytest.mark.hostile("HTTP requests")
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
            with anyio.fail_after(30), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
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
