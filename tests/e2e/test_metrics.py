"""The numbers of real servers: over HTTP, and in a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.commands import run_command

if TYPE_CHECKING:
    from tests.e2e.conftest import StartServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")


class Numbers:
    """A server's metrics, as Prometheus's parser reads them."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.kinds = {family.name: family.type for family in families}
        self._values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """A number, 0 if there is none."""
        return self._values.get((name, tuple(sorted(labels.items()))), 0.0)


@pytest.fixture
def flow_file(home: Path) -> Path:
    """A file with flows, without which the flow server does not start."""
    run_command("loom_flow", "init", "--home", home, check=True)
    return home / "flow.json"


@contextmanager
def serving(module: str, *options: str) -> Iterator[str]:
    """The URL of a server on HTTP."""
    command = [sys.executable, "-m", module, "serve", "--http", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stderr is not None
    try:
        yield next(line for line in process.stderr if " serves http" in line).split()[2]
    finally:
        process.terminate()
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0, rest


async def told(url: str) -> Numbers:
    async with httpx2.AsyncClient(timeout=30) as web:
        answer = await web.get(url.replace("/mcp", "/metrics"))
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Numbers(answer.text)


async def test_the_agents_of_a_server_over_http_are_counted(home: Path) -> None:
    with serving("loom_agent", "--provider", "mock", "--home", str(home)) as url, anyio.fail_after(90):
        before = await told(url)
        assert before("loom_iterations_total") == before("loom_llm_calls_total") == 0
        assert before.kinds["loom_iteration_duration_seconds"] == "histogram"
        assert before.kinds["loom_tool_calls"] == "counter"
        async with (
            httpx2.AsyncClient(timeout=60) as web,
            Client(streamable_http_client(url, http_client=web)) as client,
        ):
            goal = 'use clock {} and use a_tool_that_is_not_there {"城市": "青岛"}'
            run = (await client.call_tool("agent_run", {"goal": goal})).structured_content
            assert run["status"] == "completed"
            waiting = (await client.call_tool("agent_run", {"goal": "请记一条笔记"})).structured_content
            assert waiting["status"] == "input_required"
            numbers = await told(url)
            assert numbers("loom_active_agents") == 0, "who waits for a person is not worked on"
            aborted = {"run_id": waiting["run_id"], "action": "abort"}
            assert not (await client.call_tool("agent_control", aborted)).is_error
            waiting = {"run_id": waiting["run_id"]}
            assert (await client.call_tool("agent_wait", waiting)).structured_content["status"] == "aborted"
        numbers = await told(url)
    assert numbers("loom_build_info", server="loom-agent-server", version=_version()) == 1
    assert numbers("loom_iterations_total") == numbers("loom_llm_calls_total") == 3
    assert numbers("loom_iteration_duration_seconds_count") >= 2
    assert numbers("loom_llm_call_duration_seconds_count", provider="mock", model="demonstration") == 3
    assert numbers("loom_llm_tokens_total", provider="mock", model="demonstration", kind="output") > 0
    assert numbers("loom_tool_calls_total", tool_name="clock", status="success") == 1
    assert numbers("loom_tool_execution_duration_seconds_count", tool_name="clock") == 1
    assert numbers("loom_tool_calls_total", tool_name="unknown", status="error") == 1
    assert numbers("loom_runs_total", kind="agent", status="completed") == 1
    assert numbers("loom_runs_total", kind="agent", status="aborted") == 1
    assert numbers("loom_mcp_calls_total", tool_name="agent_run", status="success") == 2
    assert numbers("loom_active_agents") == 0


def test_a_knowledge_base_over_stdio_keeps_its_numbers_in_a_file(
    start_kb: StartServer, tmp_path: Path, until: Callable[..., object]
) -> None:
    path = tmp_path / "loom-kb.prom"
    server = start_kb("--metrics-file", path)
    server.call("sources")
    assert "loom_mcp_calls_total" in path.read_text(encoding="utf-8"), "it is there from the beginning"
    added = server.call("add", text="# 灯塔\n\n青岛的灯塔是红色的。", source="笔记")
    assert not added.get("isError"), added
    for _ in range(2):
        assert "红色" in server.call("query", query="灯塔是什么颜色？", source="笔记")["content"][0]["text"]
    assert server.close_input() == 0
    numbers = Numbers(path.read_text(encoding="utf-8"))
    of = {"loom_server": "loom-kb"}
    assert numbers("loom_mcp_calls_total", tool_name="query", status="success", **of) == 2
    assert numbers("loom_mcp_call_duration_seconds_count", tool_name="query", **of) == 2
    assert numbers("loom_ingest_documents_total", outcome="added", **of) == 1
    assert numbers("loom_ingest_chunks_total", **of) >= 1
    assert numbers("loom_knowledge_search_duration_seconds_count", strategy="hybrid", **of) == 2
    assert numbers("loom_knowledge_channel_duration_seconds_count", channel="lexical", **of) == 2
    assert [each.name for each in tmp_path.glob("*.new")] == []


def test_the_environment_may_name_the_file(
    start_kb: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_METRICS_FILE", str(tmp_path / "loom-{pid}.prom"))
    server = start_kb()
    server.call("sources")
    (path,) = tmp_path.glob("loom-*.prom")
    pid = path.stem.removeprefix("loom-")
    assert f'loom_active_agents{{loom_server="loom-kb",pid="{pid}"}} 0\n' in path.read_text(encoding="utf-8")
    assert server.close_input() == 0
    assert not path.exists(), "it goes with its process"


def test_a_file_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loom_query", "--metrics-file", str(tmp_path / "no" / "loom.prom")]
    done = subprocess.run(
        [*command, "--home", str(tmp_path)], input=b"", capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert b"loom.prom cannot be written" in done.stderr


@pytest.mark.parametrize("module", ["loom_kb", "loom_query", "loom_flow"])
async def test_every_server_tells_the_same_names(module: str, home: Path, flow_file: Path) -> None:
    with serving(module, "--home", str(home)) as url, anyio.fail_after(60):
        numbers = await told(url)
    assert {"loom_tool_calls", "loom_active_agents", "loom_knowledge_search_duration_seconds"} <= set(
        numbers.kinds
    )


def _version() -> str:
    from importlib.metadata import version

    return version("loom-agent-server")
