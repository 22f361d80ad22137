"""Calls that another server continues as tasks: they survive the process of the run, which waits on."""

from __future__ import annotations

import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from loom_core.agent import Abort, Agent, Journal
from loom_core.mcp_client import MCPToolRegistry
from loom_core.testing import MockLLM, call
from loom_core.tools.execution.scheduler import Scheduler
from tests.fixtures.fork_server import starts_quickly
from tests.fixtures.task_server import TaskServer, task_entry

pytestmark = pytest.mark.slow

_BUILD = call("works__build", what="桥")
_KILLED = """
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.unit.agent.test_remote_tasks import run_until_killed

anyio.run(run_until_killed, Path(sys.argv[1]), sys.argv[2])
"""


def _agent(folder: Path, script: list[Any], registry: MCPToolRegistry) -> Agent:
    return Agent(
        MockLLM(script), tools=registry.tools(), permissions="allow", journal=Journal(folder / "runs.db")
    )


def _registry(folder: Path, url: str) -> MCPToolRegistry:
    return MCPToolRegistry(home=folder / "home", servers=[task_entry(url, trusted=True)])


async def run_until_killed(folder: Path, url: str) -> None:
    """Run an agent whose call becomes a task."""
    async with _registry(folder, url) as registry:
        await registry.load_servers()
        async with _agent(folder, [_BUILD], registry) as agent, aclosing(agent.stream("造桥")) as events:
            async for _event in events:
                print(flush=True)  # noqa: T201 - the test reads that it has begun


async def _until_it_is_a_task(agent: Agent) -> str:
    """Run until the call is a task, then leave the run as a stopped process would; its id."""
    async with aclosing(agent.stream("造桥")) as events:
        async for event in events:
            if event.type == "tool_task":
                assert event.payload == {"call_id": event.payload["call_id"], "tool": "works:build"}
                return event.run_id
    raise AssertionError("no call became a task")


async def _run_in_a_process_that_is_killed(folder: Path, url: str) -> str:
    """Run in another process, until the call is a task there; its id."""
    journal = Journal(folder / "runs.db")
    command = [sys.executable, "-c", starts_quickly(_KILLED), str(folder), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - it is killed
        try:
            assert process.stdout is not None
            await anyio.to_thread.run_sync(process.stdout.readline)
            (run,) = await journal.runs()
            async with aclosing(journal.follow(run.id)) as events:
                async for event in events:
                    if event.type == "tool_task":
                        return run.id
        finally:
            process.kill()
    raise AssertionError("no call became a task")


@pytest.mark.parametrize("known", [True, False])
async def test_a_killed_run_goes_on_waiting_for_the_task_and_does_not_call_again(
    tmp_path: Path, known: bool
) -> None:
    works = TaskServer()
    async with works.serving() as url:
        run_id = await _run_in_a_process_that_is_killed(tmp_path, url)
        (works.complete if known else works.forget)()
        async with _registry(tmp_path, url) as registry:
            await registry.load_servers()
            async with _agent(tmp_path, ["好"], registry) as agent:
                result = await agent.resume(run_id)
                events = await agent.journal.events(run_id)
    (ended,) = [event.payload for event in events if event.type == "tool_result"]

    assert (result.status, result.spent.tool_calls, len(works.calls)) == ("completed", 1, 1)
    if known:
        assert (ended["status"], ended["text"]) == ("success", "built")
    else:
        assert ended["status"] == "error"
        assert "It is not known whether `build` was carried out. Find that out" in ended["text"]


async def test_a_stopped_run_leaves_the_task_going_and_an_aborted_one_cancels_it(tmp_path: Path) -> None:
    works = TaskServer()
    async with works.serving() as url, _registry(tmp_path, url) as registry:
        await registry.load_servers()
        async with _agent(tmp_path, [_BUILD], registry) as agent:
            run_id = await _until_it_is_a_task(agent)
        assert works.tasks["1"]["status"] == "working"

        async with _agent(tmp_path, ["好"], registry) as agent:
            await agent.send_command(run_id, Abort(reason="够了"))
            result = await agent.resume(run_id)

    assert (result.status, works.tasks["1"]["status"], len(works.calls)) == ("aborted", "cancelled", 1)


async def test_a_call_that_times_out_cancels_its_task(tmp_path: Path) -> None:
    works = TaskServer()
    async with works.serving() as url, _registry(tmp_path, url) as registry:
        await registry.load_servers()
        async with Agent(
            MockLLM([_BUILD, "好"]),
            tools=registry.tools(),
            permissions="allow",
            journal=Journal(tmp_path / "runs.db"),
            scheduler=Scheduler(tools={"works:*": 1.0}),
        ) as agent:
            result = await agent.run("造桥")

    assert (result.status, {each["status"] for each in works.tasks.values()}) == ("completed", {"cancelled"})


async def test_a_run_that_no_process_could_resume_does_not_leave_a_task_behind(tmp_path: Path) -> None:
    works = TaskServer()
    async with (
        works.serving() as url,
        _registry(tmp_path, url) as registry,
        anyio.create_task_group() as group,
    ):
        await registry.load_servers()
        agent = Agent(MockLLM([_BUILD]), tools=registry.tools(), permissions="allow")
        async with aclosing(agent.stream("造桥")) as events:
            async for event in events:
                if event.type == "tool_start":
                    group.start_soon(_say_something, works)
                if event.type == "tool_progress":
                    break

    assert works.tasks["1"]["status"] == "cancelled"


async def _say_something(works: TaskServer) -> None:
    await works.until(bool)
    works.write(statusMessage="on it")
