"""An agent as a tool of another one: what it is given, what it answers, and what it takes."""

from __future__ import annotations

import math
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.errors import ConfigError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.observability.log_fields import current_fields, logging_with
from loom_core.runs.journal import Journal
from loom_core.runs.run import Budget
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.auditing.file import read_entries
from loom_core.tools.execution.retries import ToolRetries
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext
from loom_core.tools.permission.permissions import Permissions
from tests.fixtures.called_agents import (
    boss_of,
    last_result,
    one_call,
    runs_by_profile,
    tokens_of_turns,
    writer,
)


async def test_the_answer_of_the_other_agent_is_what_the_call_says() -> None:
    child = Agent(MockProvider(["巴黎。"]), name="researcher")
    boss = boss_of(child)
    result = await boss.run("法国的首都？")
    llm = boss.parts.llm
    assert isinstance(llm, MockProvider)
    assert result.output == "好的。"
    assert last_result(llm.calls[1]) == "巴黎。"
    runs = await runs_by_profile(boss)
    assert runs["researcher"].request.goal == "查资料"
    metadata = {**runs["researcher"].request.metadata}
    metadata.pop("trace", None)  # there is one where a test before had spans recorded
    assert metadata == {"parent_run": result.run_id, "parent_call": "c1"}
    assert runs["researcher"].request.depth == 1


async def test_what_both_agents_call_is_on_the_audit_for_the_caller(tmp_path: Path) -> None:
    logged: list[str] = []

    @tool
    def note(text: str) -> str:
        """Writes it down."""
        logged.append(current_fields().get("caller", ""))
        return text

    path = tmp_path / "audit.jsonl"
    llm = MockProvider([one_call("note", text="巴黎"), "巴黎。"])
    allowed = Permissions(otherwise="allow")
    child = Agent(llm, tools=[note], name="researcher", permissions=allowed, audit=AuditLog(path))
    boss = boss_of(child, permissions=allowed, audit=AuditLog(path))
    with logging_with({"caller": "爱丽丝"}):
        await boss.run("法国的首都？", caller="token:3f2a9c")

    entries = list(read_entries(path))
    assert {entry["tool"] for entry in entries} == {"研究员", "note"}
    assert logged == ["爱丽丝"], "the log of a run does not know whose it is"
    assert {(entry["caller"], entry["caller_id"]) for entry in entries} == {("爱丽丝", "token:3f2a9c")}


async def test_what_the_other_agent_takes_counts_for_the_run_that_calls() -> None:
    @tool(read_only=True, open_world=False)
    def look() -> str:
        """Look."""
        return "seen"

    child = Agent(MockProvider([one_call("look"), one_call("look", id_="c2"), "found"]), tools=[look])
    boss = boss_of(child)
    result = await boss.run("find it")
    spent = (await runs_by_profile(boss))["default"].spent
    assert spent.tool_calls == 2
    assert result.spent.tool_calls == 3
    assert result.spent.iterations == 2
    assert result.spent.usage.input_tokens > spent.usage.input_tokens > 0


async def test_the_other_agent_may_not_take_more_than_the_run_that_calls_has_left() -> None:
    child = Agent(MockProvider(["x"]), budget=Budget(iterations=7, tokens=50, cost=9.0))
    boss = boss_of(child, budget=Budget(iterations=3, tokens=1_000_000, cost=2.0, tool_calls=5, seconds=60))
    await boss.run("go")
    budget = (await runs_by_profile(boss))["default"].request.budget
    assert (budget.iterations, budget.tokens, budget.cost, budget.tool_calls) == (7, 50, 2.0, 4)
    assert budget.seconds is not None
    assert 0 < budget.seconds < 60


async def test_a_call_that_times_out_goes_on_with_its_retry_and_then_aborts_the_other_agent() -> None:
    @tool(read_only=True, open_world=False)
    async def look() -> str:
        """Look."""
        await anyio.sleep_forever()
        return ""

    child = Agent(MockProvider([one_call("look")]), tools=[look], name="researcher")
    limits = Scheduler(tools={"研究员": 0.5})
    boss = boss_of(child, scheduler=limits, tool_retries=ToolRetries(retries=1, base=0.0))
    result = await boss.run("find it")
    assert result.status == "completed"
    assert result.spent.usage.input_tokens == await tokens_of_turns(boss)
    runs = await boss.journal.runs()
    assert [(run.request.profile, run.status) for run in reversed(runs)] == [
        ("boss", "completed"),
        ("researcher", "aborted"),
    ]


async def test_what_failed_there_is_told_with_as_much_as_there_is() -> None:
    script = [MockAnswer("half ", calls=(ToolCallPart("c1", "none", {}),)), "the half"]
    child = Agent(MockProvider(script), budget=Budget(iterations=1))
    boss = boss_of(child)
    await boss.run("go")
    llm = boss.parts.llm
    assert isinstance(llm, MockProvider)
    told = last_result(llm.calls[1])
    assert told.startswith("The agent `研究员` did not reach the goal: The run has used all of its 1 turns")
    assert told.endswith("Its output so far:\nthe half")
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
        return told[-1] if told else one_call("deeper", goal="deeper")

    agent = Agent(MockProvider(script))
    for _ in range(6):
        agent = Agent(MockProvider(script), tools=[AgentTool(agent, name="deeper", description="More.")])
    result = await agent.run("go")
    assert "4 agents are above this one" in result.output
    assert len(await agent.journal.runs()) == 4


async def test_people_see_what_is_done_there() -> None:
    @tool(read_only=True, open_world=False)
    def look() -> str:
        """Look."""
        return "seen"

    told: list[str] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        told.append(message)

    child = Agent(MockProvider([one_call("look"), "found"]), tools=[look])
    helper = AgentTool(child, name="研究员", description="Finds.")
    await helper.call({"goal": "find"}, context=CallContext(progress=progress))
    assert told == ["研究员/look"]


async def test_calls_run_side_by_side_where_the_tools_of_the_agent_may() -> None:
    written: list[str] = []
    assert AgentTool(Agent(MockProvider([])), description="Thinks.").is_concurrency_safe
    assert not AgentTool(writer(written), description="Writes.").is_concurrency_safe


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
    assert await journal.find_by_key("k") is None
    result = await agent.run("go", idempotency_key="k", caller="王芳")
    assert await journal.find_by_key("k") is None
    found = await journal.find_by_key("k", caller="王芳")
    assert found is not None
    assert found.id == result.run_id
