"""The context of a run: dependencies, data and additional tools, for tools and instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loom_core.agent import Agent, AgentTool, Journal, Run, RunContext, RunHost
from loom_core.errors import InvalidInputError
from loom_core.llm.messages import SystemMessage
from loom_core.testing import MockLLM, call
from loom_core.tools import CallContext, tool


@dataclass
class Shop:
    name: str
    prices: dict[str, int]


_TEA = Shop("茶馆", {"茶": 9})


@tool(read_only=True, open_world=False)
async def price(context: RunContext[Shop], article: str) -> int:
    """Return the price of an article."""
    return context.deps.prices[article]


def _system(llm: MockLLM) -> str:
    return next(each.text for each in llm.calls[-1].messages if isinstance(each, SystemMessage))


async def test_a_tool_gets_the_run_and_the_dependencies_and_a_model_does_not_see_them() -> None:
    seen: list[RunContext[Shop]] = []

    def stock(article: str, context: RunContext[Shop] | None = None) -> str:
        """Say how much there is."""
        assert context is not None
        seen.append(context)
        return f"{article}: {context.deps.name}"

    llm = MockLLM([call("stock", article="茶"), "有"])
    agent = Agent(llm, tools=[stock], permissions="allow", deps=_TEA)
    result = await agent.run("有茶吗？", caller="token:7", context={"customer": "C-17"})
    (context,) = seen
    assert llm.tool_results == ["茶: 茶馆"]
    assert list(llm.calls[0].tools[0].parameters["properties"]) == ["article"]
    assert (context.caller, context.session_id, context.run.id) == (
        "token:7",
        result.session_id,
        result.run_id,
    )
    assert context.data == {"customer": "C-17"}
    assert context.usage.iterations == 1
    assert (context.call_id, context.run_id) == ("call_1", result.run_id)


async def test_a_run_may_replace_the_dependencies_and_add_tools() -> None:
    def discount(percent: int) -> str:
        """Give a discount."""
        return f"-{percent} %"

    llm = MockLLM([[call("price", article="茶"), call("discount", percent=5)], "好", "好"])
    agent = Agent(llm, tools=[price], permissions="allow", deps=_TEA)
    await agent.run("多少钱？", deps=Shop("酒馆", {"茶": 12}), tools=[discount])
    assert llm.tool_results == ["12", "-5 %"]
    await agent.run("多少钱？")
    assert [each.name for each in llm.calls[-1].tools] == ["price"]


async def test_resume_takes_what_the_journal_does_not_have(tmp_path: Path) -> None:
    def sell(context: RunContext[Shop]) -> str:
        """Sell it."""
        return context.deps.name

    journal = Journal(tmp_path / "runs.db")
    failed = await Agent(MockLLM([]), journal=journal, permissions="allow").run("卖")
    llm = MockLLM([call("sell"), "卖了"])
    agent = Agent(llm, journal=journal, permissions="allow")
    assert (await agent.resume(failed.run_id, deps=_TEA, tools=[sell])).output == "卖了"
    assert llm.tool_results == ["茶馆"]
    await journal.aclose()


async def test_a_host_executes_runs_with_the_dependencies_of_its_agent() -> None:
    llm = MockLLM([call("price", article="茶"), "好"])
    agent = Agent(llm, tools=[price], deps=_TEA)
    async with RunHost(agent.journal, {agent.name: agent}) as host:
        run = await host.start(agent.request("多少钱？"))
        await agent.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
    assert llm.tool_results == ["9"]


async def test_an_agent_as_a_tool_gets_dependencies_and_data_of_the_calling_run() -> None:
    def inner(context: RunContext[Shop]) -> str:
        """Say who asks."""
        return f"{context.deps.name} {context.data}"

    helper = Agent(
        MockLLM([call("inner"), lambda request: request.messages[-1].text]),
        tools=[inner],
        permissions="allow",
        name="helper",
        description="Helps.",
    )
    llm = MockLLM([call("helper", goal="谁？"), "好"])
    await Agent(llm, tools=[AgentTool(helper)], deps=_TEA).run("谁？", context={"customer": "C-17"})
    assert llm.tool_results == ["茶馆 {'customer': 'C-17'}"]


async def test_a_tool_of_an_agents_runs_says_so_if_anything_else_calls_it() -> None:
    with pytest.raises(TypeError, match="The tool price needs a RunContext, which only the runs of an agent"):
        await price.call({"article": "茶"}, context=CallContext())


def _of_context(context: RunContext[Shop]) -> str:
    return f"{context.deps.name}, {context.run.request.goal}"


def _of_run(run: Run) -> str:
    return f"茶馆, {run.request.goal}"


def _of_anything(run: Any) -> str:
    return f"茶馆, {run.request.goal}"


@pytest.mark.parametrize("instructions", [_of_context, _of_run, _of_anything])
async def test_instructions_are_a_function_of_the_context_or_of_the_run(
    instructions: Callable[..., Any],
) -> None:
    llm = MockLLM(["y"])
    await Agent(llm, system_prompt=instructions, deps=_TEA).run("卖茶")
    assert _system(llm).startswith("茶馆, 卖茶")


async def test_the_context_is_a_json_object_that_an_idempotency_key_holds_to() -> None:
    agent = Agent(MockLLM(["好", "好"]))
    for wrong, why in (("C-17", "not an object"), ({"a": object()}, "JSON")):
        with pytest.raises(InvalidInputError, match=why):
            await agent.run("x", context=wrong)  # type: ignore[arg-type]
    first = await agent.run("x", context={"customer": "A"}, idempotency_key="1")
    again = await agent.run("x", context={"customer": "A"}, idempotency_key="1")
    assert again.run_id == first.run_id
    with pytest.raises(InvalidInputError, match="was used for another context"):
        await agent.run("x", context={"customer": "B"}, idempotency_key="1")
