from __future__ import annotations

from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.spending import add_answer_usage, find_exhausted_limit
from loom_core.errors import ConfigError
from loom_core.llm.interface import ChatRequest, LLMResponse, Usage
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.run import Budget, RunUsage
from loom_core.runs.stopwatch import Stopwatch
from loom_core.tools.function_tool import tool


@tool(read_only=True, open_world=False)
async def step(number: int) -> str:
    """Take a step."""
    return f"step {number}"


def _for_ever(request: ChatRequest) -> str | MockAnswer:
    """Calls a tool as long as there is one."""
    number = len(request.messages)
    if not request.tools:
        return "目前完成的部分"
    return MockAnswer(calls=(ToolCallPart(f"c{number}", "step", {"number": number}),))


class Priced(MockProvider):
    """Answers cost a dollar."""

    def _response(self, request: ChatRequest, answer: MockAnswer) -> LLMResponse:
        response = super()._response(request, answer)
        return LLMResponse(
            response.message, response.finish, Usage(input_tokens=10, output_tokens=5, cost=1.0)
        )


async def test_turns_that_are_used_up_end_with_what_was_found() -> None:
    llm = MockProvider(_for_ever)
    async with Agent(llm, tools=[step], budget=Budget(iterations=3)) as agent:
        result = await agent.run("go on for ever")
        events = await agent.journal.events(result.run_id)
    assert (result.status, result.output) == ("failed", "目前完成的部分")
    assert "3 turns" in result.problem
    assert result.spent.iterations == 4, "one more to say what was found"
    assert not llm.calls[-1].tools
    assert "No tool can be called" in llm.calls[-1].messages[-1].text
    assert events[-1].payload["failure"] == "budget"


async def test_calls_that_are_used_up_are_refused_and_the_model_may_still_answer() -> None:
    def twice(request: ChatRequest) -> str | MockAnswer:
        results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        if results:
            return f"{len(results)} results"
        return MockAnswer(calls=tuple(ToolCallPart(f"c{n}", "step", {"number": n}) for n in range(3)))

    llm = MockProvider(twice)
    async with Agent(llm, tools=[step]) as agent:
        result = await agent.run("step", budget=Budget(tool_calls=2))
    assert (result.status, result.output, result.spent.tool_calls) == ("completed", "3 results", 2)
    texts = [message.text for message in llm.calls[1].messages if isinstance(message, ToolMessage)]
    assert texts[:2] == ["step 0", "step 1"]
    assert "all of its 2 tool calls" in texts[2]


@pytest.mark.parametrize("calls", [0, 2])
async def test_a_model_that_has_used_up_its_calls_is_offered_none_and_answers(calls: int) -> None:
    llm = MockProvider(_for_ever)
    async with Agent(llm, tools=[step]) as agent:
        result = await agent.run("go on for ever", budget=Budget(tool_calls=calls))
    assert (result.status, result.output) == ("completed", "目前完成的部分")
    assert (result.spent.tool_calls, result.spent.iterations) == (calls, calls + 1)
    assert [bool(request.tools) for request in llm.calls] == [True] * calls + [False]


@pytest.mark.parametrize(
    ("budget", "told", "turns"),
    [(Budget(tokens=30), "30 of 30 tokens", 2), (Budget(cost=2.5), "3.0000 of 2.5 US dollars", 3)],
)
async def test_tokens_and_money_end_a_run_before_the_next_turn(budget: Budget, told: str, turns: int) -> None:
    async with Agent(Priced(_for_ever), tools=[step]) as agent:
        result = await agent.run("go on for ever", budget=budget)
    assert result.status == "failed"
    assert told in result.problem
    assert result.spent.iterations == turns


async def test_time_ends_a_run_in_the_middle_of_a_call() -> None:
    @tool(read_only=True, open_world=False)
    async def sleep() -> str:
        """Sleep."""
        await anyio.sleep_forever()
        return ""

    llm = MockProvider([MockAnswer("I sleep.", calls=(ToolCallPart("c", "sleep"),))])
    async with Agent(llm, tools=[sleep]) as agent:
        result = await agent.run("sleep", budget=Budget(seconds=0.05))
        conversation = await agent.parts.memory.messages(result.session_id)
    assert result.status == "failed"
    assert "0.05 s" in result.problem
    assert result.output == "I sleep."
    assert isinstance(conversation[-1], ToolMessage)


@pytest.mark.parametrize("name", ["iterations", "tokens", "tool_calls"])
@pytest.mark.parametrize("most", [True, 2.5, float("inf"), -1, "3"])
def test_what_is_counted_is_a_whole_number(name: str, most: Any) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` of a budget .* whole number"):
        Budget(**{name: most})


@pytest.mark.parametrize("name", ["cost", "seconds"])
def test_what_is_measured_is_a_number(name: str) -> None:
    assert getattr(Budget(**{name: float("inf")}), name) == float("inf")
    for wrong in (True, float("nan"), -0.5):
        with pytest.raises(ConfigError, match=f"`{name}` of a budget"):
            Budget(**{name: wrong})


def test_what_is_used_up_counts_from_when_it_was_granted() -> None:
    budget = Budget(iterations=2, tokens=100)
    spent = RunUsage(iterations=5, usage=Usage(input_tokens=150))
    assert find_exhausted_limit(budget, spent, granted_from=RunUsage()) is not None
    assert (
        find_exhausted_limit(
            budget, spent, granted_from=RunUsage(iterations=4, usage=Usage(input_tokens=100))
        )
        is None
    )


def test_an_unknown_price_counts_as_nothing() -> None:
    spent = add_answer_usage(RunUsage(), Usage(input_tokens=1))
    assert spent.usage.cost is None
    spent = add_answer_usage(add_answer_usage(spent, Usage(cost=0.5)), Usage(input_tokens=2))
    assert (spent.usage.cost, spent.usage.input_tokens, spent.iterations) == (0.5, 3, 3)


async def test_a_stopwatch_ends_the_work_when_its_time_is_over_but_not_while_it_rests() -> None:
    now = [0.0]
    watch = Stopwatch(1.0, until=3.0, clock=lambda: now[0])
    work = anyio.CancelScope()
    watch.cancel_at_limit(work)
    assert work.deadline == float("inf")
    watch.start()
    assert work.deadline == pytest.approx(anyio.current_time() + 2.0, abs=0.1)
    now[0] = 1.5
    watch.stop()
    now[0] = 100.0
    assert work.deadline == float("inf")
    assert (watch.seconds, watch.is_expired) == (2.5, False)
    watch.set_limit(2.0)
    assert watch.is_expired
