"""The run of a call is stopped, paused and gone on with as the run that calls is."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort, ApprovalDecision, Pause, Resume
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.run import Budget, Run, RunRequest
from loom_core.tools.function_tool import tool
from loom_core.tools.names import own_wire_name
from tests.fixtures.called_agents import (
    boss_of,
    first_pending,
    last_result,
    one_call,
    runs_by_profile,
    tokens_of_turns,
)


async def _at_end(agent: Agent, run_id: str) -> Run:
    with anyio.fail_after(10):
        while (run := await agent.journal.wait_until_idle(run_id, after=0, seconds=10)).status != "completed":
            await anyio.lowlevel.checkpoint()
    return run


def _waiting(name: str = "child") -> tuple[Agent, anyio.Event]:
    """An agent with a tool that never ends, and what says that it runs."""
    running = anyio.Event()

    @tool(read_only=True, open_world=False)
    async def hang() -> str:
        """Never ends."""
        running.set()
        await anyio.sleep_forever()
        return ""

    def script(request: ChatRequest) -> MockAnswer | str:
        return "later" if isinstance(request.messages[-1], ToolMessage) else one_call("hang")

    return Agent(MockProvider(script), tools=[hang], name=name), running


async def test_a_run_that_is_aborted_aborts_the_runs_that_it_has_called() -> None:
    child, running = _waiting()
    boss = boss_of(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        await boss.send_command((await runs_by_profile(boss))["boss"].id, Abort(reason="够了"))
    runs = await runs_by_profile(boss)
    assert {name: run.status for name, run in runs.items()} == {"boss": "aborted", "child": "aborted"}
    assert "发起它的运行已结束。" in runs["child"].problem


async def test_a_run_that_is_aborted_aborts_the_runs_of_calls_of_its_calls(tmp_path: Path) -> None:
    child, running = _waiting()
    call = AgentTool(child, name="child", description="Waits.")
    middle = Agent(MockProvider([one_call("child", goal="wait"), "done"]), tools=[call], name="middle")
    boss = boss_of(middle, journal=Journal(tmp_path / "runs.db"))
    async with RunHost(boss.journal, {boss.name: boss}) as host:
        run = await host.start(boss.request("go"))
        await running.wait()
        await boss.send_command(run.id, Abort())
        await boss.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        runs = await runs_by_profile(boss)
        assert runs["boss"].spent.usage.input_tokens == await tokens_of_turns(boss)
    assert {name: run.status for name, run in runs.items()} == dict.fromkeys(
        ("boss", "middle", "child"), "aborted"
    )


async def test_a_run_that_is_stopped_and_then_aborted_aborts_what_it_has_called_before() -> None:
    child, running = _waiting()
    boss = boss_of(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        group.cancel_scope.cancel()
    runs = await runs_by_profile(boss)
    assert {run.status for run in runs.values()} == {"working"}
    await boss.send_command(runs["boss"].id, Abort())
    await boss.resume(runs["boss"].id)
    assert {run.status for run in (await runs_by_profile(boss)).values()} == {"aborted"}


async def test_a_call_that_waits_for_a_person_is_not_looked_at_again_when_its_run_is_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def send(to: str) -> str:
        """Send."""
        return to

    boss = boss_of(
        Agent(MockProvider([one_call("send", to="王芳")]), tools=[send], name="child"), wait_for_commands=True
    )
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await first_pending(boss)
        group.cancel_scope.cancel()
    await boss.send_command(run_id, Abort())
    await boss.resume(run_id)
    child = (await runs_by_profile(boss))["child"]
    results = [each for each in await boss.journal.events(child.id) if each.type == "tool_result"]
    assert [each.payload["status"] for each in results] == ["aborted"]
    assert not caplog.records


async def test_the_run_of_a_call_is_gone_on_with_after_a_crash() -> None:
    effects: list[str] = []
    stopping = anyio.Event()

    @tool(open_world=False)
    async def send(to: str) -> str:
        """Send."""
        effects.append(to)
        return "sent"

    def script(request: ChatRequest) -> MockAnswer | str:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if turn == 1 and not stopping.is_set():
            stopping.set()
        return (one_call("send", to="王芳"), one_call("more"), "都寄了")[turn]

    @tool(read_only=True, open_world=False)
    async def more() -> str:
        """Never ends the first time."""
        if len(effects) == 1 and not again:
            await anyio.sleep_forever()
        return "more"

    again: list[bool] = []
    child = Agent(MockProvider(script), tools=[send, more], permissions="allow", name="child")
    boss = boss_of(child, budget=Budget(seconds=60))
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await stopping.wait()
        group.cancel_scope.cancel()
    again.append(True)
    before = await runs_by_profile(boss)
    llm = MockProvider(["boss is done"])
    revived = boss_of(child, llm=llm, journal=boss.journal)
    result = await revived.resume(before["boss"].id)
    assert result.output == "boss is done"
    assert last_result(llm.calls[0]) == "都寄了"
    assert effects == ["王芳"]
    assert {name: run.id for name, run in (await runs_by_profile(boss)).items()} == {
        name: run.id for name, run in before.items()
    }


async def test_a_host_leaves_the_run_of_a_call_to_the_run_that_calls() -> None:
    child, running = _waiting("default")
    boss = boss_of(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        group.cancel_scope.cancel()
    own, other = Agent(MockProvider(["by the child"]), name="default"), Agent(MockProvider(["wrong"]))
    llm = MockProvider(["done"])
    agents = {"boss": boss_of(own, llm=llm, journal=boss.journal), "default": other}
    before = await runs_by_profile(boss)
    async with RunHost(boss.journal, agents, look_seconds=0.01) as host:
        await host.adopt(before["default"].id)
        run = await boss.journal.wait_until_idle(before["boss"].id, after=0, seconds=10)
    assert run.output == "done"
    assert last_result(llm.calls[0]) == "by the child"


@pytest.mark.parametrize("order", [Abort(), Pause()])
async def test_the_run_of_a_call_is_not_resumed_without_the_run_that_calls(order: Abort | Pause) -> None:
    child, running = _waiting("child")
    boss = boss_of(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        runs = await runs_by_profile(boss)
        await boss.send_command(runs["child"].id, order)
        await boss.send_command(runs["boss"].id, Pause())
        for run in runs.values():
            await boss.journal.wait_until_idle(run.id, after=0, seconds=10)
        group.cancel_scope.cancel()
    async with RunHost(boss.journal, {}, look_seconds=None) as host:
        with pytest.raises(InvalidInputError, match=f"Resume {runs['boss'].id} instead"):
            await host.send_commands(runs["child"].id, Resume())


async def test_what_comes_too_late_for_the_run_of_a_call_is_not_kept_for_ever() -> None:
    journal = Journal()
    ended = await journal.create(RunRequest(goal="go", metadata={"parent_run": "run_a", "parent_call": "c1"}))
    log = await journal.claim(ended.id)
    assert log is not None
    async with log:
        await journal.send_commands(ended.id, Pause())
        log.add("agent_finish", {}, status="completed")
    assert await journal.find_unclaimed() == [ended.id]
    async with RunHost(journal, {}, look_seconds=0.01):
        with anyio.fail_after(10):
            while await journal.find_unclaimed():
                await anyio.lowlevel.checkpoint()
    assert (await journal.get(ended.id)).status == "completed"
    await journal.aclose()


async def test_a_host_takes_up_the_run_that_calls_when_the_run_of_its_call_is_told_something(
    tmp_path: Path,
) -> None:
    @tool
    async def send(to: str) -> str:
        """Send."""
        return f"寄给{to}"

    def made(journal: Journal, *, boss: list[MockAnswer | str], child: list[MockAnswer | str]) -> Agent:
        helper = Agent(MockProvider(child), tools=[send], name="child")
        llm = MockProvider(boss)
        return boss_of(helper, llm=llm, journal=journal, wait_for_commands=True)

    asking: list[MockAnswer | str] = [one_call(own_wire_name("研究员"), goal="寄")]
    boss = made(Journal(tmp_path / "runs.db"), boss=asking, child=[one_call("send", to="王芳")])
    async with boss, anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await first_pending(boss)
        with sqlite3.connect(tmp_path / "runs.db") as here, sqlite3.connect(tmp_path / "killed.db") as copy:
            here.backup(copy)
        group.cancel_scope.cancel()
    here.close()
    copy.close()
    boss = made(Journal(tmp_path / "killed.db"), boss=["done"], child=["寄了"])
    async with boss, RunHost(boss.journal, {"boss": boss}, look_seconds=0.01) as host:
        runs = await runs_by_profile(boss)
        assert {run.status for run in runs.values()} == {"input_required"}
        assert not host.driven, "a run that only waits needs no executor"
        await host.send_commands(
            runs["child"].id, ApprovalDecision(id=runs["child"].pending[0].id, action="approve")
        )
        assert (await _at_end(boss, run_id)).output == "done"


async def test_a_run_of_a_call_whose_caller_was_forgotten_is_left(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    request = RunRequest(goal="go", metadata={"parent_run": "run_gone", "parent_call": "c1"})
    left, other = await journal.create(request), await journal.create(RunRequest(goal="go"))
    agent = Agent(MockProvider(["done"]), journal=journal)
    async with RunHost(journal, {"default": agent}, look_seconds=0.01):
        assert (await _at_end(agent, other.id)).output == "done"
    assert (await journal.get(left.id)).last_seq == 0
    assert not caplog.records


async def test_a_call_of_the_agent_that_must_not_be_made_twice_may_end_when_the_host_does() -> None:
    begun, go_on, sent = anyio.Event(), anyio.Event(), list[str]()

    @tool(open_world=False)
    async def send(to: str) -> str:
        """Send."""
        begun.set()
        await go_on.wait()
        sent.append(to)
        return "sent"

    child = Agent(
        MockProvider([one_call("send", to="王芳")]), tools=[send], permissions="allow", name="child"
    )
    boss = boss_of(child)
    async with RunHost(boss.journal, {"boss": boss}, grace_seconds=10) as host:
        await host.start(boss.request("go"))
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    runs = await runs_by_profile(boss)
    events = await boss.journal.events(runs["child"].id)
    assert sent == ["王芳"]
    assert events[-1].type == "tool_result"
    assert {run.status for run in runs.values()} == {"working"}


async def test_a_pause_holds_the_agent_that_is_called_too() -> None:
    paused, begun = anyio.Event(), anyio.Event()
    turns = 0

    @tool(read_only=True, open_world=False)
    async def step() -> str:
        """Ends when the run is paused."""
        begun.set()
        await paused.wait()
        return "step"

    def script(request: ChatRequest) -> MockAnswer | str:
        nonlocal turns
        turns += 1
        return "end" if isinstance(request.messages[-1], ToolMessage) else one_call("step")

    child = Agent(MockProvider(script), tools=[step], name="child")
    boss = boss_of(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await begun.wait()
        runs = await runs_by_profile(boss)
        await boss.send_command(runs["boss"].id, Pause(by="王芳"))
        with anyio.fail_after(10):
            while (await boss.journal.get(runs["child"].id)).status != "paused":
                await anyio.lowlevel.checkpoint()
        paused.set()
        assert turns == 1
        await boss.send_command(runs["boss"].id, Resume(by="王芳"))
    assert {run.status for run in (await runs_by_profile(boss)).values()} == {"completed"}
    assert turns == 2


async def test_what_was_paused_when_the_program_ended_goes_on_when_the_run_that_calls_does() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @tool(read_only=True, open_world=False)
    async def step() -> str:
        """Ends when it is let."""
        begun.set()
        await go_on.wait()
        return "step"

    def script(request: ChatRequest) -> MockAnswer | str:
        return "end" if isinstance(request.messages[-1], ToolMessage) else one_call("step")

    boss = boss_of(Agent(MockProvider(script), tools=[step], name="child"))
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await begun.wait()
        runs = await runs_by_profile(boss)
        await boss.send_command(runs["boss"].id, Pause())
        with anyio.fail_after(10):
            while (await boss.journal.get(runs["child"].id)).status != "paused":
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    go_on.set()
    llm = MockProvider(["done"])
    child = Agent(MockProvider(script), tools=[step], name="child")
    result = await boss_of(child, llm=llm, journal=boss.journal).resume(runs["boss"].id)
    assert (result.output, last_result(llm.calls[0])) == ("done", "end")
