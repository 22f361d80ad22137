"""`loom-flow-server` as a process: both eras over stdio, servers that are killed, HTTP with tokens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.fixtures.commands import run_command

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import Era, StdioServer

pytestmark = pytest.mark.slow

_COMMAND = [sys.executable, "-m", "loom_flow"]
_EXAMPLE = Path(__file__).parents[2] / "examples" / "flow_company"
_FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

Start = Callable[..., "StdioServer"]


@pytest.fixture
def config(home: Path, company: str) -> Path:
    home.mkdir()
    text = (_EXAMPLE / "flow.json").read_text(encoding="utf-8").replace("http://127.0.0.1:8787", company)
    (home / "flow.json").write_text(text, encoding="utf-8")
    return home / "flow.json"


@pytest.fixture
def start(stdio_server: Callable[..., StdioServer], home: Path, config: Path) -> Start:
    """Starts `loom-flow-server` with the example's flows; it ends with the test."""
    assert config.exists()

    def start(*options: str | Path, era: Era = "modern") -> StdioServer:
        command = [*_COMMAND, "--home", home, *options]
        return stdio_server(list(map(str, command)), era=era, timeout=60.0)

    return start


def answered(server: StdioServer, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a tool's answer, which is no error."""
    result = server.call(tool, **arguments)
    assert not result.get("isError"), result
    return result["structuredContent"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_that_cannot_ask_passes_on_what_the_user_says(start: Start, era: Era, effects) -> None:
    server = start(era=era)
    reply = answered(server, "flow_chat", message="我想请三天假")
    session = reply["session_id"]
    for said in ("2027年3月1日", "是"):
        reply = answered(server, "flow_chat", message=said, session_id=session)
    assert reply["status"] == "completed"
    assert reply["structured"]["number"].startswith("LV-")
    assert effects() == ["leave", "notification"]
    assert server.close_input() == 0


def test_a_client_of_round_trips_answers_by_making_the_call_again(start: Start, effects) -> None:
    server = start()
    call = {"name": "leave_request", "arguments": {"days": 2}, "_meta": _FORMS}
    asked = server.request("tools/call", call)
    contents: list[dict[str, Any]] = [{"start": "2027-03-01"}, {}]
    while asked.get("resultType") == "input_required":
        ((name, request),) = asked["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        again = {
            **call,
            "requestState": asked["requestState"],
            "inputResponses": {name: {"action": "accept", "content": contents.pop(0)}},
        }
        asked = server.request("tools/call", again)
    assert asked["structuredContent"]["status"] == "completed"
    assert effects() == ["leave", "notification"]


def test_a_killed_server_leaves_a_conversation_that_the_next_one_goes_on_with(start: Start, effects) -> None:
    server = start()
    reply = answered(server, "flow_chat", message="我想请三天假")
    confirm = answered(server, "flow_chat", message="2027年3月1日", session_id=reply["session_id"])
    assert confirm["pending"][0]["kind"] == "approval"
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(30)
    other = start(era="legacy")
    listed = answered(other, "flow_list")["unfinished"]
    assert [run["run_id"] for run in listed] == [reply["run_id"]]
    done = answered(other, "flow_resume", run_id=reply["run_id"], action="approve")
    assert done["status"] == "completed", done
    assert effects() == ["leave", "notification"]


def test_a_request_that_was_under_way_when_the_server_was_killed_is_not_sent_twice(
    start: Start, home: Path, tmp_path: Path, until: Callable[..., Any]
) -> None:
    sent = tmp_path / "sent"
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import http.server, pathlib, sys, time\n"
        f"sent = pathlib.Path({str(sent)!r})\n"
        "class Slow(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        sent.open('a').write('x')\n"
        "        time.sleep(60)\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Slow)\n"
        "print(server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )
    process = subprocess.Popen([sys.executable, str(slow)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        flow = {"flow_id": "pay", "endpoint": f"POST http://127.0.0.1:{port}/pay"}
        file = {"flows": [flow], "net": {"allow": ["127.0.0.1"]}}
        (home / "flow.json").write_text(json.dumps(file), encoding="utf-8")
        server = start()
        run = answered(server, "flow_run", flow_id="pay", wait_seconds=0)
        until(lambda: sent.exists() and sent.read_text(), what="the request")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(30)
        other = start()
        asked = answered(other, "flow_resume", run_id=run["run_id"], wait_seconds=30)
        assert asked["status"] == "input_required"
        assert asked["pending"][0]["kind"] == "unknown"
        answered(other, "flow_resume", run_id=run["run_id"], action="deny", wait_seconds=30)
        assert sent.read_text() == "x"
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait(30)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http_a_run_belongs_to_the_token_that_began_it(
    home: Path, config: Path, served: Callable[..., Any], mode: Any
) -> None:
    def token(name: str, *options: str) -> str:
        done = run_command("loom_flow", "token", "create", name, "--home", home, *options, check=True)
        return done.stdout.decode().strip()

    tokens = {"ada": token("ada"), "bob": token("bob", "--flow", "order_status")}
    asked: list[str] = []

    async def user(_context: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"start": "2027-03-01"} if len(asked) == 1 else {})

    async def talk(url: str) -> None:
        @asynccontextmanager
        async def client(name: str, **options: Any) -> AsyncGenerator[Client]:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as connections:
                transport = streamable_http_client(url, http_client=connections)
                async with Client(transport, mode=mode, **options) as connected:
                    yield connected

        async with client("ada", elicitation_callback=user) as ada:
            run = (await ada.call_tool("flow_chat", {"message": "我想请三天假"})).structured_content
            assert run["status"] == "completed"
        async with client("bob") as bob:
            tools = {tool.name for tool in (await bob.list_tools()).tools}
            assert "order_status" in tools
            assert "leave_request" not in tools
            assert (await bob.call_tool("flow_status", {"run_id": run["run_id"]})).is_error
            assert (await bob.call_tool("flow_run", {"flow_id": "leave_request"})).is_error
            done = await bob.call_tool("order_status", {"order_id": "BO20418"})
            assert done.structured_content["status"] == "completed"

    assert config.exists()
    with served([*_COMMAND, "serve", "--home", str(home), "--tokens"], "loom-flow-server") as url:
        anyio.run(talk, url)
    assert len(asked) == 2


def test_over_http_a_token_acts_for_its_tenant_whatever_a_call_says(
    home: Path, served: Callable[..., Any]
) -> None:
    def token(name: str, *options: str) -> str:
        done = run_command("loom_flow", "token", "create", name, "--home", home, *options, check=True)
        return done.stdout.decode().strip()

    home.mkdir()
    steps = [{"stepId": "sure", "confirm": "{$context.tenantId}/{$context.employeeId}?"}]
    flow = {"flow_id": "move", "trigger_patterns": ["搬家"], "steps": steps}
    (home / "flow.json").write_text(json.dumps({"flows": [flow]}), encoding="utf-8")
    tokens = {name: token(name, "--context", f"tenantId={name}") for name in ("甲", "乙")}
    said = {"tenantId": "甲", "employeeId": "E1"}

    async def talk(url: str) -> None:
        for name, secret in tokens.items():
            headers = {"Authorization": f"Bearer {secret}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as connections,
                Client(streamable_http_client(url, http_client=connections)) as client,
            ):
                chat = await client.call_tool("flow_chat", {"message": "搬家", "context": said})
                run = await client.call_tool("flow_run", {"flow_id": "move", "context": said})
                for answer in (chat, run):
                    assert f"{name}/E1?" in answer.structured_content["pending"][0]["reason"]

    with served([*_COMMAND, "serve", "--home", str(home), "--tokens"], "loom-flow-server") as url:
        anyio.run(talk, url)
