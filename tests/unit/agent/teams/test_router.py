"""One of several ways, chosen by a rule or by a model."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.chain import Chain
from loom_core.agent.teams.multi_agent import MultiAgentSystem
from loom_core.agent.teams.router import Choice, Route, Router
from loom_core.agent.teams.step import StepError
from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.mock import MockAnswer, MockProvider


def _says(text: str) -> Agent:
    return Agent(MockProvider([text]))


def _routes() -> list[Route]:
    return [
        Route(name="退款", run=_says("退"), when="退款|(?i)refund", description="Money back."),
        Route(name="技术", run=_says("修"), description="Something does not work."),
        Route(name="其他", run=str.upper, when=lambda text: text == "hello", description="The rest."),
    ]


def _decides(route: str) -> str:
    return f'{{"route": "{route}", "reason": "它坏了"}}'


async def test_the_first_route_whose_rule_fits_is_taken_without_a_model() -> None:
    llm = MockProvider([])
    router = Router(_routes(), llm=llm)
    result = await router.run("我要退款")
    assert (result.output, result.steps[0].step) == ("退", "退款")
    assert await router.choose("REFUND please") == Choice("退款", "rule")
    assert (await router.run("hello")).value == "HELLO"
    assert llm.calls == []


async def test_a_model_chooses_where_no_rule_does() -> None:
    llm = MockProvider([_decides("技术")])
    router = Router(_routes(), llm=llm)
    choice = await router.choose("打印机坏了")
    assert choice == Choice("技术", "model", "它坏了", choice.usage)
    assert choice.usage.output_tokens > 0
    (request,) = llm.calls
    assert request.output is not None
    assert request.output.schema["properties"]["route"]["enum"] == ["退款", "技术", "其他"]
    assert "Something does not work." in request.messages[0].text
    assert request.messages[-1].text == "打印机坏了"


async def test_a_model_that_names_no_route_is_asked_once_more() -> None:
    llm = MockProvider([_decides("打印"), _decides("技术")])
    assert (await Router(_routes(), llm=llm).choose("x")).route == "技术"
    assert len(llm.calls) == 2


@pytest.mark.parametrize(
    "script",
    [[_decides("a"), _decides("b")], [LLMError("It is down.", failure="server")]],
    ids=["no route", "no answer"],
)
async def test_the_default_is_taken_where_the_model_fails(script: list[str | MockAnswer | LLMError]) -> None:
    choice = await Router(_routes(), llm=MockProvider(script), default="其他").choose("x")
    assert (choice.route, choice.by) == ("其他", "default")
    assert choice.reason
    with pytest.raises(LLMError):
        await Router(_routes(), llm=MockProvider(script)).choose("x")


async def test_a_model_that_takes_too_long_counts_as_one_that_fails() -> None:
    def never(request: ChatRequest) -> MockAnswer:
        return MockAnswer("x", delay=60)

    router = Router(_routes(), llm=MockProvider(never), default="技术", seconds=0.02)
    choice = await router.choose("x")
    assert choice == Choice(
        "技术",
        "default",
        "The model mock did not choose a route within 0.02 s. Allow more time with `seconds`, or use a "
        "faster model.",
    )


async def test_without_a_model_the_default_is_taken_or_it_is_said_that_no_route_fits() -> None:
    routes = [Route(name="a", run=len, when="^a"), Route(name="b", run=str.upper)]
    assert await Router(routes, default="b").choose("x") == Choice("b", "default", "No rule fits.")
    with pytest.raises(InvalidInputError, match=r"No route fits\. The router 'weg' needs a default"):
        await Router(routes[:1], name="weg").choose("x")


async def test_what_is_neither_text_nor_json_is_refused_and_nothing_may_be_routed() -> None:
    router = Router([Route("无", repr, when="^$"), Route("其他", repr)], default="其他")
    assert (await router.choose(None)).route == "无"
    with pytest.raises(InvalidInputError, match="neither text nor JSON"):
        await router.run(object())
    with pytest.raises(InvalidInputError, match="neither text nor JSON"):
        await MultiAgentSystem([Agent(MockProvider([]), description="Answers.")]).run(object())


async def test_a_router_is_a_step_of_others() -> None:
    chain = Chain([Router([Route(name="短", run=len, when=".")], name="路"), lambda size: size + 1])
    result = await chain.run("abc")
    assert result.value == 4
    assert result.step("路/短").value == 3
    with pytest.raises(StepError, match="The step 'router' failed: No route fits"):
        await Chain([Router([Route(name="短", run=len, when="x")])]).run("abc")


async def test_a_decision_can_be_cancelled() -> None:
    asked = anyio.Event()

    def never(request: ChatRequest) -> MockAnswer:
        asked.set()
        return MockAnswer("x", delay=60)

    done: list[object] = []

    async def route() -> None:
        done.append(await Router(_routes(), llm=MockProvider(never), default="其他").run("x"))

    async with anyio.create_task_group() as group:
        group.start_soon(route)
        await asked.wait()
        group.cancel_scope.cancel()
    assert done == []


def test_routers_that_make_no_sense_are_refused() -> None:
    rule = Route(name="a", run=len, when="x")
    wrong: Any = {"a": len}
    with pytest.raises(ConfigError, match=r"'a' is not a route. Give `Route\(name, run, …\)`"):
        Router(wrong)
    with pytest.raises(ConfigError, match="at least one route"):
        Router([])
    with pytest.raises(ConfigError, match="Two routes have the same name"):
        Router([rule, rule])
    with pytest.raises(ConfigError, match="The default route 'b' does not exist"):
        Router([rule], default="b")
    with pytest.raises(ConfigError, match="Nothing can choose the route 'c'"):
        Router([rule, Route(name="c", run=len)])
    with pytest.raises(ConfigError, match="Nothing can choose the route 'c'"):
        Router([rule, Route(name="c", run=len)], llm=MockProvider([]))
    with pytest.raises(ConfigError, match="of the route 'a' is not a valid regular expression"):
        Router([Route(name="a", run=len, when="(?=x)")])
