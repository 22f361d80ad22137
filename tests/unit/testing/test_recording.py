"""Yesterday's conversation with today's agent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from loom_core.agent import Agent, ApprovalDecision, Journal, Pending, Reply, StreamEvent, UserMemory
from loom_core.errors import InvalidInputError
from loom_core.llm.mock import MockAnswer
from loom_core.testing import AgentTester, MockLLM, MockTurn, Recording, call
from loom_core.tools import Tool, tool
from loom_core.tools.auditing.audit import AuditLog

_EFFECTS: Counter[str] = Counter()


@tool(name="寄信", open_world=False)
async def send(to: str) -> str:
    """Send a letter."""
    _EFFECTS[to] += 1
    return f"{to}收到第 {_EFFECTS.total()} 封"


@tool(read_only=True, open_world=False)
async def look(days: int = 1) -> str:
    """Look into the calendar."""
    return "空闲"


async def _decide(pending: Pending) -> ApprovalDecision | bool:
    to = pending.arguments["to"]
    if to == "钱":
        return ApprovalDecision(id=pending.id, action="edit", arguments={"to": "孙"})
    return to != "王"


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def _record(turns: Sequence[MockTurn], **options: Any) -> Recording:
    journal = Journal()
    agent = Agent(MockLLM(turns), tools=[send, look], journal=journal, approve=_decide, **options)
    result = await agent.run("我对花生过敏。寄信")
    assert result.status == "completed", result.problem
    _EFFECTS.clear()
    return await Recording.from_journal(journal, result.run_id)


def _today(*tools: Tool) -> AgentTester:
    return AgentTester(Agent(MockLLM([]), tools=tools or (send, look)))


_SEND = send.wire_name
_TURNS = [
    [call(_SEND, to="李"), call(_SEND, to="王"), call(_SEND, to="钱"), call("look", days=2)],
    [call(_SEND), call("nothing")],
    MockAnswer("寄出两", finish="length"),
    "封。",
]


@pytest.fixture
async def recording() -> Recording:
    return await _record(_TURNS)


async def test_a_recording_replays_without_a_model_or_effects(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{json.dumps(asdict(event))}\n" for event in recording.events), "utf-8")
    for each in (recording, Recording.from_file(path)):
        memory = UserMemory(tmp_path / "memory", default_user="me")
        audit = AuditLog(tmp_path / "audit.jsonl")
        tester = AgentTester(Agent(MockLLM([]), tools=[send, look], audit=audit, user_memory=memory))
        await tester.replay(each)
        tester.assert_answer("寄出两封。")
        assert tester.assert_called("寄信", to="钱").text.startswith("孙收到第 2 封")
        assert tester.assert_called("寄信", to="王").status == "denied"
    assert not _EFFECTS
    assert _files(tmp_path) == [path], "neither audit nor memory"


async def test_calls_are_made_for_real_on_request(recording: Recording) -> None:
    await _today().replay(recording, real_calls=True)
    assert dict(_EFFECTS) == {"李": 1, "孙": 1}
    _EFFECTS.clear()


async def test_where_a_recording_does_not_fit_any_more_is_said(recording: Recording) -> None:
    @tool(read_only=True, open_world=False, name="look")
    async def other(weeks: int) -> str:
        """Look into the calendar."""
        return "空闲"

    with pytest.raises(AssertionError) as refused:
        await _today(send, other).replay(recording)
    said = str(refused.value)
    assert '-  look {"days": 2} → success\n+  look {"days": 2} → error: ' in said
    assert "weeks" in said
    with pytest.raises(AssertionError, match=r"There is no tool .*寄信"):
        await _today(look).replay(recording)
    short = Recording([event for event in recording.events if event.type != "text_delta"])
    with pytest.raises(AssertionError, match="The recording has no more answers"):
        await _today().replay(short)
    assert not _EFFECTS


async def test_messages_of_the_user_come_when_they_came(tmp_path: Path) -> None:
    journal = Journal()
    agent: Agent

    @tool(read_only=True, open_world=False)
    async def wait() -> str:
        """Wait for the user."""
        (run,) = await journal.runs()
        await agent.send_command(run.id, Reply(text="快点"))
        return "等了"

    agent = Agent(MockLLM([call("wait"), "好"]), tools=[wait], journal=journal)
    result = await agent.run("等")
    recorded = await Recording.from_journal(journal, result.run_id)
    tester = AgentTester(agent)
    await tester.replay(recorded)
    types = [event.type for event in tester.events]
    assert types.index("message_received") < types.index("agent_finish")
    assert [event.payload["text"] for event in tester.of_type("message_received")] == ["快点"]


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"goal": "no event"}\n')
    with pytest.raises(InvalidInputError, match="has no events of a run"):
        Recording.from_file(path)
    with pytest.raises(InvalidInputError, match="not one of an agent"):
        _ = Recording([]).goal
    with pytest.raises(InvalidInputError, match="has not ended"):
        _ = Recording([StreamEvent("request_start", {"goal": "寄信"})]).goal


async def test_a_run_with_a_message_from_before_its_start_has_its_goal() -> None:
    agent = Agent(MockLLM(["好"]))
    run = await agent.journal.create(agent.request("寄信"))
    await agent.send_command(run.id, Reply(text="快一点"))
    await agent.resume(run.id)
    assert (await Recording.from_journal(agent.journal, run.id)).goal == "寄信"
