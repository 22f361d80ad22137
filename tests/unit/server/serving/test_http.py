from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import Client, MCPError

from loom_core.errors import ConfigError, StoreError
from loom_core.server.auth.authentication import AuthSettings
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_app import http_app
from loom_core.server.serving.http_settings import HttpSettings
from tests.fixtures.serving import serving
from tests.unit.server.sample import sample_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "server/discover",
}


async def post(url, host=None, origin=None, **headers):
    given = {"Host": host, "Origin": origin}
    async with httpx2.AsyncClient() as client:
        sent = {**HEADERS, **headers, **{name: value for name, value in given.items() if value}}
        return await client.post(url, json=DISCOVER, headers=sent)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_both_eras_are_served(mode):
    log, seen = [], []

    async def on_progress(value, total, message):
        seen.append(message)

    async with serving(sample_server(log)) as url, Client(url, mode=mode) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("work", {"steps": 2}, progress_callback=on_progress)
        document = await client.read_resource("loom://产品文档/一")

    assert tools[0].name == "query"
    assert not result.is_error
    assert seen[-1] == "step 2"
    assert document.contents[0].text == "你好，世界"
    assert log == ["opened", "closed"]


async def test_a_legacy_client_is_notified_of_changes(sample):
    changed = anyio.Event()

    async def on_message(message):
        changed.set()

    async with (
        serving(sample) as url,
        Client(url, mode="legacy", message_handler=on_message) as watching,
        Client(url, mode="legacy") as acting,
    ):
        await watching.list_tools()
        await acting.call_tool("add", {"name": "more"})
        await changed.wait()


async def test_health_is_told_without_a_session(sample):
    async with serving(sample) as url, httpx2.AsyncClient() as client:
        response = await client.get(url.replace("/mcp", "/healthz"))

    assert response.json() == {"status": "ok", "name": "sample", "version": "1.2.3"}


async def test_this_machine_is_known_by_its_names_with_any_port(sample):
    async with serving(sample) as url:
        for host in ("localhost", "127.0.0.1", "[::1]", "localhost:9", "127.0.0.1:9", "[::1]:9"):
            assert (await post(url, host=host)).status_code == 200
            assert (await post(url, origin=f"http://{host}")).status_code == 200


@pytest.mark.hostile("HTTP requests")
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_foreign_host_or_origin_is_refused_in_both_eras(sample, version):
    era = {"MCP-Protocol-Version": version}
    async with serving(sample) as url:
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "kb.example"):
            assert (await post(url, host=host, **era)).status_code == 421
        for origin in ("https://evil.example", "http://localhost.evil.example", "null", "file://"):
            assert (await post(url, origin=origin, **era)).status_code == 403


@pytest.mark.hostile("HTTP requests")
async def test_health_is_not_told_to_a_foreign_host_or_origin(sample):
    async with serving(sample) as url, httpx2.AsyncClient() as client:
        health = url.replace("/mcp", "/healthz")
        assert (await client.get(health, headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get(health, headers={"Origin": "https://evil.example"})).status_code == 403


async def test_the_name_of_a_proxy_can_be_allowed(sample):
    async with serving(sample, HttpSettings(port=0, allowed_hosts=("kb.example",))) as url:
        assert (await post(url, host="kb.example", origin="https://kb.example")).status_code == 200
        assert (await post(url, host="kb.example:8443")).status_code == 200
        assert (await post(url, host="other.example")).status_code == 421


async def test_a_body_beyond_the_limit_is_refused(sample):
    async with serving(sample, HttpSettings(port=0, max_body_bytes=100)) as url:
        assert (await post(url)).status_code == 413


async def test_a_refusal_after_the_whole_body_waits_for_nothing_more(sample):
    told = []

    async def receive():
        assert not told, "the body is complete"
        told.append(b"{}")
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        told.append(message.get("status"))

    named = {"host": "127.0.0.1", "mcp-session-id": "gone", "mcp-protocol-version": "2025-11-25"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    await http_app(sample, HttpSettings())(scope, receive, send)
    assert told == [b"{}", 404, None]


async def test_the_path_can_be_chosen(sample):
    async with serving(sample, HttpSettings(port=0, path="/kb")) as url, Client(url) as client:
        assert url.endswith("/kb")
        assert (await client.list_tools()).tools


async def test_the_loopback_address_of_ipv6_is_served(sample):
    async with serving(sample, HttpSettings(port=0, host="::1")) as url, Client(url) as client:
        assert url.startswith("http://[::1]:")
        assert (await client.list_tools()).tools


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "kb.example", ""])
async def test_other_addresses_are_refused_with_advice(sample, host):
    with pytest.raises(ConfigError, match="without authentication") as raised:
        await serve_http(sample, HttpSettings(host=host))

    assert "TLS proxy" in raised.value.advice
    assert "SSH tunnel" in raised.value.advice


async def test_a_port_in_use_is_named(sample):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} of 127\.0\.0\.1: Address already in use"
        ) as raised:
            await serve_http(sample, HttpSettings(host="localhost", port=port))

    assert "choose another port" in raised.value.advice


async def test_an_address_of_another_machine_is_named(sample, tmp_path):
    settings = HttpSettings(port=0, host="192.0.2.1", auth=AuthSettings(tmp_path / "tokens.json"))
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1: Cannot assign") as raised:
        await serve_http(sample, settings)

    assert "an address of this machine" in raised.value.advice


async def test_a_number_that_is_no_port_is_a_configuration_error(sample):
    with pytest.raises(ConfigError, match="70000 is not a TCP port"):
        await serve_http(sample, HttpSettings(port=70_000))


async def test_a_lifespan_that_cannot_be_opened_is_raised_as_it_is():
    @asynccontextmanager
    async def lifespan():
        raise StoreError("The record was written by a newer version.")
        yield

    server = LoomServer("unopenable", version="1", title="Unopenable", lifespan=lifespan)
    with pytest.raises(StoreError, match="a newer version"):
        await serve_http(server, HttpSettings(port=0))


@pytest.mark.parametrize(("mode", "number"), [("legacy", signal.SIGTERM), ("auto", signal.SIGINT)])
def test_a_signal_ends_the_process_though_streams_are_open_and_a_call_goes_on(
    sample_command, tmp_path, mode, number
):
    log = tmp_path / "log"
    environment = {**os.environ, "SAMPLE_LOG": str(log)}
    with subprocess.Popen([*sample_command, "http", "0"], stderr=subprocess.PIPE, env=environment) as process:
        try:
            url = next(line for line in map(bytes.decode, process.stderr) if "listening on" in line).split()[
                -1
            ]
            anyio.run(_end, process, url, mode, number)
        finally:
            process.kill()

    assert process.returncode == 0
    assert log.read_text().split() == ["opened", url, "closed"]


def test_a_second_interrupt_ends_it_at_once_and_quietly(sample_command, tmp_path):
    log = tmp_path / "log"
    environment = {**os.environ, "SAMPLE_LOG": str(log)}
    with subprocess.Popen([*sample_command, "http", "0"], stderr=subprocess.PIPE, env=environment) as process:
        lines = map(bytes.decode, process.stderr)
        try:
            url = next(line for line in lines if "listening on" in line).split()[-1]
            anyio.run(_end, process, url, "legacy", signal.SIGINT, lines)
            said = [line for line in lines if "Traceback" in line or "Error" in line]
        finally:
            process.kill()

    assert (process.returncode, said) == (130, [])
    assert log.read_text().split() == ["opened", url, "closed"]


async def _end(process, url, mode, number, lines=()):
    """Signals a server that holds a stream of change notifications open and is running a call, until it ends.

    With the lines of its log, it gets the signal again as soon as it says that it waits for the call.
    """
    with anyio.fail_after(60), contextlib.suppress(ExceptionGroup, MCPError):
        async with Client(url, mode=mode) as client, anyio.create_task_group() as tasks:
            if mode == "auto":
                await tasks.start(_listen, client)
            tasks.start_soon(client.call_tool, "wait", {})
            await client.list_tools()
            process.send_signal(number)
            if any("Waiting for" in line for line in lines):
                process.send_signal(number)
            await anyio.to_thread.run_sync(process.wait, 30)
            tasks.cancel_scope.cancel()


async def _listen(client, *, task_status):
    async with client.listen(tools_list_changed=True) as events:
        task_status.started()
        async for _ in events:
            raise AssertionError
