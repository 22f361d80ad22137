from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio

from loom_core.agent.agent import Agent
from loom_core.llm.interface import StreamChunk
from loom_core.llm.messages import Message, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort, Pause, Reply, Resume
from loom_core.runs.memory import InMemoryMemory
from loom_core.runs.run import Run
from loom_core.tools.function_tool import FunctionTool, tool


class Held:
    """Something that waits in the middle until the test lets it go on."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()

    async def wait(self) -> None:
        self.begun.set()
        await self.go_on.wait()


class HeldModel(MockProvider):
    """Waits in the middle of its answer of a number."""

    def __init__(self, answers: Sequence[str | MockAnswer], *, at: int) -> None:
        super().__init__(answers)
        self.held = Held()
        self._at = at

    async def chat_stream(self, messages: Any, **options: Any) -> AsyncGenerator[StreamChunk]:
        number = len(self.calls)
        async for chunk in super().chat_stream(messages, **options):
            yield chunk
            if number == self._at:
                await self.held.wait()


def _held_tool(held: Held, *, read_only: bool = True) -> FunctionTool[..., Any]:
    async def work() -> str:
        """Work."""
        await held.wait()
        return "worked"

    return tool(work, read_only=read_only, open_world=False)


_CALL = MockAnswer(calls=(ToolCallPart("c1", "work"),))


async def _the_run(agent: Agent) -> Run:
    (run,) = await agent.journal.runs()
    return run


async def _ended(agent: Agent) -> Run:
    run = await _the_run(agent)
    with anyio.fail_after(10):
        while run.status not in {"completed", "failed", "aborted"}:
            run = await agent.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
    return run


async def _types(agent: Agent) -> list[str]:
    run = await _the_run(agent)
    return [event.type for event in await agent.journal.events(run.id)]


async def test_a_pause_lets_the_answer_end_but_not_the_run() -> None:
    llm = HeldModel(["the whole answer", "Yes, all of it."], at=0)
    async with Agent(llm) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "answer")
        await llm.held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Pause(by="anna"))
        run = await agent.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert run.status == "paused"
        llm.held.go_on.set()
        with anyio.fail_after(10):
            while "usage" not in await _types(agent):
                await anyio.lowlevel.checkpoint()
        assert (await _the_run(agent)).status == "paused"
        await agent.send_command(run.id, Reply(text="Is that all?"))
        await agent.send_command(run.id, Resume(by="anna"))
        run = await _ended(agent)
    assert run.output == "Yes, all of it.", "what the user said while it was paused is read first"
    assert llm.calls[1].messages[-1].text == "Is that all?"


async def test_a_pause_lets_calls_end_and_begins_nothing_new() -> None:
    held = Held()
    begun: list[str] = []

    @tool(open_world=False)
    async def next_one() -> str:
        """The next."""
        begun.append("next")
        return "next"

    calls = MockAnswer(calls=(ToolCallPart("a", "work"), ToolCallPart("b", "next_one")))
    llm = MockProvider([calls, "done"])
    tools = [_held_tool(held, read_only=False), next_one]
    async with Agent(llm, tools=tools, permissions="allow") as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "work")
        await held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Pause())
        await agent.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        held.go_on.set()
        with anyio.fail_after(10):
            while "tool_result" not in await _types(agent):
                await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert not begun
        await agent.send_command(run.id, Resume())
        run = await _ended(agent)
    assert run.status == "completed"
    assert begun == ["next"]


async def test_an_abort_ends_the_answer_at_once_and_keeps_what_there_is() -> None:
    llm = HeldModel(["half of an answer"], at=0)
    async with Agent(llm) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "answer")
        await llm.held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Abort(reason="wrong question", by="anna"))
        run = await _ended(agent)
    assert run.status == "aborted"
    assert "wrong question" in run.problem
    assert run.output
    assert "half of an answer".startswith(run.output.strip())


async def test_an_abort_stops_calls_and_gives_each_a_result() -> None:
    held = Held()
    calls = MockAnswer(calls=(ToolCallPart("a", "work"), ToolCallPart("b", "work")))
    llm = MockProvider([calls, "Never mind."])
    async with (
        Agent(llm, tools=[_held_tool(held, read_only=False)], permissions="allow") as agent,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.run, "work")
        await held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Abort())
        run = await _ended(agent)
        assert run.status == "aborted"
        conversation = await agent.parts.memory.messages(run.request.session_id)
        results = [message.text for message in conversation if isinstance(message, ToolMessage)]
        assert len(results) == 2
        assert "stopped while it ran" in results[0]
        assert "was not made" in results[1]
        again = await agent.resume(run.id)
    assert again.output == "Never mind."
    assert len([message for message in llm.calls[1].messages if message.role == "tool"]) == 2


class HeldMemory(InMemoryMemory):
    """Waits before it stores a conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    async def replace(self, session_id: str, messages: Sequence[Message]) -> None:
        await self.held.wait()
        await super().replace(session_id, messages)


async def test_an_abort_is_not_lost_if_the_process_ends_before_the_run() -> None:
    llm, memory = HeldModel(["an answer"], at=0), HeldMemory()
    agent = Agent(llm, memory=memory)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "answer")
        await llm.held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Abort(by="anna"))
        await memory.held.begun.wait()
        group.cancel_scope.cancel()
    async with Agent(MockProvider(["another"]), journal=agent.journal) as again:
        assert (await again.resume(run.id)).status == "aborted"
        assert (await again.resume(run.id)).output == "another"


async def test_a_run_that_is_resumed_while_it_is_being_aborted_is_resumed_then() -> None:
    llm, memory = HeldModel(["an answer", "another"], at=0), HeldMemory()
    async with Agent(llm, memory=memory) as agent:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "answer")
            await llm.held.begun.wait()
            run = await _the_run(agent)
            await agent.send_command(run.id, Abort())
            await memory.held.begun.wait()
            await agent.send_command(run.id, Resume())
            memory.held.go_on.set()
        run = await _the_run(agent)
    assert (run.status, run.output) == ("completed", "another")


async def test_a_run_can_be_aborted_and_resumed_at_once() -> None:
    llm = HeldModel(["an answer", "another"], at=0)
    async with Agent(llm) as agent:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "answer")
            await llm.held.begun.wait()
            run = await _the_run(agent)
            await agent.journal.send_commands(run.id, Abort(), Resume())
        run, types = await _the_run(agent), await _types(agent)
    assert (run.status, run.output) == ("completed", "another")
    assert types.index("aborted") < types.index("resumed")


async def test_commands_from_before_a_run_is_executed_count_in_their_order() -> None:
    async with Agent(MockProvider(["an answer"])) as agent:
        run = await agent.journal.create(agent.request("answer"))
        await agent.journal.send_commands(run.id, Abort(), Resume(), Abort(), Resume())
        log = await agent.journal.claim(run.id)
        assert log is not None
        async with log:
            assert (await agent.execute(log)).output == "an answer"
        types = await _types(agent)
    assert [each for each in types if each in {"aborted", "resumed"}] == ["aborted", "resumed"] * 2


async def test_a_paused_run_can_be_aborted() -> None:
    llm = HeldModel(["an answer"], at=0)
    async with Agent(llm) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "answer")
        await llm.held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Pause())
        await agent.send_command(run.id, Abort())
        assert (await _ended(agent)).status == "aborted"


async def test_what_the_user_says_meanwhile_is_read_before_the_next_turn() -> None:
    held = Held()
    llm = MockProvider([_CALL, "done, in blue"])
    async with (
        Agent(llm, tools=[_held_tool(held)]) as agent,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.run, "做一个标志")
        await held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Reply(text="请用蓝色"))
        with anyio.fail_after(10):
            while "message_received" not in await _types(agent):
                await anyio.lowlevel.checkpoint()
        held.go_on.set()
        await _ended(agent)
    roles = [message.role for message in llm.calls[1].messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert llm.calls[1].messages[-1].text == "请用蓝色"


async def test_what_the_user_says_during_the_last_answer_is_answered_too() -> None:
    llm = HeldModel(["first answer", "second answer"], at=0)
    async with Agent(llm) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "answer")
        await llm.held.begun.wait()
        run = await _the_run(agent)
        await agent.send_command(run.id, Reply(text="and something else"))
        with anyio.fail_after(10):
            while "message_received" not in await _types(agent):
                await anyio.lowlevel.checkpoint()
        llm.held.go_on.set()
        run = await _ended(agent)
    assert run.output == "second answer"
    assert [message.role for message in llm.calls[1].messages] == ["system", "user", "assistant", "user"]
