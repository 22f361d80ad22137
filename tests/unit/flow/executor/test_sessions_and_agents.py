"""Flows in sessions, and flows as steps of agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.errors import InvalidInputError
from loom_core.flow.executor import FlowExecutor, FlowLimits
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Resume
from loom_core.runs.journal import Journal
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

Flows = Callable[..., FlowExecutor]

_ASK: dict[str, Any] = {
    "flow_id": "ask",
    "steps": [{"stepId": "which", "ask": "哪一个？"}, {"stepId": "take", "operation": "POST /take"}],
}
_OTHER: dict[str, Any] = {"flow_id": "other", "endpoint": "POST /other"}


async def test_a_flow_is_taken_up_again_when_another_of_its_session_has_ended(api: Api, flows: Flows) -> None:
    executor = flows([_ASK, _OTHER])
    first = await executor.execute("ask", "我要这个")
    session_id = first.request.session_id
    with pytest.raises(InvalidInputError, match="has not ended"):
        await executor.execute("other", session_id=session_id)
    await executor.send_command(first.id, Abort(by="王芳"))
    second = await executor.execute("other", session_id=session_id)
    assert second.status == "completed"
    first = await executor.send_command(first.id, Resume(by="王芳"))
    first = await executor.send_command(
        first.id, InputResponse(id=first.pending[0].id, action="accept", content={"answer": "甲"})
    )
    assert first.status == "completed"
    assert api.counts == {"/other": 1, "/take": 1}


async def test_a_flow_is_not_resumed_while_another_of_its_session_runs(flows: Flows) -> None:
    executor = flows([_ASK])
    first = await executor.execute("ask")
    await executor.send_command(first.id, Abort())
    await executor.execute("ask", session_id=first.request.session_id)
    with pytest.raises(InvalidInputError, match="another active run"):
        await executor.send_command(first.id, Resume())


async def test_an_agent_that_a_step_calls_goes_on_with_its_run_when_the_flow_does(
    flows: Flows, journal: Journal
) -> None:
    looked, go = list[str](), anyio.Event()

    @tool(name="look", read_only=True, open_world=False)
    async def look(what: str) -> str:
        """Look."""
        looked.append(what)
        if len(looked) == 2 and not go.is_set():
            go.set()
            await anyio.sleep_forever()
        return f"{what} is there"

    def script(request: ChatRequest) -> MockAnswer | str:
        done = sum(message.role == "tool" for message in request.messages)
        if done == 2:
            return "found both"
        return MockAnswer(calls=(ToolCallPart(f"c{done}", "look", {"what": "ab"[done]}),))

    agent = Agent(MockProvider(script), tools=[look], name="finder")
    finder = AgentTool(agent, description="Finds things.")
    flow = {
        "flow_id": "f",
        "steps": [{"stepId": "find", "tool": finder.name, "parameters": {"goal": "a, b"}}],
    }
    executor = flows([flow], tools=[finder], permissions="allow")
    run = await journal.create(executor.build_request("f"))
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        with anyio.fail_after(30):
            await go.wait()
        group.cancel_scope.cancel()
    run = await executor.resume(run.id)
    if run.status == "input_required":
        run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
    assert (run.status, run.structured) == ("completed", "found both"), run.problem
    assert looked == ["a", "b", "b"]
    assert len(await journal.runs()) == 2
    await agent.aclose()


async def test_what_goes_on_for_a_call_is_ended_with_the_run(flows: Flows) -> None:
    begun, ended = anyio.Event(), list[str]()

    @tool(name="begin")
    async def begin() -> str:
        """Begin something that goes on by itself."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    class Lasting(type(begin)):  # type: ignore[misc] - whatever a decorated function is
        async def abandon(self, *, context: CallContext) -> None:
            ended.append(context.call_id)

    begin.__class__ = Lasting
    flow = {"flow_id": "f", "steps": [{"stepId": "begin", "tool": "begin"}]}
    limits = FlowLimits(settle_seconds=0.05)
    executor = flows([flow], tools=[begin], permissions="allow", limits=limits)
    run = await executor.journal.create(executor.build_request("f"))
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        with anyio.fail_after(30):
            await begun.wait()
        await executor.journal.send_commands(run.id, Abort(by="王芳"))
    assert (await executor.journal.get(run.id)).status == "aborted"
    assert ended == ["begin"]


async def test_a_flow_that_is_left_lets_a_call_of_its_agent_end_that_must_not_be_made_twice(
    flows: Flows, journal: Journal
) -> None:
    begun, go = anyio.Event(), anyio.Event()
    booked = list[str]()

    @tool(name="book")
    async def book(what: str) -> str:
        """Book."""
        begun.set()
        await go.wait()
        booked.append(what)
        return f"{what} is booked"

    def script(request: ChatRequest) -> MockAnswer | str:
        if any(message.role == "tool" for message in request.messages):
            return "booked"
        return MockAnswer(calls=(ToolCallPart("c", "book", {"what": "会议室"}),))

    agent = Agent(MockProvider(script), tools=[book], name="booker", permissions="allow")
    booker = AgentTool(agent, description="Books things.")
    flow = {
        "flow_id": "f",
        "steps": [{"stepId": "book", "tool": booker.name, "parameters": {"goal": "订会议室"}}],
    }
    executor = flows([flow], tools=[booker], permissions="allow")
    run = await journal.create(executor.build_request("f"))
    log = await journal.claim(run.id)
    assert log
    left = waited = False
    with anyio.fail_after(30):
        async with log, anyio.create_task_group() as group:
            loop = executor.loop(log)
            group.start_soon(loop.execute)
            await begun.wait()

            async def leave() -> None:
                nonlocal left
                await loop.detach()
                left = True
                group.cancel_scope.cancel()

            group.start_soon(leave)
            await anyio.wait_all_tasks_blocked()
            waited = not left
            go.set()
    assert left
    assert waited
    run = await executor.resume(run.id)
    assert (run.status, booked) == ("completed", ["会议室"]), run.problem
    await agent.aclose()
