"""Handoffs by configuration: who has the conversation, what they see of it, and what survives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from loom_agent.profiles.agent_file import AgentFile
from loom_agent.profiles.composition import CompositionModel
from loom_agent.profiles.diagram import render_mermaid
from loom_agent.profiles.profile_config import ProfileConfig
from loom_agent.profiles.step_tools import handoff_tools, step_tools

from loom_core.agent.agent import Agent
from loom_core.agent.guardrails import AnswerValidator, DenyPattern, PiiRedaction
from loom_core.agent.hooks import Hooks
from loom_core.errors import LLMError
from loom_core.llm.messages import AssistantMessage, Message, ToolMessage, UserMessage
from loom_core.runs.commands import Reply
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory, Memory, SQLiteMemory
from loom_core.runs.run import Run
from loom_core.testing import MockLLM, MockTurn, call
from loom_core.tools.function_tool import tool

_TO_ORDERS = call("handoff_to_orders", note="order 42")
_TO_DESK = call("handoff_to_desk", note="")
_BY_DESK = "(desk has handed the conversation over to you: continue it. order 42)"
_DOWN = LLMError("It is down.", failure="server")


@tool(read_only=True, open_world=False)
def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: a kettle"


class Office:
    """A handoff between `desk` and the other members, whose models play scripts."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[MockTurn]],
        *,
        journal: Journal | None = None,
        memory: Memory | None = None,
        hooks: Mapping[str, Sequence[Hooks]] | None = None,
        **config: Any,
    ) -> None:
        self.journal = journal or Journal()
        self.models = {name: MockLLM(list(script)) for name, script in scripts.items()}
        memory = memory or InMemoryMemory()
        members = [
            Agent(
                model,
                name=name,
                tools=[find_order],
                description=f"Does {name}.",
                hooks=(hooks or {}).get(name, ()),
                journal=self.journal,
                memory=memory,
            )
            for name, model in self.models.items()
        ]
        self.profile = ProfileConfig.model_validate({"handoff": {"members": [*scripts], **config}})
        assert self.profile.handoff is not None
        tools = handoff_tools(members, self.profile.handoff.targets)
        self.agent = Agent(
            CompositionModel(self.profile, tools, llm=None),
            tools=tools,
            name="office",
            compaction=None,
            loop_guard=None,
            journal=self.journal,
            memory=memory,
        )

    async def say(self, goal: str, session_id: str = "", **options: Any) -> tuple[str, str]:
        """Return the answer to a message, and the session."""
        result = (await self.agent.run(goal, session_id=session_id, **options)).or_raise()
        return result.output, result.session_id

    def seen(self, name: str, request: int = -1) -> list[str]:
        """What the model of a member read: U for the user, A for answers, C for calls, T for results."""
        return [_line(each) for each in self.models[name].calls[request].messages[1:]]

    async def answered(self) -> list[str]:
        """The members that had child runs, in order."""
        runs = await self.journal.runs()
        return [run.request.profile for run in reversed(runs) if run.request.profile != "office"]


def _line(message: Message) -> str:
    match message:
        case UserMessage():
            return f"U {message.text}"
        case AssistantMessage() if message.tool_calls:
            return f"C {message.tool_calls[0].name}"
        case AssistantMessage():
            return f"A {message.text}"
        case ToolMessage():
            return f"T {message.text}"
        case _:
            return message.text


async def test_the_member_that_gets_the_conversation_answers_and_keeps_it_until_it_hands_back():
    office = Office(
        {
            "desk": [call("find_order", number=1), _TO_ORDERS, "We open at 9."],
            "orders": [call("find_order", number=42), "It is refunded.", "By card.", _TO_DESK],
        }
    )
    answer, session = await office.say("I want a refund")
    assert answer == "It is refunded."
    assert office.seen("orders", 0) == [f"U {_BY_DESK}", "U I want a refund"]
    assert await office.say("how?", session) == ("By card.", session)
    own = ["C find_order", "T order 42: a kettle", "A It is refunded."]
    assert office.seen("orders") == [*office.seen("orders", 0), *own, "U how?"]
    assert await office.say("When do you open?", session) == ("We open at 9.", session)
    assert office.seen("desk") == [
        "U I want a refund",
        "C find_order",
        "T order 1: a kettle",
        "C handoff_to_orders",
        "T The conversation is handed over to orders.",
        "A It is refunded.",
        "U how?",
        "A By card.",
        "U (orders has handed the conversation over to you: continue it.)",
        "U When do you open?",
    ]
    assert await office.answered() == ["desk", "orders", "orders", "orders", "desk"]


@pytest.mark.parametrize("answer", ["Refunded.\u200b", "Refunded\r\nnow", "It is sk-1234567890abcdefghij"])
async def test_a_member_keeps_its_conversation_whatever_characters_its_answer_has(answer: str):
    office = Office({"desk": [_TO_ORDERS], "orders": [call("find_order", number=42), answer, "By card."]})
    _, session = await office.say("refund")
    await office.say("how?", session)
    own = [f"U {_BY_DESK}", "U refund", "C find_order", "T order 42: a kettle", f"A {answer}"]
    assert office.seen("orders") == [*own, "U how?"]


async def test_the_message_to_the_next_member_is_in_the_language_of_the_user():
    office = Office({"desk": [_TO_ORDERS], "orders": ["三天内到账。"]})
    assert (await office.say("我要退款"))[0] == "三天内到账。"
    assert office.seen("orders") == ["U （desk 已将对话转交给你，请接着处理。order 42）", "U 我要退款"]


async def test_after_the_last_handoff_of_a_run_the_member_has_to_answer():
    office = Office({"desk": [_TO_ORDERS, "Enough."], "orders": [_TO_DESK]}, max_handoffs=2)
    assert (await office.say("go"))[0] == "Enough."
    assert [spec.name for spec in office.models["desk"].calls[-1].tools] == ["find_order"]
    assert office.models["orders"].calls[0].tools[0].name == "handoff_to_desk"


async def test_a_member_hands_over_only_to_those_that_it_may():
    office = Office(
        {"desk": [call("handoff_to_repairs"), _TO_ORDERS], "orders": ["Done."], "repairs": []},
        handoffs={"desk": ["orders"], "orders": ["repairs"]},
    )
    assert (await office.say("go"))[0] == "Done."
    assert "There is no tool 'handoff_to_repairs'" in office.models["desk"].tool_results[0]
    names = {spec.name for spec in office.models["orders"].calls[0].tools}
    assert names == {"handoff_to_repairs", "find_order"}


class _Hurried(Hooks):
    """The user sends a message to the run while a member works on its first answer."""

    def __init__(self, journal: Journal, text: str) -> None:
        self._journal = journal
        self._text = text

    async def before_answer(self, run: Run, answer: str) -> None:
        if answer == "Soon.":
            (outer,) = [each for each in await self._journal.runs() if each.request.profile == "office"]
            await self._journal.send_commands(outer.id, Reply(text=self._text))


@pytest.mark.parametrize("text", ["quickly", "go"])
async def test_a_message_meanwhile_goes_to_the_member_that_has_the_conversation(text: str):
    journal = Journal()
    hooks = {"orders": [_Hurried(journal, text)]}
    office = Office({"desk": [_TO_ORDERS], "orders": ["Soon.", "Now."]}, journal=journal, hooks=hooks)
    assert (await office.say("go"))[0] == "Now."
    assert office.seen("orders")[-2:] == ["A Soon.", f"U {text}"]


async def test_a_step_that_is_called_again_gets_what_the_user_had_said():
    journal, memory = Journal(), InMemoryMemory()
    models = {"first": MockLLM(["Soon."]), "second": MockLLM([_DOWN, "Done."])}
    hooks = {"first": [_Hurried(journal, "quickly")], "second": []}
    tools = step_tools(
        [
            Agent(model, name=name, hooks=hooks[name], journal=journal, memory=memory)
            for name, model in models.items()
        ]
    )
    plan = CompositionModel(ProfileConfig(chain=[*models]), tools, llm=None)
    office = Agent(plan, tools=tools, name="office", compaction=None, journal=journal, memory=memory)
    failed = await office.run("go")
    assert (await office.resume(failed.run_id)).output == "Done."
    assert models["second"].calls[-1].messages[-1].text == "Soon.\n\nquickly"


async def test_a_member_that_failed_is_called_again_by_another_process(tmp_path: Path):
    async with aclosing(Journal(tmp_path / "runs.db")) as journal:
        memory = SQLiteMemory(journal=journal)
        office = Office({"desk": [_TO_ORDERS], "orders": [_DOWN]}, journal=journal, memory=memory)
        failed = await office.agent.run("go")
        assert "The step 'orders' failed" in failed.problem
    async with aclosing(Journal(tmp_path / "runs.db")) as journal:
        memory = SQLiteMemory(journal=journal)
        office = Office({"desk": [], "orders": ["Done.", "Again."]}, journal=journal, memory=memory)
        assert (await office.agent.resume(failed.run_id)).output == "Done."
        assert (await office.say("more", failed.session_id))[0] == "Again."
        assert await office.answered() == ["desk", "orders", "orders", "orders"]


async def test_after_a_handoff_to_a_member_that_was_not_called_the_next_run_begins_with_it():
    office = Office({"desk": [_TO_ORDERS], "orders": ["Here."]})
    failed = await office.agent.run("go", allowed_tools=["desk"])
    assert "The step 'orders' cannot be called" in failed.problem
    assert (await office.say("hello?", failed.session_id))[0] == "Here."


async def test_a_fork_has_a_conversation_of_its_own():
    office = Office({"desk": [_TO_ORDERS], "orders": ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]})
    first = await office.agent.run("go")
    fork = await office.agent.fork(first.run_id, at=3)  # the answer that calls orders
    assert (fork.output, office.seen("orders")) == ("Two.", [f"U {_BY_DESK}", "U go"])
    assert (await office.say("on", fork.session_id))[0] == "Three."
    assert office.seen("orders")[2:] == ["A Two.", "U on"]
    assert (await office.say("on", first.session_id))[0] == "Four."
    assert office.seen("orders")[2:] == ["A One.", "U on"]
    repeated = await office.agent.fork(first.run_id, at=4)  # the call of orders
    assert repeated.output == "Five."
    assert (await office.say("on", repeated.session_id))[0] == "Six."
    assert office.seen("orders") == ["U go", "A Five.", "U on"]
    given = await office.agent.fork(first.run_id, at=2, outcome="I answer myself.")
    assert given.output == "I answer myself."


async def test_whichever_member_answers_does_so_by_the_schema_and_its_guardrails_review_answers_only():
    schema = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
    hooks = [AnswerValidator(schema, most=0), PiiRedaction()]
    note = call("handoff_to_orders", note="write to a@example.com")
    office = Office({"desk": [note], "orders": ['{"stars": 5}']}, hooks={"desk": hooks, "orders": hooks})
    result = await office.agent.run("go", output_schema=schema)
    assert result.structured == {"stars": 5}
    assert "write to [email]" in office.seen("orders")[0]


async def test_the_guardrails_of_a_member_review_what_was_said_before_it_had_the_conversation():
    hooks = [PiiRedaction(["email"]), DenyPattern("secret", "No.", on=["input"])]
    scripts = {"desk": ["A secret.", "Noted: a@example.com", _TO_ORDERS], "orders": ["Done."]}
    office = Office(scripts, hooks={"orders": hooks})
    _, session = await office.say("hello")
    await office.say("I am a@example.com", session)
    await office.say("go", session)
    said = ["U hello", "U I am [email]", "A Noted: [email]"]
    assert office.seen("orders") == [*said, f"U {_BY_DESK}", "U go"]


def test_the_diagram_shows_who_hands_over_to_whom():
    members = {
        "members": ["desk", "订单", "repairs"],
        "handoffs": {"desk": ["订单"], "订单": ["desk", "repairs"]},
    }
    plain = ProfileConfig.model_validate({"mcp": {"servers": []}, "knowledge": []})
    profiles = {"office": ProfileConfig.model_validate({"handoff": members})}
    profiles |= dict.fromkeys(members["members"], plain)
    assert render_mermaid(AgentFile(profiles, "office")).splitlines()[1:] == [
        '  p0[["office: handoff"]]',
        '  p1["desk"]',
        '  p2["订单"]',
        '  p3["repairs"]',
        '  p0 -->|"starts"| p1',
        '  p1 <-->|"hands over"| p2',
        '  p2 -->|"hands over"| p3',
    ]
