"""How long calls may take, which go first, and what is counted of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loom_core.agent import Agent
from loom_core.errors import ConfigError
from loom_core.observability.families import CALLS_PEAK, CALLS_RUNNING, CALLS_WAITING, TOOL_CALLS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.registry import Registry
from loom_core.testing import AgentTester, MockLLM, call
from loom_core.tools import tool
from loom_core.tools.execution.scheduler import Scheduler


async def test_a_tool_that_needs_less_time_than_others_is_stopped_when_it_is_over(counted: Registry) -> None:
    @tool(read_only=True, open_world=False, needs_seconds=0.05)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return "never"

    tester = AgentTester(Agent(MockLLM([call("hang"), "好"]), tools=[hang]))
    with anyio.fail_after(60):
        await tester.run("x")
    assert tester.assert_called("hang").status == "timeout"
    assert "stopped after 0.05 seconds" in tester.assert_called("hang").text
    assert "a longer time limit" in tester.assert_called("hang").text
    assert counted.samples(TOOL_CALLS) == {("hang", "timeout"): 1}


@pytest.mark.parametrize("seconds", [-1, "10", float("nan"), None])
def test_a_tool_needs_a_time(seconds: Any) -> None:
    def hang() -> str:
        return "never"

    with pytest.raises(ValueError, match="not a number from 0"):
        tool(hang, needs_seconds=seconds)


async def _until(scheduler: Scheduler, *, waiting: int) -> None:
    while scheduler.snapshot().waiting < waiting:
        await anyio.lowlevel.checkpoint()


async def test_calls_of_agents_with_a_higher_priority_go_first_and_all_are_counted() -> None:
    scheduler = Scheduler(max_total=1)
    begun: list[str] = []
    held, release = anyio.Event(), anyio.Event()

    @tool(read_only=True, open_world=False)
    async def hold() -> str:
        """Hold the only place."""
        held.set()
        await release.wait()
        return "held"

    @tool(read_only=True, open_world=False)
    async def note(who: str) -> str:
        """Note who runs."""
        begun.append(who)
        return who

    def agent(who: str, priority: int) -> Agent:
        turns = [call("note", who=who), "好"]
        return Agent(MockLLM(turns), tools=[note], scheduler=scheduler, priority=priority)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            holder = Agent(MockLLM([call("hold"), "好"]), tools=[hold], scheduler=scheduler)
            group.start_soon(holder.run, "x")
            await held.wait()
            group.start_soon(agent("batch", -1).run, "x")
            await _until(scheduler, waiting=1)
            group.start_soon(agent("usual", 0).run, "x")
            await _until(scheduler, waiting=2)
            group.start_soon(agent("urgent", 1).run, "x")
            await _until(scheduler, waiting=3)
            numbers = process_metrics.registry
            running, waiting = numbers.samples(CALLS_RUNNING), numbers.samples(CALLS_WAITING)
            release.set()
    assert begun == ["urgent", "usual", "batch"]
    assert running[()] >= 1
    assert waiting[()] >= 3
    assert numbers.samples(CALLS_PEAK)[()] >= 1
    told = holder.scheduler.snapshot()
    assert (told.started, told.peak, told.running, told.waiting, told.timed_out) == (4, 1, 0, 0, 0)


@pytest.mark.parametrize("priority", ["high", 1.5, True])
def test_a_priority_is_a_whole_number(priority: Any) -> None:
    with pytest.raises(ConfigError, match="`priority` cannot be"):
        Agent(MockLLM(), priority=priority)
