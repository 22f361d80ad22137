"""Runs that are not begun, not resumed, or not gone on with, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.request import MAX_DEPTH
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.run import Budget
from loom_core.tools.depth import DEPTH_META_KEY, inherit_depth
from tests.fixtures.adding_agents import add, calling, tool_call


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Agent("no-such-provider"), ConfigError),
        (lambda: Agent(MockProvider([]), tools=[add, add]), ConfigError),
        (lambda: Agent(MockProvider([])).request("  "), InvalidInputError),
        (lambda: Agent(MockProvider([])).request("g", output_schema={"type": "array"}), InvalidInputError),
    ],
)
def test_what_cannot_work_is_said_at_once(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def _with(part: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": {"名称": part}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_schema": _with({"$ref": "http://127.0.0.1:1/x"})}, "which is not in it"),
        ({"output_schema": {"$ref": "#/nowhere"}}, "which is not in it"),
        ({"output_schema": _with({"type": "string", "pattern": "("})}, "名称"),
        ({"output_schema": {"type": "object", "allOf": [{"$ref": "#"}]}}, "nested too deeply"),
        ({"output_schema": {"type": "object", "default": object()}}, "JSON values"),
        ({"allowed_tools": ["re:("]}, "`allowed_tools`.* is not a usable regular expression"),
        ({"allowed_tools": [5]}, "`allowed_tools` contains 5"),
        ({"allowed_tools": 5}, "`allowed_tools` is 5"),
        ({"allowed_tools": "look"}, "`allowed_tools` is 'look'"),
        ({"session_id": 5}, "`session_id` is 5"),
        ({"caller": 3}, "`caller` is 3"),
        ({"idempotency_key": 3}, "`idempotency_key` is 3"),
        ({"metadata": [1]}, r"`metadata` is \[1\]"),
        ({"metadata": {"来源": object()}}, "JSON values"),
        ({"budget": "许多" * 1000}, r"^.{,300}$"),
    ],
)
async def test_a_run_that_cannot_work_is_not_begun(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Agent(MockProvider([]), tools=[add]) as agent:
        with pytest.raises(InvalidInputError, match=said):
            await agent.run("查一查", **options)
        assert await agent.journal.runs() == []
    assert not caplog.records


async def test_agents_may_not_start_each_other_without_end() -> None:
    agent = Agent(MockProvider(["fine"]))
    with inherit_depth({DEPTH_META_KEY: MAX_DEPTH}):
        assert (await agent.run("go")).output == "fine"
    with inherit_depth({DEPTH_META_KEY: MAX_DEPTH + 1}), pytest.raises(InvalidInputError, match="4 agents"):
        await agent.run("go")
    await agent.aclose()


async def test_a_run_of_another_agent_is_not_resumed() -> None:
    agent = Agent(MockProvider(["fine"]), name="one")
    result = await agent.run("go")
    other = Agent(MockProvider([]), name="two", journal=agent.journal)
    with pytest.raises(InvalidInputError, match="one"):
        await other.resume(result.run_id)
    with pytest.raises(NotFoundError):
        await other.resume("run_nothing")
    await agent.aclose()


async def test_a_model_that_goes_round_in_circles_is_reminded_refused_and_stopped() -> None:
    def again(request: ChatRequest) -> MockAnswer:
        return calling(tool_call("add", f"c{len(request.messages)}", a=1, b=2))

    llm = MockProvider(again)
    async with Agent(llm, tools=[add]) as agent:
        result = await agent.run("add for ever")
        events = await agent.journal.events(result.run_id)
        messages = await agent.parts.memory.messages(result.session_id)
    assert result.status == "failed"
    assert [event.payload["action"] for event in events if event.type == "loop_detected"] == [
        "remind", "refuse", "stop",
    ]  # fmt: skip
    assert events[-1].payload["failure"] == "loop"
    assert result.spent.tool_calls == 3
    assert isinstance(messages[-1], ToolMessage), "the last call has a result, too"


async def test_a_model_that_calls_tools_when_its_budget_is_used_up_is_not_obeyed() -> None:
    def stubborn(request: ChatRequest) -> MockAnswer:
        number = len(request.messages)
        return calling(tool_call("add", f"c{number}", a=number, b=0), text=f"turn {number}")

    async with Agent(MockProvider(stubborn), tools=[add]) as agent:
        result = await agent.run("go on", budget=Budget(iterations=2))
    assert (result.status, result.spent.iterations, result.spent.tool_calls) == ("failed", 3, 2)
