from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.hooks import Hooks, Veto
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, Run
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.calls import PlannedCall
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question

_DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    _DONE.clear()


@tool
async def send(text: str) -> str:
    """Send a message to someone."""
    _DONE.append(text)
    return f"sent {text}"


@tool(approval_reason="A signature is wanted.")
async def sign() -> str:
    """Sign."""
    _DONE.append("signed")
    return "signed"


@tool(read_only=True, open_world=False)
async def look() -> str:
    """Look."""
    _DONE.append("looked")
    return "seen"


@tool(read_only=True, open_world=False)
async def ask_colour(context: CallContext) -> str:
    """Ask for a colour."""
    if context.ask is None:
        return "no one to ask"
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
    answer = await context.ask(Question("Which colour?", schema))
    return f"{answer.action} {answer.content.get('colour', '')}".strip()


def _calling(*calls: ToolCallPart) -> MockAnswer:
    return MockAnswer(calls=calls)


def _send(text: str, id_: str = "c1") -> ToolCallPart:
    return ToolCallPart(id_, "send", {"text": text})


def _results(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]


async def _waiting(journal: Journal, *, calls: int = 1) -> Run:
    """The only run, when so many of its calls wait for someone: it asks about one after the other."""
    with anyio.fail_after(10):
        while True:
            for run in await journal.runs(status=["input_required"]):
                if len(run.pending) >= calls:
                    return run
            await anyio.lowlevel.checkpoint()


async def test_where_no_one_can_be_asked_the_model_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    llm = MockProvider([_calling(_send("hi")), "I could not."])
    async with Agent(llm, tools=[send]) as agent:
        result = await agent.run("send hi")
    assert result.output == "I could not."
    assert "no one can be asked" in _results(llm.calls[1])[0]
    assert not _DONE
    assert "approve" in caplog.text


async def test_every_refusal_is_audited_with_who_refused(tmp_path: Path) -> None:
    class Forbidding(Hooks):
        async def before_tool(self, run: Run, planned: PlannedCall) -> Veto | None:
            return Veto("不行") if planned.call.id == "b" else None

    async def no(_pending: Pending) -> bool:
        return False

    audit = AuditLog(tmp_path / "audit.jsonl")
    for ask in (no, None):
        llm = MockProvider([_calling(_send("甲", "a"), _send("乙", "b")), "done"])
        async with Agent(llm, tools=[send], approve=ask, hooks=[Forbidding()], audit=audit) as agent:
            await agent.run("send both")
    lines = map(json.loads, (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines())
    denied = [(line["call"], line["by"]) for line in lines if line.get("decision") == "deny"]
    assert denied == [("a", "a person"), ("b", "a hook"), ("a", "no one to ask"), ("b", "a hook")]


async def test_the_program_is_asked_and_may_say_yes_or_no() -> None:
    asked: list[Pending] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending)
        return pending.arguments["text"] == "yes"

    llm = MockProvider([_calling(_send("yes", "a"), _send("no", "b")), "done"])
    async with Agent(llm, tools=[send], approve=approve) as agent:
        result = await agent.run("send both")
        types = [event.type for event in await agent.journal.events(result.run_id)]
    assert _DONE == ["yes"]
    assert [(pending.kind, pending.tool) for pending in asked] == [("approval", "send")] * 2
    assert asked[0].reason
    yes, no = _results(llm.calls[1])
    assert yes == "sent yes"
    assert "refused" in no
    assert types.count("approval_required") == types.count("approval_decided") == 2
    assert result.status == "completed"


async def test_a_person_may_change_the_arguments_and_the_model_is_told() -> None:
    async def approve(pending: Pending) -> ApprovalDecision:
        return ApprovalDecision(id=pending.id, action="edit", arguments={"text": "polite"}, by="anna")

    llm = MockProvider([_calling(_send("rude")), "done"])
    async with Agent(llm, tools=[send], approve=approve) as agent:
        await agent.run("发送")
    assert _DONE == ["polite"]
    (text,) = _results(llm.calls[1])
    assert text.startswith("sent polite")
    assert '{"text": "polite"}' in text
    assert "有人修改了参数" in text, "the model reads what the user writes"


async def test_arguments_of_a_person_are_checked_like_those_of_a_model() -> None:
    async def approve(pending: Pending) -> ApprovalDecision:
        return ApprovalDecision(id=pending.id, action="edit", arguments={"words": 3})

    llm = MockProvider([_calling(_send("x")), "done"])
    async with Agent(llm, tools=[send], approve=approve) as agent:
        await agent.run("send")
    assert not _DONE
    assert "words" in _results(llm.calls[1])[0]


async def test_a_refusal_carries_its_reason() -> None:
    async def approve(pending: Pending) -> ApprovalDecision:
        return ApprovalDecision(id=pending.id, action="deny", reason="not on a Sunday")

    llm = MockProvider([_calling(_send("x")), "ok"])
    async with Agent(llm, tools=[send], approve=approve) as agent:
        await agent.run("send")
    assert "not on a Sunday" in _results(llm.calls[1])[0]


async def test_people_decide_by_orders_while_calls_before_run() -> None:
    calls = (ToolCallPart("a", "look"), _send("one", "b"), _send("two", "c"), ToolCallPart("d", "look"))
    llm = MockProvider([_calling(*calls), "done"])
    async with (
        Agent(llm, tools=[send, look], wait_for_commands=True) as agent,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.run, "send two")
        run = await _waiting(agent.journal, calls=2)
        assert [pending.id for pending in run.pending] == ["b", "c"]
        with anyio.fail_after(10):
            while _DONE != ["looked"]:
                await anyio.lowlevel.checkpoint()
        await agent.send_command(run.id, ApprovalDecision(id="c", action="approve", by="anna"))
        await agent.send_command(run.id, ApprovalDecision(id="b", action="deny", by="anna"))
        run = await agent.journal.wait_until_idle(run.id, after=1000, seconds=10)
    assert run.output == "done"
    assert run.pending == ()
    assert _DONE == ["looked", "two", "looked"], "effects come in the model's order"
    assert [text.split()[0] for text in _results(llm.calls[1])] == ["seen", "A", "sent", "seen"]


async def test_a_tool_may_be_approved_for_the_rest_of_the_run() -> None:
    llm = MockProvider(
        [
            _calling(_send("一", "a"), _send("二", "b"), ToolCallPart("x", "sign")),
            _calling(_send("三", "c")),
            "done",
        ]
    )
    async with (
        Agent(llm, tools=[send, sign], wait_for_commands=True) as agent,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.run, "send three")
        run = await _waiting(agent.journal, calls=3)
        assert [(pending.id, pending.for_run) for pending in run.pending] == [
            ("a", True), ("b", True), ("x", False),
        ]  # fmt: skip
        with pytest.raises(InvalidInputError, match="each call"):
            await agent.send_command(run.id, ApprovalDecision(id="x", action="approve", scope="run"))
        await agent.send_command(run.id, ApprovalDecision(id="b", action="approve", scope="run", by="anna"))
        await agent.send_command(run.id, ApprovalDecision(id="x", action="approve"))
        run = await agent.journal.wait_until_idle(run.id, after=1000, seconds=10)
        other = MockProvider([_calling(_send("四", "d")), "done"])
        group.start_soon(
            Agent(other, tools=[send], journal=agent.journal, wait_for_commands=True).run, "again"
        )
        assert [pending.id for pending in (await _waiting(agent.journal)).pending] == ["d"], (
            "another run asks"
        )
        group.cancel_scope.cancel()
    assert run.output == "done"
    assert _DONE == ["一", "二", "signed", "三"]


async def test_a_tool_that_was_approved_for_the_run_still_is_when_the_run_goes_on(tmp_path: Path) -> None:
    path, begun = tmp_path / "runs.db", anyio.Event()

    @tool(read_only=True, open_world=False, name="look")
    async def hang() -> str:
        """Look."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def approve(pending: Pending) -> ApprovalDecision:
        return ApprovalDecision(id=pending.id, action="approve", scope="run")

    turns = [_calling(_send("一", "a")), _calling(ToolCallPart("b", "look"))]
    agent = Agent(MockProvider(turns), tools=[send, hang], journal=Journal(path), approve=approve)
    async with agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "send")
        await begun.wait()
        group.cancel_scope.cancel()

    @tool(name="send")
    async def changed(text: str) -> str:
        """Send a message to everybody."""
        return await send(text)

    for tools, done in (([send, look], ["一", "looked", "二"]), ([changed, look], ["一", "looked"])):
        copy = tmp_path / f"{len(done)}.db"
        shutil.copy(path, copy)
        del _DONE[1:]
        llm = MockProvider([_calling(_send("二", "c")), "done"])
        async with Agent(llm, tools=tools, journal=Journal(copy)) as agent:
            (run,) = await agent.journal.runs()
            assert (await agent.resume(run.id)).output == "done"
        assert done == _DONE, "a tool that is another one by now needs an approval, and no one can be asked"


async def test_who_does_not_answer_in_time_has_refused() -> None:
    llm = MockProvider([_calling(_send("x")), "ok"])
    async with Agent(llm, tools=[send], wait_for_commands=True, approval_seconds=0.02) as agent:
        result = await agent.run("send")
        events = await agent.journal.events(result.run_id)
    assert not _DONE
    assert "in time" in _results(llm.calls[1])[0]
    decided = next(event for event in events if event.type == "approval_decided")
    assert decided.payload["action"] == "deny"


async def test_time_in_which_people_are_waited_for_does_not_count() -> None:
    llm = MockProvider([_calling(_send("x")), "ok"])
    async with Agent(llm, tools=[send], wait_for_commands=True, approval_seconds=0.3) as agent:
        result = await agent.run("send")
    assert result.spent.seconds < 0.25


async def test_a_tool_may_ask_the_program() -> None:
    async def answer(pending: Pending) -> InputResponse:
        assert pending.kind == "question"
        assert pending.reason == "Which colour?"
        return InputResponse(id=pending.id, action="accept", content={"colour": "红色"})

    llm = MockProvider([_calling(ToolCallPart("a", "ask_colour")), "done"])
    async with Agent(llm, tools=[ask_colour], approve=answer) as agent:
        await agent.run("ask")
    assert _results(llm.calls[1]) == ["accept 红色"]


async def test_a_tools_question_may_be_answered_by_an_order() -> None:
    llm = MockProvider([_calling(ToolCallPart("a", "ask_colour")), "done"])
    async with (
        Agent(llm, tools=[ask_colour], wait_for_commands=True) as agent,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.run, "ask")
        run = await _waiting(agent.journal)
        (pending,) = run.pending
        assert pending.schema["properties"] == {"colour": {"type": "string"}}
        await agent.send_command(
            run.id, InputResponse(id=pending.id, action="accept", content={"colour": "blue"})
        )
        run = await agent.journal.wait_until_idle(run.id, after=1000, seconds=10)
    assert run.status == "completed"
    assert _results(llm.calls[1]) == ["accept blue"]


@pytest.mark.parametrize(("waits", "told"), [(True, "cancel"), (False, "no one to ask")])
async def test_a_tool_that_no_one_answers_is_told_so(waits: bool, told: str) -> None:
    llm = MockProvider([_calling(ToolCallPart("a", "ask_colour")), "done"])
    async with Agent(llm, tools=[ask_colour], wait_for_commands=waits, approval_seconds=0.02) as agent:
        result = await agent.run("ask")
    assert _results(llm.calls[1]) == [told]
    assert result.pending == ()


async def test_what_the_programs_function_raises_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def approve(pending: Pending) -> bool:
        raise ConnectionResetError("the chat is down")

    agent = Agent(MockProvider([_calling(_send("x"))]), tools=[send], approve=approve)
    with pytest.raises(ConnectionResetError):
        await agent.run("send")
    (run,) = await agent.journal.runs()
    assert run.status == "failed"
    await agent.aclose()


async def _said_at_once(pending: Pending) -> str:
    return "yes"


@pytest.mark.parametrize(
    ("approve", "told"),
    [(lambda pending: True, "`approve` is not `async`"), (_said_at_once, "`approve` has returned 'yes'")],
)
async def test_a_function_that_says_what_means_nothing_fails_the_run(approve: Any, told: str) -> None:
    llm = MockProvider([_calling(_send("x"))])
    async with Agent(llm, tools=[send], approve=approve) as agent:
        result = await agent.run("send")
    assert result.status == "failed"
    assert told in result.problem
    assert not _DONE
