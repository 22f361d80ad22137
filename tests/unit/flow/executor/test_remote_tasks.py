"""Tool calls of flows that another server continues as tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.flow.executor import FlowExecutor
from loom_core.mcp_client import MCPToolRegistry
from loom_core.runs.commands import Abort, Resume
from loom_core.runs.journal import Journal
from tests.fixtures.task_server import TaskServer, task_entry

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_BUILD = {"stepId": "build", "tool": "works:build", "parameters": {"what": "桥"}}


@asynccontextmanager
async def _executors(
    flows: Flows, folder: Path, works: TaskServer
) -> AsyncGenerator[Callable[[dict[str, Any]], FlowExecutor]]:
    """Makes executors of a flow of one step, with the same journal."""
    journal = Journal(folder / "runs.db")
    async with (
        works.serving() as url,
        MCPToolRegistry(home=folder / "home", servers=[task_entry(url, trusted=True)]) as registry,
    ):
        await registry.load_servers()

        def executor(step: dict[str, Any]) -> FlowExecutor:
            flow = {"flow_id": "f", "steps": [step]}
            return flows([flow], tools=registry.tools(), permissions="allow", journal=journal)

        yield executor
    await journal.aclose()


async def _leave_as_a_task(executor: FlowExecutor) -> str:
    """Execute until the call is a task, and be gone then; the id of the run."""
    run = await executor.journal.create(executor.build_request("f"))
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        async for event in executor.journal.follow(run.id):
            if event.type == "tool_task":
                assert event.payload["tool"] == "works:build"
                break
        group.cancel_scope.cancel()
    return run.id


@pytest.mark.parametrize("aborted", [False, True])
async def test_a_flow_that_was_left_goes_on_waiting_for_the_task(
    tmp_path: Path, flows: Flows, aborted: bool
) -> None:
    works = TaskServer()
    async with _executors(flows, tmp_path, works) as executors:
        executor = executors(_BUILD)
        run_id = await _leave_as_a_task(executor)
        assert works.tasks["1"]["status"] == "working"
        if not aborted:
            works.complete()
        async with anyio.create_task_group() as group:
            group.start_soon(executor.resume, run_id)
            if aborted:
                async for event in executor.journal.follow(run_id):
                    if event.type == "step_start" and event.payload["attempt"] == 2:
                        break
                await executor.journal.send_commands(run_id, Abort(by="王芳"))
        run = await executor.journal.get(run_id)

    assert run.status == ("aborted" if aborted else "completed"), run.problem
    assert run.structured == (None if aborted else "built")
    assert (works.tasks["1"]["status"], len(works.calls)) == ("cancelled" if aborted else "completed", 1)


async def test_a_flow_that_was_aborted_does_not_wait_for_the_cancelled_task_when_it_is_resumed(
    tmp_path: Path, flows: Flows
) -> None:
    works = TaskServer()
    async with _executors(flows, tmp_path, works) as executors:
        executor = executors(_BUILD)
        run_id = await _leave_as_a_task(executor)
        await executor.journal.send_commands(run_id, Abort(by="王芳"))
        assert (await executor.resume(run_id)).status == "aborted"
        run = await executor.send_command(run_id, Resume())

    assert works.tasks["1"]["status"] == "cancelled"
    assert [each.kind for each in run.pending] == ["unknown"]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_step_that_times_out_cancels_its_task(tmp_path: Path, flows: Flows, inside: bool) -> None:
    works = TaskServer()
    step = {"stepId": "both", "parallel": [[_BUILD], [{"stepId": "say", "say": "好"}]]} if inside else _BUILD
    async with _executors(flows, tmp_path, works) as executors:
        executor = executors({**step, "timeout_seconds": 1})
        run = await executor.execute("f")
        became_task = any(each.type == "tool_task" for each in await executor.journal.events(run.id))

    assert run.status == "failed"
    assert "exceeded its timeout" in run.problem
    if became_task:  # else this machine is too slow for the call
        assert works.tasks["1"]["status"] == "cancelled"
