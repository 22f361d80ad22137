"""Access of a tool to the run that calls it: end it, ask its people, and spend its budget."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.calling_run import USAGE_KEY, calling_run
from loom_core.agent.spending import remaining_budget
from loom_core.llm.interface import ChatRequest, Usage
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import ApprovalDecision, Reply
from loom_core.runs.run import Budget, Pending, RunUsage
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question, ToolOutput


def _calling(*names: str) -> MockAnswer:
    return MockAnswer(calls=tuple(ToolCallPart(f"c{n}", name, {}) for n, name in enumerate(names, 1)))


@tool(read_only=True, open_world=False)
def submit() -> ToolOutput:
    """Give the answer."""
    return ToolOutput("答案", {"answer": 42}, ends_run=True)


@tool(read_only=True, open_world=False)
def look() -> str:
    """Look."""
    return "seen"


async def test_a_tool_may_end_the_run_with_the_answer() -> None:
    llm = MockProvider([_calling("look", "submit")])
    agent = Agent(llm, tools=[submit, look])
    result = await agent.run("go")
    assert (result.status, result.output, result.structured) == ("completed", "答案", {"answer": 42})
    assert len(llm.calls) == 1
    conversation = await agent.parts.memory.messages(result.session_id)
    assert [type(message) for message in conversation] == [
        UserMessage, AssistantMessage, ToolMessage, ToolMessage,
    ]  # fmt: skip


async def test_a_tool_that_fails_does_not_end_the_run() -> None:
    @tool(read_only=True, open_world=False)
    def broken() -> ToolOutput:
        """Fail."""
        return ToolOutput("no", is_error=True, ends_run=True)

    agent = Agent(MockProvider([_calling("broken"), "another way"]), tools=[broken])
    assert (await agent.run("go")).output == "another way"


async def test_what_the_user_says_meanwhile_is_heard_although_a_tool_ends_the_run() -> None:
    begun, said = anyio.Event(), anyio.Event()

    @tool(read_only=True, open_world=False)
    async def end() -> ToolOutput:
        """End."""
        begun.set()
        await said.wait()
        return ToolOutput("done", ends_run=True)

    def script(request: ChatRequest) -> MockAnswer | str:
        last = request.messages[-1].text
        return "heard" if last == "等等" else _calling("end")

    agent = Agent(MockProvider(script), tools=[end])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "go")
        await begun.wait()
        (run,) = await agent.journal.runs()
        await agent.send_command(run.id, Reply(text="等等"))
        async for event in agent.journal.follow(run.id):
            if event.type == "message_received":
                said.set()
    assert (await agent.journal.get(run.id)).output == "heard"


async def test_a_run_that_a_tool_has_ended_ends_the_same_after_a_crash() -> None:
    """The process is killed when the result of the tool is in the journal, and the end is not."""
    llm = MockProvider([_calling("submit")])
    agent = Agent(llm, tools=[submit])
    run = await agent.journal.create(agent.request("go"))
    async with anyio.create_task_group() as group:

        async def follow() -> None:
            async for event in agent.journal.follow(run.id):
                if event.type == "tool_result":
                    group.cancel_scope.cancel()

        group.start_soon(follow)
        group.start_soon(agent.resume, run.id)
    result = await agent.resume(run.id)
    assert (result.status, result.output, result.structured) == ("completed", "答案", {"answer": 42})
    assert len(llm.calls) == 1


@pytest.mark.parametrize("yes", [True, False])
async def test_a_tool_may_ask_whether_it_may_call_another(yes: bool) -> None:
    asked: list[Pending] = []

    @tool(read_only=True, open_world=False)
    async def deploy(context: CallContext) -> str:
        """Deploy."""
        assert context.ask is not None
        question = Question("It changes the site.", tool="deploy/restart", arguments={"host": "甲"})
        return (await context.ask(question)).action

    async def approve(pending: Pending) -> bool | ApprovalDecision:
        asked.append(pending)
        return yes or ApprovalDecision(id=pending.id, action="deny", reason="不行")

    llm = MockProvider([_calling("deploy"), "done"])
    await Agent(llm, tools=[deploy], approve=approve).run("go")
    (pending,) = asked
    assert (pending.id, pending.kind, pending.tool) == ("c1.1", "approval", "deploy/restart")
    assert pending.arguments == {"host": "甲"}
    assert llm.calls[1].messages[-1].text == ("accept" if yes else "decline")


async def test_a_call_knows_its_run_and_what_is_left() -> None:
    known: list[Any] = []

    @tool(read_only=True, open_world=False)
    def who(context: CallContext) -> ToolOutput:
        """Say who calls."""
        run = calling_run()
        assert run is not None
        known.extend([context.call_id, context.run_id == run.run.id, run.remaining_budget, run.can_ask])
        return ToolOutput("me", metadata={USAGE_KEY: RunUsage(usage=Usage(input_tokens=1000), tool_calls=2)})

    llm = MockProvider([_calling("who"), "x"])
    result = await Agent(llm, tools=[who], budget=Budget(tool_calls=5, cost=1.0)).run("go")
    assert known[:2] == ["c1", True]
    assert known[2] == Budget(iterations=49, tool_calls=4, cost=1.0)
    assert known[3] is False
    assert result.spent.tool_calls == 3
    assert result.spent.usage.input_tokens > 1000
    assert result.spent.iterations == 2
    assert calling_run() is None


def test_what_is_left_of_a_budget_is_never_less_than_nothing() -> None:
    budget = Budget(iterations=3, tokens=100, cost=1.0, tool_calls=2, seconds=5.0)
    before = RunUsage(iterations=10, usage=Usage(input_tokens=1000, cost=4.0), tool_calls=7, seconds=60.0)
    now = RunUsage(iterations=11, usage=Usage(input_tokens=1040, cost=4.5), tool_calls=8, seconds=61.0)
    left = Budget(iterations=2, tokens=60, cost=0.5, tool_calls=1, seconds=4.0)
    assert remaining_budget(budget, now, granted_from=before) == left
    nothing = Budget(iterations=0, tokens=0, cost=0.0, tool_calls=0, seconds=0.0)
    assert remaining_budget(budget, now, granted_from=RunUsage()) == nothing
    assert remaining_budget(Budget(), now, granted_from=before) == Budget(iterations=49)
