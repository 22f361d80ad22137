"""`loom-agent-server` as a process: both eras over stdio, hosts that go, servers that are killed, HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
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

_COMMAND = [sys.executable, "-m", "loom_agent"]
_TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
_FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

Start = Callable[..., "StdioServer"]


@pytest.fixture
def start(stdio_server: Callable[..., StdioServer], home: Path) -> Start:
    """Starts `loom-agent-server` with the demonstration; it ends with the test."""

    def start(*options: str | Path, era: Era = "modern") -> StdioServer:
        command = [*_COMMAND, "--home", home, "--provider", "mock", *options]
        return stdio_server(list(map(str, command)), era=era, timeout=60.0)

    return start


def answered(server: StdioServer, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a tool's answer, which is no error."""
    result = server.call(tool, **arguments)
    assert not result.get("isError"), result
    return result["structuredContent"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_model_whose_client_cannot_ask_is_told_to_ask_itself(start: Start, era: Era) -> None:
    server = start(era=era)
    run = answered(server, "agent_run", goal="请记一条笔记：灯塔")
    assert run["status"] == "input_required"
    decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
    done = answered(server, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert done["status"] == "completed"
    assert "灯塔" in done["output"]
    assert server.close_input() == 0


def test_a_client_of_round_trips_answers_by_making_the_call_again(start: Start) -> None:
    server = start()
    call = {"name": "agent_run", "arguments": {"goal": "note that"}, "_meta": _FORMS}
    asked = server.request("tools/call", call)
    assert asked["resultType"] == "input_required"
    ((name, request),) = asked["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    assert "keep_note" in request["params"]["message"]
    again = {
        **call,
        "requestState": asked["requestState"],
        "inputResponses": {name: {"action": "accept", "content": {}}},
    }
    done = server.request("tools/call", again)["structuredContent"]
    assert done["status"] == "completed"
    assert len(answered(server, "agent_runs")["runs"]) == 1


def test_a_long_run_is_a_task_for_clients_that_know_tasks_and_can_be_called_off(
    start: Start, until: Callable[..., Any]
) -> None:
    server = start()
    call = {"name": "agent_run", "arguments": {"goal": "wait 60"}, "_meta": _TASKS}
    created = server.request("tools/call", call)
    assert created["resultType"] == "task"
    assert created["statusMessage"].startswith("run_")
    about = {"taskId": created["taskId"], "_meta": _TASKS}
    server.request("tasks/cancel", about)
    until(lambda: server.request("tasks/get", about)["status"] == "cancelled")
    (run,) = answered(server, "agent_runs")["runs"]
    assert answered(server, "agent_wait", run_id=run["run_id"])["status"] == "aborted"


def test_who_calls_off_a_task_that_only_waits_leaves_the_run_going(
    start: Start, until: Callable[..., Any]
) -> None:
    server = start()
    run = answered(server, "agent_run", goal="wait 5", wait_seconds=0)
    call = {"name": "agent_wait", "arguments": {"run_id": run["run_id"]}, "_meta": _TASKS}
    about = {"taskId": server.request("tools/call", call)["taskId"], "_meta": _TASKS}
    server.request("tasks/cancel", about)
    until(lambda: server.request("tasks/get", about)["status"] == "cancelled")
    assert answered(server, "agent_wait", run_id=run["run_id"])["status"] == "completed"


def test_a_run_goes_on_when_its_server_is_killed_and_started_again(
    start: Start, tmp_path: Path, until: Callable[..., Any]
) -> None:
    server = start()
    run = answered(server, "agent_run", goal="wait 2", wait_seconds=0)
    until(lambda: _has(server, run["run_id"], "tool_start"))
    server.terminate(signal.SIGKILL)
    again = start()
    done = answered(again, "agent_wait", run_id=run["run_id"], after_seq=run["last_seq"])
    assert done["status"] == "completed"
    assert "Waited 2 s." in done["output"]
    types = _types(again, run["run_id"])
    assert types.count("request_start") == types.count("agent_finish") == 1
    assert types.count("model_start") == 2, "what the model had said is not asked for again"


def test_a_call_that_may_have_been_made_is_not_made_again_without_a_word(
    start: Start, home: Path, until: Callable[..., Any]
) -> None:
    shell = {"enabled": True, "root": str(home)}
    profile = {"model": "mock", "tools": {"shell": shell}}
    home.mkdir()
    (home / "agent.json").write_text(json.dumps({"profiles": {"default": profile}}), encoding="utf-8")
    server = start()
    marked = home / "marks"
    command = "echo x >> marks; sleep 30"
    run = answered(server, "agent_run", goal=f"use shell {json.dumps({'command': command})}")
    approve = [{"id": run["pending"][0]["id"], "action": "approve"}]
    answered(server, "agent_decide", run_id=run["run_id"], decisions=approve, wait_seconds=0)
    until(marked.exists)
    server.terminate(signal.SIGKILL)
    again = start()
    waiting = answered(again, "agent_wait", run_id=run["run_id"], after_seq=run["last_seq"] + 2)
    assert waiting["status"] == "input_required"
    assert [each["kind"] for each in waiting["pending"]] == ["unknown"]
    deny = [{"id": waiting["pending"][0]["id"], "action": "deny"}]
    done = answered(again, "agent_decide", run_id=run["run_id"], decisions=deny)
    assert done["status"] == "completed"
    assert "not known whether the call took effect" in done["output"]
    assert marked.read_text(encoding="utf-8") == "x\n"


def test_a_run_outlives_its_host_where_another_server_is_there(start: Start) -> None:
    first, second = start(), start(era="legacy")
    answered(second, "agent_runs")
    run = answered(first, "agent_run", goal="wait 1.5", wait_seconds=0)
    assert first.close_input() == 0
    done = answered(second, "agent_wait", run_id=run["run_id"])
    assert done["status"] == "completed"


def test_a_server_without_a_model_starts_and_says_what_to_set(
    stdio_server: Callable[..., StdioServer], home: Path
) -> None:
    server = stdio_server([*_COMMAND, "--home", str(home)], env={"PATH": ""}, timeout=60.0)
    assert len(server.request("tools/list")["tools"]) == 8
    refused = server.call("agent_run", goal="What time is it?")
    assert refused["isError"]
    assert "DEEPSEEK_API_KEY" in refused["content"][0]["text"]
    assert server.close_input() == 0


def test_a_broken_configuration_is_told_with_its_place_before_anything_is_served(home: Path) -> None:
    home.mkdir()
    (home / "agent.json").write_text('{"profiles": {"a": {"modle": "x"}}}', encoding="utf-8")
    done = subprocess.run(
        [*_COMMAND, "serve", "--home", str(home)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "agent.json:1:21: profiles.a.modle is not known here." in done.stderr
    assert done.stdout == ""


def _types(server: StdioServer, run_id: str) -> list[str]:
    events = answered(server, "agent_events", run_id=run_id, limit=500)["events"]
    return [event["type"] for event in events]


def _has(server: StdioServer, run_id: str, type_: str) -> bool:
    return type_ in _types(server, run_id)


@pytest.fixture
def http(home: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of `serve --http --tokens`, and two tokens by the names of their holders."""
    tokens: dict[str, str] = {}
    for name in ("ada", "bob"):
        line = ["token", "create", name, "--scope", "read", "--scope", "write", "--home", home]
        tokens[name] = run_command("loom_agent", *line, check=True).stdout.decode().strip()
    command = [
        *_COMMAND,
        "serve",
        "--http",
        "--port",
        "0",
        "--tokens",
        "--provider",
        "mock",
        "--home",
        str(home),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        yield (
            next(line for line in process.stderr if line.startswith("loom-agent-server serves ")).split()[2],
            tokens,
        )
    finally:
        process.terminate()
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0, rest


@pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_a_run_is_its_callers_and_decided_by_its_user_not_by_a_tool(
    http: tuple[str, dict[str, str]], mode: Any
) -> None:
    url, tokens = http
    asked: list[str] = []

    async def agree(_context: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    @asynccontextmanager
    async def client(name: str, **options: Any) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as connections:
            transport = streamable_http_client(url, http_client=connections)
            async with Client(transport, mode=mode, **options) as connected:
                yield connected

    with anyio.fail_after(60):
        async with client("ada") as ada:
            run = (await ada.call_tool("agent_run", {"goal": "请记一条笔记"})).structured_content
            assert run["status"] == "input_required"
            decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
            refused = await ada.call_tool("agent_decide", {"run_id": run["run_id"], "decisions": decisions})
            assert refused.is_error
        async with client("bob") as bob:
            assert (await bob.call_tool("agent_runs", {})).structured_content == {"runs": []}
            hidden = await bob.call_tool("agent_wait", {"run_id": run["run_id"]})
            assert hidden.content[0].text.startswith("There is no run")
        async with client("ada", elicitation_callback=agree) as ada:
            done = (await ada.call_tool("agent_wait", {"run_id": run["run_id"]})).structured_content
    assert done["status"] == "completed"
    assert len(asked) == 1
