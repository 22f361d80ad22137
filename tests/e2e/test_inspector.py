"""The MCP Inspector against each server: schemas that every host can use, and a call that works.

Over stdio and HTTP, and in both eras: each transport with each era, at one of two servers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import node as nodejs

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "typescript"
FULL = ["query", "fetch", "sources", "add", "remove", "job", "job_cancel", "graph"]
AGENT = [
    "agent_run",
    "agent_wait",
    "agent_reply",
    "agent_decide",
    "agent_control",
    "agent_runs",
    "agent_events",
    "tool_search",
]
FLOW = ["flow_chat", "flow_run", "flow_resume", "flow_list", "flow_explain", "flow_status"]


@pytest.fixture(scope="module")
def inspector() -> list[str]:
    """The command, without what it is to do."""
    program = nodejs.node(least=(22, 19))
    return [program, str(nodejs.installed(SOURCES) / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]


@pytest.fixture
def inspect(inspector: list[str], tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Runs it to its end; gives the server's result, and what was written to standard error."""

    def run(target: list[str], *options: str) -> tuple[dict[str, Any], str]:
        environment = {**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1"}
        done = subprocess.run(
            [*inspector, *target, *options, "--format", "json", "-q"],
            capture_output=True,
            encoding="utf-8",
            env=environment,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["result"], done.stderr

    return run


@pytest.fixture
def target(request: pytest.FixtureRequest, home: Path) -> list[str]:
    if request.param == "http":
        return [request.getfixturevalue("http_url"), "--transport", "http"]
    return [sys.executable, "-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]


@pytest.mark.parametrize(
    ("target", "era"),
    [("stdio", "legacy"), ("http", "modern")],
    indirect=["target"],
)
def test_every_host_can_use_the_schemas_and_a_tool_answers(era, target, inspect):
    listed, told = inspect(target, "--method", "tools/list", "--strict", "--protocol-era", era)
    assert [tool["name"] for tool in listed["tools"]] == FULL
    assert portable(told)
    note = json.dumps({"text": "# 青岛港\n\n青岛港的港长是李明。", "source": "知识库"}, ensure_ascii=False)
    call = ("--method", "tools/call", "--tool-name", "add", "--tool-args-json", note)
    added, _ = inspect(target, *call, "--protocol-era", era)
    job = added["structuredContent"]["job"]
    assert (job["source"], job["total"]) == ("知识库", 1)
    assert job["state"] in {"queued", "running", "done"}, "done unless the machine is slow"


@pytest.mark.parametrize(("transport", "era"), [("stdio", "modern"), ("http", "legacy")])
def test_every_host_can_use_the_query_server(transport, era, inspect, loom_query, stand_in, request):
    if transport == "http":
        target = [request.getfixturevalue("query_url"), "--transport", "http"]
    else:
        target = stand_in(loom_query)
    listed, told = inspect(target, "--method", "tools/list", "--strict", "--protocol-era", era)
    assert [tool["name"] for tool in listed["tools"]] == ["query", "fetch", "sources", "ask"]
    assert portable(told)
    asked = json.dumps({"query": "青岛港的港长是谁？"}, ensure_ascii=False)
    call = ("--method", "tools/call", "--tool-name", "query", "--tool-args-json", asked)
    found, _ = inspect(target, *call, "--protocol-era", era)
    assert "李明" in found["structuredContent"]["passages"][0]["text"]


@pytest.mark.parametrize("module", ["loom_kb", "loom_query"])
def test_every_host_can_use_what_chatgpt_sees(module, home, inspect, stand_in):
    target = stand_in([sys.executable, "-m", module, "--home", str(home), "--profile", "chatgpt"])
    listed, told = inspect(target, "--method", "tools/list", "--strict", "--protocol-era", "modern")
    assert [tool["name"] for tool in listed["tools"]] == ["search", "fetch"]
    assert portable(told)


@pytest.mark.parametrize(("module", "tools"), [("loom_agent", AGENT), ("loom_flow", FLOW)])
def test_every_host_can_use_the_servers_of_runs(module, tools, home, inspect, stand_in):
    target = stand_in([sys.executable, "-m", module, "--home", str(home)])
    listed, told = inspect(target, "--method", "tools/list", "--strict", "--protocol-era", "modern")
    assert [tool["name"] for tool in listed["tools"]] == tools
    assert portable(told)


def portable(told: str) -> bool:
    """Whether the check of schemas found nothing, not even what only some hosts cannot use."""
    return "Warning: tool" not in told and "Error: tool" not in told
