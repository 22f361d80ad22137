"""Steps one after another."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.chain import Chain
from loom_core.agent.teams.step import StepError
from loom_core.errors import ConfigError, InvalidInputError, LLMError, NotFoundError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import UserMessage
from loom_core.llm.mock import MockProvider
from loom_core.runs.journal import Journal
from loom_core.runs.run import Budget
from loom_core.tools.function_tool import tool


def _agent(*script: str | LLMError, name: str = "agent") -> Agent:
    return Agent(MockProvider(list(script)), name=name)


def _echo(name: str, journal: Journal | None = None) -> Agent:
    """An agent that answers with its name around the goal."""

    def said(request: ChatRequest) -> str:
        goal = next(message.text for message in request.messages if isinstance(message, UserMessage))
        return f"{name}({goal})"

    return Agent(MockProvider(said), name=name, journal=journal)


def _goal(agent: Agent) -> str:
    llm = agent.parts.llm
    assert isinstance(llm, MockProvider)
    return llm.calls[0].messages[-1].text


async def test_each_step_is_given_what_the_one_before_it_gave() -> None:
    async def shout(text: str) -> str:
        return f"{text}!"

    def twice(text: str) -> str:
        return text * 2

    result = await Chain([twice, _echo("提纲"), Chain([shout, _echo("正文")])]).run("茶")
    assert str(result) == "正文(提纲(茶茶)!)"
    assert [step.step for step in result.steps] == ["twice", "提纲", "chain"]
    assert [step.step for step in result.steps[2].steps] == ["chain/shout", "chain/正文"]
    assert result.step("提纲").value == "提纲(茶茶)"
    assert result.step("chain/shout").value == "提纲(茶茶)!"
    assert [run.output for run in result.runs] == ["提纲(茶茶)", "正文(提纲(茶茶)!)"]
    assert result.usage.input_tokens == sum(run.spent.usage.input_tokens for run in result.runs) > 0


async def test_an_agent_is_given_data_as_json() -> None:
    @dataclass
    class Found:
        city: str

    agent = _agent("ok")
    await Chain([lambda text: Found(text), agent]).run("巴黎")
    assert _goal(agent) == '{"city":"巴黎"}'


async def test_what_a_chain_gives_may_be_data() -> None:
    result = await Chain([len]).run("abc")
    assert (result.value, result.output, result.session_id) == (3, "3", "")


async def test_steps_are_called_what_they_are_called_themselves() -> None:
    @tool(name="清理")
    def clean(text: str) -> str:
        """Clean."""
        return text.strip()

    chain = Chain(
        [clean, lambda text: text, _echo("a"), _echo("a"), ("a 2", _echo("a")), _echo("a")], name="外"
    )
    result = await Chain([chain]).run(" x ")
    paths = ["外/清理", "外/step", "外/a", "外/a 3", "外/a 2", "外/a 4"]
    assert [step.step for step in result.steps[0].steps] == paths
    assert repr(chain) == "<Chain 外>"


async def test_an_error_names_the_step_that_failed() -> None:
    agent = _agent(LLMError("It is down.", advice="Wait.", failure="authentication"), name="写作")
    with pytest.raises(StepError) as raised:
        await Chain([Chain([agent], name="内")]).run("go")
    assert raised.value.step == "内/写作"
    assert str(raised.value).startswith("The step '内/写作' failed: It is down.")
    assert "Wait." in str(raised.value)


async def test_a_mistake_in_a_function_is_the_cause_of_the_error() -> None:
    def broken(text: str) -> int:
        return int(text)

    with pytest.raises(StepError, match=r"The step 'broken' failed: ValueError: invalid literal") as raised:
        await Chain([broken]).run("x")
    assert isinstance(raised.value.__cause__, ValueError)


async def test_an_error_in_a_task_group_of_a_function_is_told_as_what_it_is() -> None:
    async def fails() -> None:
        raise InvalidInputError("No.", advice="Say yes.")

    async def grouped(text: str) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(fails)
        return text

    with pytest.raises(StepError, match=r"The step 'grouped' failed: No\. Say yes\."):
        await Chain([grouped]).run("x")


async def test_a_chain_that_is_cancelled_stops_where_it_is() -> None:
    began, ended = anyio.Event(), list[str]()

    async def hang(text: str) -> str:
        began.set()
        await anyio.sleep_forever()
        return text

    async with anyio.create_task_group() as group:
        group.start_soon(Chain([hang, ended.append]).run, "x")
        await began.wait()
        group.cancel_scope.cancel()
    assert ended == []


async def test_what_happens_is_told_as_it_does() -> None:
    chain = Chain([_echo("a"), len], name="链")
    async with aclosing(chain.stream("x")) as events:
        told = [event async for event in events]
    assert [(event.type, event.step, event.value) for event in told if event.type != "agent_event"] == [
        ("step_start", "a", None), ("step_end", "a", "a(x)"), ("step_start", "len", None),
        ("step_end", "len", 4), ("finished", "", 4),
    ]  # fmt: skip
    of_agent = [event.event.type for event in told if event.event is not None]
    assert of_agent[0] == "request_start"
    assert of_agent[-1] == "agent_finish"
    assert told[-1].result is not None
    assert told[-1].result.step("a").run is not None


async def test_a_stream_tells_which_step_failed_and_then_raises() -> None:
    told: list[tuple[str, str]] = []

    def seen(kind: str, problem: str) -> None:
        told.append((kind, problem[:22]))

    async def listen() -> None:
        async with aclosing(Chain([int]).stream("x")) as events:
            async for event in events:
                seen(event.type, event.problem)

    with pytest.raises(StepError):
        await listen()
    assert told == [("step_start", ""), ("step_failed", "The step 'int' failed:")]


async def test_who_leaves_a_stream_stops_what_runs() -> None:
    began, cancelled = anyio.Event(), anyio.Event()

    async def hang(text: str) -> str:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return text

    async with aclosing(Chain([hang]).stream("x")) as events:
        await anext(events)
        await began.wait()
    assert cancelled.is_set()


async def test_a_stream_that_is_cancelled_ends_when_its_steps_have_ended() -> None:
    ended: list[str] = []

    async def hang(_: object) -> None:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            ended.append("hang")

    with anyio.CancelScope() as scope:
        async with aclosing(Chain([hang]).stream("x")) as events:
            async for _ in events:
                pass
    assert ended == ["hang"]


async def test_a_chain_with_a_key_does_not_ask_agents_again_that_have_answered() -> None:
    journal = Journal()
    first, calls = _echo("a", journal), list[str]()

    def once(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise OSError
        return text

    chain = Chain([first, once, _echo("b", journal)])
    with pytest.raises(StepError):
        await chain.run("x", key="k")
    assert (await chain.run("x", key="k")).output == "b(a(x))"
    assert (await chain.run("x", key="k")).output == "b(a(x))"
    assert [run.request.profile for run in await journal.runs()] == ["b", "a"]
    assert (await journal.runs())[0].request.metadata == {"step": "b"}
    await chain.run("x", key="another")
    assert len(await journal.runs()) == 4


async def test_an_agent_that_may_take_more_by_now_has_still_answered_under_the_same_key() -> None:
    agent = _echo("a")
    assert (await Chain([agent]).run("问", key="k")).output == "a(问)"
    agent.budget = Budget(iterations=99)
    assert (await Chain([agent]).run("问", key="k")).output == "a(问)"
    assert len(await agent.journal.runs()) == 1


async def test_an_agent_that_failed_is_gone_on_with_under_the_same_key() -> None:
    agent = _agent(LLMError("down", failure="server"), "up")
    with pytest.raises(StepError):
        await Chain([agent]).run("x", key="k")
    assert (await Chain([agent]).run("x", key="k")).output == "up"
    assert len(await agent.journal.runs()) == 1


async def test_a_step_that_there_was_not_is_not_found() -> None:
    result = await Chain([len]).run("x")
    with pytest.raises(NotFoundError, match=r"There was no step 'size'\. There were: 'len'\."):
        result.step("size")


def test_chains_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one step"):
        Chain([])
    with pytest.raises(ConfigError, match="Two steps of the chain are named '一'"):
        Chain([("一", len), ("一", len)])
