"""Whatever people tell a run, and whenever: it ends, and its journal and its conversation are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.agent.agent import Agent
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.transport.replay import pair_tool_results
from loom_core.runs.commands import Abort, ApprovalDecision, Command, Pause, Reply, Resume
from loom_core.runs.run import Run
from loom_core.tools.function_tool import tool

_ORDERS: dict[str, Callable[[Run], Command]] = {
    "pause": lambda run: Pause(),
    "resume": lambda run: Resume(),
    "abort": lambda run: Abort(reason="够了"),
    "reply": lambda run: Reply(text="再快一点"),
    "approve": lambda run: ApprovalDecision(
        id=run.pending[0].id if run.pending else "none", action="approve"
    ),
    "deny": lambda run: ApprovalDecision(id=run.pending[-1].id if run.pending else "none", action="deny"),
}
_GOES_ON_BY = {"paused": "resume", "input_required": "approve"}


def _script(request: ChatRequest) -> str | MockAnswer:
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if turn > 2:
        return "完成"
    calls = (
        ToolCallPart(f"a{turn}", "look", {"number": turn}),
        ToolCallPart(f"b{turn}", "send", {"number": turn}),
        ToolCallPart(f"c{turn}", "look", {"number": turn + 10}),
    )
    return MockAnswer(f"第{turn}轮", calls=calls)


async def _driven(orders: dict[int, list[str]]) -> None:
    effects = Counter[str]()

    @tool(read_only=True, open_world=False)
    async def look(number: int) -> str:
        """Look."""
        await anyio.lowlevel.checkpoint()
        return f"seen {number}"

    @tool(open_world=False)
    async def send(number: int) -> str:
        """Send."""
        await anyio.lowlevel.checkpoint()
        effects[f"send {number}"] += 1
        return f"sent {number}"

    said = Counter[str]()
    agent = Agent(MockProvider(_script), tools=[look, send], wait_for_commands=True, compaction=None)

    async def tell(run_id: str, name: str) -> None:
        run = await agent.journal.get(run_id)
        try:
            await agent.send_command(run_id, _ORDERS[name](run))
            said[name] += 1
        except InvalidInputError:  # it does not fit how the run stands
            return

    unfinished = {"run", "follow"}

    async def drive() -> None:
        await agent.run("看看并发送")
        unfinished.discard("run")

    async with agent, anyio.create_task_group() as group:
        group.start_soon(drive)
        with anyio.fail_after(30):
            while not (runs := await agent.journal.runs()):
                await anyio.lowlevel.checkpoint()
            run = runs[0]

            async def follow() -> None:
                async for event in agent.journal.follow(run.id):
                    for name in orders.get(event.seq, ()):
                        await tell(run.id, name)
                unfinished.discard("follow")

            group.start_soon(follow)
            # A run that was aborted goes on if "resume" came next: it may have to be approved once more.
            while unfinished or run.status not in {"completed", "aborted", "failed"}:
                run = await agent.journal.wait_until_idle(run.id, after=0, seconds=0.02)
                if run.status in _GOES_ON_BY:  # what a user does at last who wants the run to end
                    await tell(run.id, _GOES_ON_BY[run.status])
        run = await agent.journal.get(run.id)
        events = await agent.journal.events(run.id, limit=10_000)
        conversation = await agent.parts.memory.messages(run.request.session_id)
    assert run.status == "completed" or (run.status == "aborted" and said["abort"])
    assert run.pending == ()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    results = Counter(event.payload["call_id"] for event in events if event.type == "tool_result")
    announced = [event.payload["calls"] for event in events if event.type == "tool_calls_start"]
    assert {call["call_id"] for calls in announced for call in calls} <= results.keys()
    assert max(results.values(), default=1) == 1
    assert max(effects.values(), default=0) <= 1
    assert pair_tool_results(conversation) == tuple(conversation)
    replies = [
        message for message in conversation if isinstance(message, UserMessage) and "再快" in message.text
    ]
    assert len(replies) == said["reply"] or run.status == "aborted"


_PLANS: Any = st.dictionaries(
    st.integers(1, 30), st.lists(st.sampled_from(sorted(_ORDERS)), min_size=1, max_size=3), max_size=5
)


@pytest.mark.slow
@settings(max_examples=40)
@given(_PLANS)
def test_a_run_ends_whole_whatever_it_is_told(orders: dict[int, list[str]]) -> None:
    anyio.run(_driven, orders)
