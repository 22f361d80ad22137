"""Agents that hand a conversation over to each other, or one that calls the others."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.multi_agent import MultiAgentSystem
from loom_core.agent.teams.step import StepError
from loom_core.errors import ConfigError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from loom_core.tools.function_tool import tool
from loom_core.tools.names import own_wire_name

_Script = list[str | MockAnswer | LLMError]


def _to(name: str, *, id_: str = "h1", **arguments: object) -> MockAnswer:
    return MockAnswer(calls=(ToolCallPart(id_, own_wire_name(f"handoff_to_{name}"), arguments),))


def _agent(name: str, script: _Script) -> Agent:
    return Agent(
        MockProvider(list(script)), name=name, description=f"Does {name}.", system_prompt=f"I am {name}."
    )


def _asked(agent: Agent) -> list[ChatRequest]:
    llm = agent.parts.llm
    assert isinstance(llm, MockProvider)
    return llm.calls


def _users(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


async def test_the_agent_that_a_conversation_is_handed_to_sees_it_and_answers() -> None:
    desk, refunds = _agent("前台", [_to("退款", note="订单 42")]), _agent("退款", ["三天内到账。"])
    result = await MultiAgentSystem([desk, refunds]).run("我要退款")
    assert result.output == "三天内到账。"
    assert [step.step for step in result.steps] == ["1 前台", "2 退款"]
    (request,) = _asked(refunds)
    assert _users(request) == ["我要退款", "（前台 已将对话转交给你，请接着处理。订单 42）"]
    assert "I am 退款." in request.messages[0].text
    assert "hand the conversation over" in request.messages[0].text
    assert len(_asked(desk)) == 1  # no turn is spent on saying that it is handed over
    assert {run.session_id for run in result.runs} == {result.session_id}


async def test_models_are_told_whom_they_may_hand_over_to() -> None:
    agents = [_agent(name, ["yes"]) for name in ("a", "b", "c")]
    await MultiAgentSystem(agents).run("go")
    (request,) = _asked(agents[0])
    told = {spec.name: spec.description for spec in request.tools}
    assert told == {
        "handoff_to_b": "Hand the conversation over to b: Does b.",
        "handoff_to_c": "Hand the conversation over to c: Does c.",
    }


async def test_hand_overs_may_be_restricted() -> None:
    agents = [_agent("a", [_to("c"), "by myself"]), _agent("b", []), _agent("c", [])]
    result = await MultiAgentSystem(agents, handoffs={"a": ["b"]}).run("go")
    assert result.output == "by myself"
    told = [message.text for message in _asked(agents[0])[1].messages if isinstance(message, ToolMessage)]
    assert "There is no tool 'handoff_to_c'" in told[0]


async def test_agents_do_not_hand_over_to_each_other_for_ever() -> None:
    forth: _Script = [_to("b"), _to("b", id_="h2")]
    back: _Script = [_to("a"), "enough"]
    first, second = _agent("a", forth), _agent("b", back)
    result = await MultiAgentSystem([first, second], max_handoffs=3).run("go")
    assert [step.step for step in result.steps] == ["1 a", "2 b", "3 a", "4 b"]
    assert result.output == "enough"
    assert _asked(second)[1].tools == ()


async def test_the_next_message_of_a_session_goes_to_who_answered_the_last_one() -> None:
    desk, refunds = _agent("desk", [_to("refunds")]), _agent("refunds", ["in 3 days", "by card"])
    system = MultiAgentSystem([desk, refunds])
    first = await system.run("I want my money back")
    second = await system.in_session(first.session_id).run("how?")
    assert second.output == "by card"
    assert len(_asked(desk)) == 1
    assert _users(_asked(refunds)[1])[0::2] == ["I want my money back", "how?"]
    assert second.session_id == first.session_id


async def test_other_calls_of_a_turn_run_before_a_handoff() -> None:
    order: list[str] = []

    @tool(read_only=True, open_world=False)
    def look() -> str:
        """Look."""
        order.append("look")
        return "seen"

    calls = (ToolCallPart("c1", "look", {}), *_to("b").calls)
    first = Agent(MockProvider([MockAnswer(calls=calls)]), tools=[look], name="a", description="A.")
    second = _agent("b", ["done"])
    assert (await MultiAgentSystem([first, second]).run("go")).output == "done"
    told = [message.text for message in _asked(second)[0].messages if isinstance(message, ToolMessage)]
    assert told == ["seen", "The conversation is handed over to b."]


async def test_what_was_broken_off_is_gone_on_with(tmp_path: Path) -> None:
    def system(journal: Journal, *agents: Agent) -> MultiAgentSystem:
        return MultiAgentSystem(agents, journal=journal, memory=SQLiteMemory(tmp_path / "memory.db"))

    fails = LLMError("It is down.", failure="server")
    journal = Journal(tmp_path / "runs.db")
    with pytest.raises(StepError, match="The step '2 b' failed: It is down") as raised:
        await system(journal, _agent("a", [_to("b")]), _agent("b", [fails])).run("去", key="k")
    assert raised.value.step == "2 b"
    await journal.aclose()

    journal, first, second = Journal(tmp_path / "runs.db"), _agent("a", []), _agent("b", ["好"])
    again = system(journal, first, second)
    result = await again.run("去", key="k")
    assert (result.output, _asked(first), len(_asked(second))) == ("好", [], 1)
    assert (await again.run("去", key="k")).output == "好"
    assert len(await journal.runs()) == 2
    await journal.aclose()


async def test_a_supervisor_calls_the_others_as_tools() -> None:
    researcher, writer = _agent("研究", ["事实"]), _agent("写作", ["文章"])
    calls = [ToolCallPart("c1", own_wire_name("研究"), {"goal": "查"})]
    calls.append(ToolCallPart("c2", own_wire_name("写作"), {"goal": "写"}))
    boss = Agent(MockProvider([MockAnswer(calls=tuple(calls)), "完成"]), name="主编")
    system = MultiAgentSystem([researcher, writer], supervisor=boss)
    result = await system.run("写一篇文章")
    assert result.output == "完成"
    assert [step.step for step in result.steps] == ["主编"]
    told = [message.text for message in _asked(boss)[1].messages if isinstance(message, ToolMessage)]
    assert told == ["事实", "文章"]
    assert {run.request.profile for run in await system.journal.runs()} == {"主编", "研究", "写作"}


async def test_what_happens_is_told_as_it_does() -> None:
    system = MultiAgentSystem([_agent("a", [_to("b")]), _agent("b", ["done"])])
    async with aclosing(system.stream("go")) as events:
        told = [event async for event in events]
    steps = [(event.type, event.step) for event in told if event.type != "agent_event"]
    assert steps == [
        ("step_start", "1 a"), ("step_end", "1 a"), ("step_start", "2 b"), ("step_end", "2 b"),
        ("finished", ""),
    ]  # fmt: skip
    assert {event.step for event in told if event.event is not None} == {"1 a", "2 b"}


async def test_a_conversation_that_ended_with_a_hand_over_stays_whole() -> None:
    desk, refunds = _agent("desk", [_to("refunds")]), _agent("refunds", ["ok"])
    await MultiAgentSystem([desk, refunds]).run("go")
    messages = _asked(refunds)[0].messages
    assert [type(message).__name__ for message in messages[1:]] == [
        "UserMessage", "AssistantMessage", "ToolMessage", "UserMessage",
    ]  # fmt: skip
    assistant = messages[2]
    assert isinstance(assistant, AssistantMessage)
    assert assistant.tool_calls[0].id == "h1"


def test_systems_that_make_no_sense_are_refused() -> None:
    one = _agent("a", [])
    with pytest.raises(ConfigError, match="at least one agent"):
        MultiAgentSystem([])
    with pytest.raises(ConfigError, match="Two agents are named 'a'"):
        MultiAgentSystem([one], supervisor=one)
    with pytest.raises(ConfigError, match="'nameless' has no description"):
        MultiAgentSystem([one, Agent(MockProvider([]), name="nameless")])
    with pytest.raises(ConfigError, match="'b', which does not exist"):
        MultiAgentSystem([one], handoffs={"a": ["b"]})
