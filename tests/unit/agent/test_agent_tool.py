"""An agent as a tool of another one."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from loom_core.agent.agent import Agent
from loom_core.agent.agent_tool import AgentTool
from loom_core.errors import ConfigError, InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.orders import Abort, Answered, Decided, Pause, Resume
from loom_core.runs.run import Budget, Pending, Run, RunRequest
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question
from loom_core.tools.names import own_wire_name


def _calling(name: str, *, id_: str = "c1", **arguments: object) -> MockAnswer:
    return MockAnswer(calls=(ToolCallPart(id_, name, arguments),))


def _told(request: ChatRequest) -> str:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)][-1]


def _boss(child: Agent, *, goal: str = "查资料", llm: MockProvider | None = None, **options: Any) -> Agent:
    helper = AgentTool(child, name="研究员", description="Finds facts.")
    script = [_calling(helper.wire_name, goal=goal), "好的。"]
    return Agent(llm or MockProvider(script), tools=[helper], name="boss", **options)


async def _runs(agent: Agent) -> dict[str, Run]:
    return {run.request.profile: run for run in await agent.journal.runs()}


async def _at_end(agent: Agent, run_id: str) -> Run:
    with anyio.fail_after(10):
        while (run := await agent.journal.changed(run_id, after=0, seconds=10)).status != "completed":
            await anyio.lowlevel.checkpoint()
    return run


async def _pending(agent: Agent, run_id: str = "") -> tuple[str, Pending]:
    """The first thing that a run of the agent waits for."""
    with anyio.fail_after(10):
        while True:
            for run in await agent.journal.runs(status=["input_required"]):
                if run.request.profile == agent.name and run.pending and run_id in {"", run.id}:
                    return run.id, run.pending[0]
            await anyio.lowlevel.checkpoint()


async def test_the_answer_of_the_other_agent_is_what_the_call_says() -> None:
    child = Agent(MockProvider(["巴黎。"]), name="researcher")
    boss = _boss(child)
    result = await boss.run("法国的首都？")
    llm = boss.parts.llm
    assert isinstance(llm, MockProvider)
    assert result.output == "好的。"
    assert _told(llm.calls[1]) == "巴黎。"
    runs = await _runs(boss)
    assert runs["researcher"].request.goal == "查资料"
    assert runs["researcher"].request.metadata == {"parent_run": result.run_id, "parent_call": "c1"}
    assert runs["researcher"].request.depth == 1


async def test_what_the_other_agent_takes_counts_for_the_run_that_calls() -> None:
    @tool(read_only=True, open_world=False)
    def look() -> str:
        """Look."""
        return "seen"

    child = Agent(MockProvider([_calling("look"), _calling("look", id_="c2"), "found"]), tools=[look])
    boss = _boss(child)
    result = await boss.run("find it")
    spent = (await _runs(boss))["default"].spent
    assert spent.tool_calls == 2
    assert result.spent.tool_calls == 3
    assert result.spent.iterations == 2
    assert result.spent.usage.input_tokens > spent.usage.input_tokens > 0


async def test_the_other_agent_may_not_take_more_than_the_run_that_calls_has_left() -> None:
    child = Agent(MockProvider(["x"]), budget=Budget(iterations=7, tokens=50, cost=9.0))
    boss = _boss(child, budget=Budget(iterations=3, tokens=1_000_000, cost=2.0, tool_calls=5, seconds=60))
    await boss.run("go")
    budget = (await _runs(boss))["default"].request.budget
    assert (budget.iterations, budget.tokens, budget.cost, budget.tool_calls) == (7, 50, 2.0, 4)
    assert budget.seconds is not None
    assert 0 < budget.seconds < 60


async def test_what_failed_there_is_told_with_as_much_as_there_is() -> None:
    script = [MockAnswer("half ", calls=(ToolCallPart("c1", "none", {}),)), "the half"]
    child = Agent(MockProvider(script), budget=Budget(iterations=1))
    boss = _boss(child)
    await boss.run("go")
    llm = boss.parts.llm
    assert isinstance(llm, MockProvider)
    told = _told(llm.calls[1])
    assert told.startswith("The agent `研究员` did not reach the goal: The run has taken all of its 1 turns")
    assert told.endswith("This is as far as it came:\nthe half")
    (message,) = [each for each in llm.calls[1].messages if isinstance(each, ToolMessage)]
    assert message.failed


async def test_what_it_answers_is_data_where_a_schema_wants_that() -> None:
    class City(BaseModel):
        city: str

    child = Agent(MockProvider(['{"city": "巴黎"}']))
    output = await AgentTool(child, description="Finds cities.", output_schema=City).call({"goal": "首都？"})
    assert output.structured == {"city": "巴黎"}
    assert output.text == '{"city": "巴黎"}'


async def test_agents_do_not_start_each_other_without_end() -> None:
    def script(request: ChatRequest) -> MockAnswer | str:
        told = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        return told[-1] if told else _calling("deeper", goal="deeper")

    agent = Agent(MockProvider(script))
    for _ in range(6):
        agent = Agent(MockProvider(script), tools=[AgentTool(agent, name="deeper", description="More.")])
    result = await agent.run("go")
    assert "4 agents stand above this one" in result.output
    assert len(await agent.journal.runs()) == 4


def _writer(written: list[str], **options: Any) -> Agent:
    @tool
    def write(path: str) -> str:
        """Write."""
        written.append(path)
        return f"wrote {path}"

    return Agent(MockProvider([_calling("write", path="甲.txt"), "done"]), tools=[write], **options)


async def test_a_call_that_has_to_be_approved_is_asked_about_where_the_agent_is_called() -> None:
    asked: list[Pending] = []
    written: list[str] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending)
        return True

    boss = _boss(_writer(written), approve=approve)
    assert (await boss.run("go")).status == "completed"
    assert written == ["甲.txt"]
    (pending,) = asked
    assert (pending.kind, pending.tool, dict(pending.arguments)) == (
        "approval", "研究员/write", {"path": "甲.txt"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "written", "told"),
    [
        ({"action": "deny", "reason": "太早"}, [], "太早"),
        ({"action": "edit", "arguments": {"path": "乙.txt"}}, ["乙.txt"], "wrote 乙.txt"),
    ],
)
async def test_the_agent_is_told_what_a_person_decides(
    decision: Mapping[str, Any], written: list[str], told: str
) -> None:
    really: list[str] = []
    child = _writer(really)
    boss = _boss(child, wait_for_orders=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, pending = await _pending(boss)
        assert pending.id == "c1.1"
        await boss.order(run_id, Decided(id=pending.id, **decision))
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert told in _told(llm.calls[1])
    assert really == written
    assert (await boss.journal.get(run_id)).status == "completed"


async def test_a_person_may_decide_at_the_run_itself() -> None:
    written: list[str] = []
    child = _writer(written, name="writer")
    boss = _boss(child, wait_for_orders=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await _pending(boss)
        own = (await _runs(boss))["writer"]
        await boss.order(own.id, Decided(id="c1", action="approve"))
    assert written == ["甲.txt"]
    run = await boss.journal.get(run_id)
    assert (run.status, run.pending) == ("completed", ())


async def test_nobody_is_asked_where_nobody_is_there() -> None:
    written: list[str] = []
    child = _writer(written)
    assert (await _boss(child).run("go")).status == "completed"
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert "没有人可以询问" in _told(llm.calls[1])
    assert written == []


async def test_an_agent_with_people_of_its_own_asks_them() -> None:
    written: list[str] = []

    async def yes(pending: Pending) -> bool:
        return pending.tool == "write"

    async def no(pending: Pending) -> bool:
        raise AssertionError(pending)

    await _boss(_writer(written, approve=yes), approve=no).run("go")
    assert written == ["甲.txt"]


async def test_a_question_of_a_tool_there_is_asked_here() -> None:
    @tool(read_only=True, open_world=False)
    async def which(context: CallContext) -> str:
        """Ask."""
        assert context.ask is not None
        answer = await context.ask(Question("哪个城市？", {"type": "object"}))
        return f"{answer.action} {answer.content.get('city')}"

    child = Agent(MockProvider([_calling("which"), "done"]), tools=[which])
    boss = _boss(child, wait_for_orders=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, pending = await _pending(boss)
        assert (pending.kind, pending.tool, pending.reason) == ("question", "研究员", "研究员: 哪个城市？")
        await boss.order(run_id, Answered(id=pending.id, action="accept", content={"city": "巴黎"}))
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert _told(llm.calls[1]) == "accept 巴黎"


async def test_what_an_agent_of_an_agent_asks_is_asked_at_the_top() -> None:
    written: list[str] = []
    asked: list[str] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending.tool)
        return True

    middle = Agent(
        MockProvider([_calling("writer", goal="write"), "done"]),
        tools=[AgentTool(_writer(written), name="writer", description="Writes.")],
    )
    await _boss(middle, approve=approve).run("go")
    assert written == ["甲.txt"]
    assert asked == ["研究员/writer/write"]


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
        return "later" if isinstance(request.messages[-1], ToolMessage) else _calling("hang")

    return Agent(MockProvider(script), tools=[hang], name=name), running


async def test_a_run_that_is_aborted_aborts_the_runs_that_it_has_called() -> None:
    child, running = _waiting()
    boss = _boss(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        await boss.order((await _runs(boss))["boss"].id, Abort(reason="够了"))
    runs = await _runs(boss)
    assert {name: run.status for name, run in runs.items()} == {"boss": "aborted", "child": "aborted"}
    assert "发起它的运行已结束。" in runs["child"].problem


async def test_a_run_that_is_stopped_and_then_aborted_aborts_what_it_has_called_before() -> None:
    child, running = _waiting()
    boss = _boss(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        group.cancel_scope.cancel()
    runs = await _runs(boss)
    assert {run.status for run in runs.values()} == {"working"}
    await boss.order(runs["boss"].id, Abort())
    await boss.resume(runs["boss"].id)
    assert {run.status for run in (await _runs(boss)).values()} == {"aborted"}


async def test_a_call_that_waits_for_a_person_is_not_looked_at_again_when_its_run_is_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def send(to: str) -> str:
        """Send."""
        return to

    boss = _boss(
        Agent(MockProvider([_calling("send", to="王芳")]), tools=[send], name="child"), wait_for_orders=True
    )
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await _pending(boss)
        group.cancel_scope.cancel()
    await boss.order(run_id, Abort())
    await boss.resume(run_id)
    child = (await _runs(boss))["child"]
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
        return (_calling("send", to="王芳"), _calling("more"), "都寄了")[turn]

    @tool(read_only=True, open_world=False)
    async def more() -> str:
        """Never ends the first time."""
        if len(effects) == 1 and not again:
            await anyio.sleep_forever()
        return "more"

    again: list[bool] = []
    child = Agent(MockProvider(script), tools=[send, more], permissions="allow", name="child")
    boss = _boss(child, budget=Budget(seconds=60))
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await stopping.wait()
        group.cancel_scope.cancel()
    again.append(True)
    before = await _runs(boss)
    llm = MockProvider(["boss is done"])
    revived = _boss(child, llm=llm, journal=boss.journal)
    result = await revived.resume(before["boss"].id)
    assert result.output == "boss is done"
    assert _told(llm.calls[0]) == "都寄了"
    assert effects == ["王芳"]
    assert {name: run.id for name, run in (await _runs(boss)).items()} == {
        name: run.id for name, run in before.items()
    }


async def test_a_host_leaves_the_run_of_a_call_to_the_run_that_calls() -> None:
    child, running = _waiting("default")
    boss = _boss(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        group.cancel_scope.cancel()
    own, other = Agent(MockProvider(["by the child"]), name="default"), Agent(MockProvider(["wrong"]))
    llm = MockProvider(["done"])
    agents = {"boss": _boss(own, llm=llm, journal=boss.journal), "default": other}
    before = await _runs(boss)
    async with RunHost(boss.journal, agents, look_seconds=0.01) as host:
        await host.take_up(before["default"].id)
        run = await boss.journal.changed(before["boss"].id, after=0, seconds=10)
    assert run.output == "done"
    assert _told(llm.calls[0]) == "by the child"


@pytest.mark.parametrize("order", [Abort(), Pause()])
async def test_the_run_of_a_call_is_not_resumed_without_the_run_that_calls(order: Abort | Pause) -> None:
    child, running = _waiting("child")
    boss = _boss(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await running.wait()
        runs = await _runs(boss)
        await boss.order(runs["child"].id, order)
        await boss.order(runs["boss"].id, Pause())
        for run in runs.values():
            await boss.journal.changed(run.id, after=0, seconds=10)
        group.cancel_scope.cancel()
    async with RunHost(boss.journal, {}, look_seconds=None) as host:
        with pytest.raises(InvalidInputError, match=f"Resume {runs['boss'].id} instead"):
            await host.order(runs["child"].id, Resume())


async def test_what_comes_too_late_for_the_run_of_a_call_is_not_kept_for_ever() -> None:
    journal = Journal()
    ended = await journal.create(RunRequest(goal="go", metadata={"parent_run": "run_a", "parent_call": "c1"}))
    log = await journal.claim(ended.id)
    assert log is not None
    async with log:
        await journal.order(ended.id, Pause())
        log.add("agent_finish", {}, status="completed")
    assert await journal.unclaimed() == [ended.id]
    async with RunHost(journal, {}, look_seconds=0.01):
        with anyio.fail_after(10):
            while await journal.unclaimed():
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
        return _boss(helper, llm=llm, journal=journal, wait_for_orders=True)

    asking: list[MockAnswer | str] = [_calling(own_wire_name("研究员"), goal="寄")]
    boss = made(Journal(tmp_path / "runs.db"), boss=asking, child=[_calling("send", to="王芳")])
    async with boss, anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await _pending(boss)
        with sqlite3.connect(tmp_path / "runs.db") as here, sqlite3.connect(tmp_path / "killed.db") as copy:
            here.backup(copy)
        group.cancel_scope.cancel()
    here.close()
    copy.close()
    boss = made(Journal(tmp_path / "killed.db"), boss=["done"], child=["寄了"])
    async with boss, RunHost(boss.journal, {"boss": boss}, look_seconds=0.01) as host:
        runs = await _runs(boss)
        assert {run.status for run in runs.values()} == {"input_required"}
        assert not host.driven, "nobody has to drive what only waits"
        await host.order(runs["child"].id, Decided(id=runs["child"].pending[0].id, action="approve"))
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
        MockProvider([_calling("send", to="王芳")]), tools=[send], permissions="allow", name="child"
    )
    boss = _boss(child)
    async with RunHost(boss.journal, {"boss": boss}, grace_seconds=10) as host:
        await host.start(boss.request("go"))
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    runs = await _runs(boss)
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
        return "end" if isinstance(request.messages[-1], ToolMessage) else _calling("step")

    child = Agent(MockProvider(script), tools=[step], name="child")
    boss = _boss(child)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await begun.wait()
        runs = await _runs(boss)
        await boss.order(runs["boss"].id, Pause(by="王芳"))
        with anyio.fail_after(10):
            while (await boss.journal.get(runs["child"].id)).status != "paused":
                await anyio.lowlevel.checkpoint()
        paused.set()
        assert turns == 1
        await boss.order(runs["boss"].id, Resume(by="王芳"))
    assert {run.status for run in (await _runs(boss)).values()} == {"completed"}
    assert turns == 2


async def test_people_see_what_is_done_there() -> None:
    @tool(read_only=True, open_world=False)
    def look() -> str:
        """Look."""
        return "seen"

    told: list[str] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        told.append(message)

    child = Agent(MockProvider([_calling("look"), "found"]), tools=[look])
    helper = AgentTool(child, name="研究员", description="Finds.")
    await helper.call({"goal": "find"}, context=CallContext(progress=progress))
    assert told == ["研究员/look"]


async def test_calls_run_side_by_side_where_the_tools_of_the_agent_may() -> None:
    written: list[str] = []
    assert AgentTool(Agent(MockProvider([])), description="Thinks.").is_concurrency_safe
    assert not AgentTool(_writer(written), description="Writes.").is_concurrency_safe


def test_an_agent_without_a_description_is_no_tool() -> None:
    with pytest.raises(ConfigError, match="The agent 'default' has no description"):
        AgentTool(Agent(MockProvider([])))
    helper = AgentTool(Agent(MockProvider([]), description="Does.", name="帮手"))
    assert (helper.name, helper.description, helper.needs_seconds) == ("帮手", "Does.", math.inf)
    assert repr(helper) == "<AgentTool 帮手>"
    assert helper.wire_name.startswith("tool_")


async def test_a_journal_finds_a_run_by_its_key() -> None:
    journal = Journal()
    agent = Agent(MockProvider(["x"]), journal=journal)
    assert await journal.with_key("k") is None
    result = await agent.run("go", idempotency_key="k", caller="王芳")
    assert await journal.with_key("k") is None
    found = await journal.with_key("k", caller="王芳")
    assert found is not None
    assert found.id == result.run_id


async def test_who_was_asked_before_a_crash_is_asked_again_and_heard() -> None:
    written: list[str] = []
    child = _writer(written, name="writer")
    boss = _boss(child, wait_for_orders=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await _pending(boss)
        group.cancel_scope.cancel()
    revived = _boss(child, llm=MockProvider(["done"]), journal=boss.journal, wait_for_orders=True)
    async with anyio.create_task_group() as group:
        group.start_soon(revived.resume, run_id)
        run_id, pending = await _pending(revived)
        assert pending.tool == "研究员/write"
        await revived.order(run_id, Decided(id=pending.id, action="approve"))
    assert written == ["甲.txt"]
    assert {run.status for run in (await _runs(boss)).values()} == {"completed"}


async def test_what_was_paused_when_the_program_ended_goes_on_when_the_run_that_calls_does() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @tool(read_only=True, open_world=False)
    async def step() -> str:
        """Ends when it is let."""
        begun.set()
        await go_on.wait()
        return "step"

    def script(request: ChatRequest) -> MockAnswer | str:
        return "end" if isinstance(request.messages[-1], ToolMessage) else _calling("step")

    boss = _boss(Agent(MockProvider(script), tools=[step], name="child"))
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await begun.wait()
        runs = await _runs(boss)
        await boss.order(runs["boss"].id, Pause())
        with anyio.fail_after(10):
            while (await boss.journal.get(runs["child"].id)).status != "paused":
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    go_on.set()
    llm = MockProvider(["done"])
    child = Agent(MockProvider(script), tools=[step], name="child")
    result = await _boss(child, llm=llm, journal=boss.journal).resume(runs["boss"].id)
    assert (result.output, _told(llm.calls[0])) == ("done", "end")
