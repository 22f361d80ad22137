"""Mistakes in what an agent or a run is given are told where they are made."""

from __future__ import annotations

from typing import Any

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.hooks import Hooks
from loom_core.agent.loop_guard import LoopGuard
from loom_core.errors import ConfigError, InvalidInputError
from loom_core.llm.mock import MockProvider
from loom_core.runs.run import Budget
from loom_core.tools.permission.permissions import Permissions


def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    ("part", "given", "told"),
    [
        ("tools", ["read_file"], r"'read_file' is not a tool\. .*create\('tool', 'read_file'"),
        ("tools", [Agent(MockProvider([]))], r"<Agent default> is not a tool\. `AgentTool"),
        ("tools", [int], "is not a tool. Give tools, or functions"),
        ("tools", _add, "Give a list of tools and functions"),
        ("hooks", Hooks(), "Give a list of hooks"),
        ("hooks", [Hooks], "is not a `Hooks`. Give an object"),
        ("permissions", "alow", "`permissions` cannot be 'alow'"),
        ("permissions", [], r"rules go into `Permissions\(\[…\]\)`"),
        ("budget", {"tokens": 3}, r"Give `Budget\("),
        ("journal", "runs.db", r"Give `Journal\(Path"),
        ("memory", "sqlite", "`memory` cannot be 'sqlite'"),
        ("knowledge", "手册", r"Give `ContextRetriever\("),
        ("approve", True, "an `async` function"),
        ("loop_guard", LoopGuard(), "Give a factory"),
        ("toolbox", [], r"Give `Toolbox\(…\)`; a list of tools is `tools`"),
        ("scheduler", 10, r"Give `Scheduler\("),
        ("audit", "audit.jsonl", r"Give `AuditLog\("),
        ("options", {"temprature": 0.2}, "max_tokens, stop, temperature"),
        ("options", "temperature", "a mapping with some of"),
        ("compaction", True, r"Give `Compaction\("),
        ("name", " ", "An agent cannot be named ' '"),
    ],
)
def test_an_agent_is_not_made_of_what_cannot_work(part: str, given: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Agent(MockProvider([]), **{part: given})  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["iterations", "tokens", "cost", "tool_calls", "seconds"])
@pytest.mark.parametrize("most", [-1, "5", float("nan")])
def test_a_budget_is_made_of_numbers_from_0_on(part: str, most: Any) -> None:
    with pytest.raises(ConfigError, match=f"`{part}` of a budget cannot be"):
        Budget(**{part: most})


@pytest.mark.parametrize("llm", [None, MockProvider, 5])
def test_what_is_no_model_is_refused(llm: Any) -> None:
    with pytest.raises(
        ConfigError, match=r'is not a model\. Give a provider, or the name of a vendor such as "'
    ):
        Agent(llm)


@pytest.mark.parametrize(
    "settings",
    [
        {"window": -5},
        {"warn_at": 2.0},
        {"apply_at": 0.5},
        {"target": 0.0},
        {"target": 0.8},
        {"llm": "deepseek"},
    ],
)
def test_compaction_that_could_never_work_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Compaction(**settings)


@pytest.mark.parametrize(
    ("goal", "options", "told"),
    [
        (None, {}, "The goal is None, not a string"),
        ("  ", {}, "The goal is empty"),
        ("加", {"sesion_id": "s"}, "no option 'sesion_id'. There are: .*session_id"),
        ("加", {"budget": {"tokens": 1}}, "Give a `Budget`"),
        ("加", {"allowed_tools": "_add"}, "Give a list of names or patterns"),
        ("加", {"output_schema": int}, "Give a Pydantic model, or a JSON Schema"),
        ("加", {"output_schema": {"type": "array"}}, "does not describe an object"),
        ("加", {"output_schema": {"type": "object", "properties": 3}}, "The output schema .*3"),
    ],
)
async def test_a_run_is_not_begun_with_what_cannot_work(
    goal: Any, options: dict[str, Any], told: str
) -> None:
    llm = MockProvider(["3"])
    async with Agent(llm, tools=[_add]) as agent:
        with pytest.raises(InvalidInputError, match=told):
            await agent.run(goal, **options)
        assert not await agent.journal.runs()
    assert not llm.calls


def test_what_is_right_is_taken_as_it_is() -> None:
    agent = Agent(
        MockProvider([]),
        name="助手",
        tools=(_add,),
        permissions=Permissions(),
        budget=Budget(tokens=9),
        loop_guard=None,
        compaction=None,
    )
    assert repr(agent) == "<Agent 助手>"
    assert [tool.name for tool in agent.parts.toolbox.tools()] == ["_add"]
