"""What cannot be a step is refused before anything runs, and what a step cannot use is told with its name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeAlias

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.agent.teams.chain import Chain
from loom_core.agent.teams.multi_agent import MultiAgentSystem
from loom_core.agent.teams.router import Route, Router
from loom_core.agent.teams.step import StepError
from loom_core.agent.teams.workflow import Workflow, WorkflowStep
from loom_core.errors import ConfigError
from loom_core.llm.mock import MockProvider


async def _no(_: object) -> bool:
    return False


def _pieces(_: object) -> Generator[int]:
    yield 1


async def _later(_: object) -> AsyncGenerator[int]:
    yield 1


def _wrong(given: object) -> Any:
    """What type checkers would not let through."""
    return given


def _odd(text: str) -> bool:
    return bool(1 / len(text[9:]))


def _agent(name: str = "写手", description: str = "") -> Agent:
    return Agent(MockProvider(["好的"]), name=name, description=description)


_Make: TypeAlias = Callable[[Any], object]
_PLACES: list[_Make] = [
    lambda step: Chain([("甲", step)]),
    lambda step: Router([Route(name="甲", run=step, when="x")]),
    lambda step: Workflow([WorkflowStep("甲", step)]),
    lambda step: Workflow([WorkflowStep("甲", str, on_failure="fallback", fallback=step)]),
]


@pytest.mark.parametrize("make", _PLACES)
@pytest.mark.parametrize("step", ["x", 5, Chain])
def test_what_cannot_be_run_is_no_step(make: _Make, step: object) -> None:
    with pytest.raises(ConfigError, match=r"The step '甲' of .* cannot be .*Give an agent"):
        make(step)


@pytest.mark.parametrize("make", _PLACES)
@pytest.mark.parametrize("step", [_pieces, _later])
def test_a_generator_is_no_step(make: _Make, step: object) -> None:
    with pytest.raises(ConfigError, match=r"The step '甲' of .* is a generator"):
        make(step)


_MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: Chain(_wrong(_agent())), "Give it a list"),
    (lambda: Chain([_wrong((str, "x"))]), "cannot be named <class 'str'>"),
    (lambda: Chain([("", str)]), "cannot be named ''"),
    (
        lambda: Router([Route(name="甲", run=str, when=_wrong(_no))]),
        "`when` of the route '甲' .* not `async`",
    ),
    (lambda: Router([Route(name="甲", run=str, description="A")], llm=_wrong(5)), "5 is not a model"),
    (lambda: Workflow([WorkflowStep("甲", str, when=_wrong(_no))]), "`when` of the step '甲' .* not `async`"),
    (lambda: Workflow([WorkflowStep("甲", str, given=_no)]), "`given` of the step '甲'"),
    (lambda: Workflow([WorkflowStep("甲", str, on_failure=_wrong("skp"))]), "fail, skip, fallback"),
    (lambda: Workflow([WorkflowStep("甲", str, seconds=0)]), "is 0. Use a number above 0"),
    (lambda: Workflow([_wrong(("甲", str))]), "Give `WorkflowStep"),
    (lambda: MultiAgentSystem([_wrong(str)]), "<class 'str'> is not an agent"),
    (lambda: MultiAgentSystem([_agent(description="写")], max_handoffs=-1), "Use 0 or more"),
    (lambda: AgentTool(_wrong("研究员")), "'研究员' is not an agent"),
]


@pytest.mark.parametrize(("make", "told"), _MISTAKES)
def test_other_mistakes_are_told_where_they_are_made(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "The input of the agent is empty"),
        (" ", "The input of the agent is empty"),
        (object(), "The input is neither text nor JSON: <object object"),
    ],
)
async def test_what_an_agent_cannot_work_on_is_told_as_that(value: object, told: str) -> None:
    def first(_: str) -> object:
        return value

    with pytest.raises(StepError, match=f"The step '写手' failed: {told}"):
        await Chain([first, _agent()]).run("x")


async def test_a_rule_that_raises_is_named_with_its_route() -> None:
    router = Router([Route(name="退款", run=str, when=_odd)])
    with pytest.raises(StepError, match="The rule of the route '退款' failed: ZeroDivisionError") as raised:
        await router.run("x")
    assert raised.value.step == "退款"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
