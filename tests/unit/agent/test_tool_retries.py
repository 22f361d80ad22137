"""Calls that an agent repeats: in its journal, across pauses, stops and crashes; and what the model reads."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.agent import Abort, Agent, Budget, Journal, Pause, Pending, Resume
from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.runs.events import EventType, StreamEvent
from loom_core.testing import AgentTester, MockLLM, call
from loom_core.tools import CallContext, ToolFailure, ToolOutput, ToolRetries, ToolRetry, tool

_AT_ONCE = ToolRetries(base=0.0)
_MUCH_LATER = ToolRetries(base=10_000.0, cap=10_000.0)


class _Post:
    """A tool that sends, once; the office is closed so many times before."""

    def __init__(self, *, closed: int, refuses: bool = True) -> None:
        self.sent: list[str] = []
        self.asked = 0

        @tool(open_world=False)
        async def send(text: str) -> ToolOutput:
            """Send a letter."""
            self.asked += 1
            if self.asked <= closed:
                failure = ToolFailure("unavailable", nothing_done=refuses)
                return ToolOutput("邮局关门了。", is_error=True, failure=failure)
            self.sent.append(text)
            return ToolOutput("sent")

        self.tool = send


async def test_every_attempt_is_in_the_journal_and_the_call_counts_once() -> None:
    post = _Post(closed=2)
    tester = AgentTester(
        Agent(MockLLM([call("send", text="信"), "好"]), tools=[post.tool], permissions="allow",
              budget=Budget(tool_calls=1), tool_retries=_AT_ONCE)
    )  # fmt: skip
    result = await tester.run("寄信")

    assert (post.sent, tester.assert_called("send", times=1).text) == (["信"], "sent")
    assert result.spent.tool_calls == 1
    retries = [event.payload for event in tester.of_type("tool_retry")]
    shown = ("tool", "status", "problem", "attempt", "attempts")
    assert [[it[name] for name in shown] for it in retries] == [
        ["send", "error", "邮局关门了。", 2, 3],
        ["send", "error", "邮局关门了。", 3, 3],
    ]
    of_call: list[EventType] = ["tool_start", "tool_retry", "tool_result"]
    types = [event.type for event in tester.events if event.type in of_call]
    assert types == ["tool_start", "tool_retry", "tool_start", "tool_retry", "tool_start", "tool_result"]


@pytest.mark.parametrize(("retries", "asked"), [(0, 1), (1, 2), (_AT_ONCE, 3)])
async def test_an_agent_has_a_number_of_retries_or_a_policy(retries: int | ToolRetries, asked: int) -> None:
    calls = 0

    @tool(read_only=True, open_world=False)
    async def look() -> str:
        """Look."""
        nonlocal calls
        calls += 1
        raise NetError("The network is away.", failure="interrupted")

    if isinstance(retries, int):
        retries = ToolRetries(base=0.0, retries=retries)
    await Agent(MockLLM([call("look"), "好"]), tools=[look], tool_retries=retries).run("看")

    assert calls == asked


@pytest.mark.parametrize(("given", "error"), [("2", ConfigError), (-1, InvalidInputError)])
def test_a_wrong_number_is_told_at_once(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Agent(MockLLM(["好"]), tool_retries=given)


async def _until_it_waits(agent: Agent, *, goal: str = "寄信") -> str:
    """Run until a call waits for its retry, then leave the run as a killed process would; its id."""
    async with aclosing(agent.stream(goal)) as events:
        async for event in events:
            if event.type == "tool_retry":
                return event.run_id
    raise AssertionError("nothing was retried")


async def test_a_call_that_waited_when_the_process_died_goes_on_with_the_attempts_that_are_left(
    tmp_path: Path,
) -> None:
    asked: list[Pending] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending)
        return True

    def agent(post: _Post, script: list[Any], retries: ToolRetries) -> Agent:
        return Agent(
            MockLLM(script), tools=[post.tool], journal=Journal(tmp_path / "runs.db"),
            approve=approve, tool_retries=retries,
        )  # fmt: skip

    before, after = _Post(closed=1), _Post(closed=100)
    async with agent(before, [call("send", text="信")], _MUCH_LATER) as first:
        run_id = await _until_it_waits(first)
    async with agent(after, ["好"], _AT_ONCE) as second:
        result = await second.resume(run_id)
        events = await second.journal.events(run_id)

    assert (before.asked, after.asked, result.status) == (1, 2, "completed"), "three attempts in all"
    assert [pending.kind for pending in asked] == ["approval"], "nothing was in doubt"
    assert [it.payload["attempt"] for it in events if it.type == "tool_retry"] == [2, 3]
    (told,) = [it.payload["text"] for it in events if it.type == "tool_result"]
    assert told == "邮局关门了。 It was tried 3 times."


async def test_a_paused_run_starts_no_attempt(tmp_path: Path) -> None:
    @tool(open_world=False)
    async def send(context: CallContext) -> ToolOutput:
        """Send, after the run was paused meanwhile."""
        if not paused.is_set():
            await agent.send_command(context.run_id, Pause())
            await paused.wait()
            failure = ToolFailure("connection", nothing_done=True)
            return ToolOutput("邮局关门了。", is_error=True, failure=failure)
        return ToolOutput("sent")

    paused = anyio.Event()
    agent = Agent(
        MockLLM([call("send"), "好"]), tools=[send], journal=Journal(tmp_path / "runs.db"),
        permissions="allow", wait_for_commands=True, tool_retries=_AT_ONCE,
    )  # fmt: skip
    types: list[EventType] = []
    with anyio.fail_after(60):
        async with agent, aclosing(agent.stream("寄信")) as events:
            async for event in events:
                types.append(event.type)
                if event.type == "paused":
                    paused.set()
                if event.type == "tool_retry":
                    await agent.send_command(event.run_id, Resume())

    order: list[EventType] = ["tool_start", "paused", "tool_retry", "resumed", "tool_start", "tool_result"]
    assert [each for each in types if each in order] == order


async def test_a_run_that_is_stopped_during_a_wait_ends_at_once() -> None:
    agent = Agent(
        MockLLM([call("send", text="信")]), tools=[_Post(closed=1).tool], permissions="allow",
        wait_for_commands=True, tool_retries=_MUCH_LATER,
    )  # fmt: skip
    seen: list[StreamEvent] = []
    with anyio.fail_after(60):
        async with agent, aclosing(agent.stream("寄信")) as events:
            async for event in events:
                seen.append(event)
                if event.type == "tool_retry":
                    await agent.send_command(event.run_id, Abort())

    assert seen[-1].type == "aborted"
    (stopped,) = [event.payload for event in seen if event.type == "tool_result"]
    assert stopped["text"].startswith("该调用没有执行"), "it is not in doubt"


async def test_a_run_does_not_wait_for_longer_than_it_has() -> None:
    post, llm = _Post(closed=1), MockLLM([call("send", text="信"), "好"])
    agent = Agent(
        llm, tools=[post.tool], permissions="allow", budget=Budget(seconds=5000), tool_retries=_MUCH_LATER
    )
    result = await agent.run("寄信")

    assert (result.output, llm.tool_results) == ("好", ["邮局关门了。"])


@tool(read_only=True, open_world=False)
async def weather(day: str) -> str:
    """Weather of a day."""
    if not day.startswith("2026-"):
        raise ToolRetry(f"{day!r} is not a date.", advice="Write it as in 2026-11-27.")
    return "晴"


async def test_a_tool_may_ask_the_model_for_other_arguments() -> None:
    llm = MockLLM([call("weather", day="明天"), call("weather", day="2026-11-28"), "晴"])
    tester = AgentTester(Agent(llm, tools=[weather]))
    await tester.run("明天天气")

    assert llm.tool_results == ["'明天' is not a date. Write it as in 2026-11-27.", "晴"]
    assert not tester.of_type("tool_retry"), "the call itself is not repeated"


async def test_a_tool_that_asks_too_often_in_a_row_is_not_called_any_more(tmp_path: Path) -> None:
    def days(*days: str) -> list[Any]:
        return [call("weather", day=day) for day in days]

    journal = Journal(tmp_path / "runs.db")
    llm = MockLLM([*days("1", "2", "2026-01-01", "3", "4"), [*days("5", "6")], *days("2026-01-02"), "不知道"])
    agent = Agent(llm, tools=[weather], journal=journal)
    result = await agent.run("天气")
    statuses = [
        event.payload["status"]
        for event in await journal.events(result.run_id)
        if event.type == "tool_result"
    ]
    assert statuses == ["error"] * 2 + ["success"] + ["error"] * 4 + ["denied"]
    assert "`weather` 已连续多次拒绝所给的参数" in llm.tool_results[-1]

    # A resumed run may try again, as a user may have said more.
    again = Agent(MockLLM([*days("2026-01-03"), "晴"]), tools=[weather], journal=journal)
    continued = await again.run("再看看", session_id=result.session_id)
    assert continued.output == "晴"
    await journal.aclose()


async def test_a_refused_write_names_what_only_reads() -> None:
    @tool(read_only=True, open_world=False)
    async def read_page(name: str) -> str:
        """Read a page."""
        return name

    @tool(open_world=False)
    async def write_page(name: str) -> str:
        """Write a page."""
        return name

    tools: Mapping[str, Any] = {"tools": [read_page, write_page, weather]}
    for permissions, told in (
        ("deny", "such as `read_page`, which only reads"),
        ("ask", "with a tool that only reads (read_page)"),
    ):
        llm = MockLLM([call("write_page", name="x"), "no"])
        await Agent(llm, permissions=permissions, **tools).run("Write it.")
        (text,) = llm.tool_results
        assert told in text
        assert "The operator can permit it by a rule in `permissions`." in text
