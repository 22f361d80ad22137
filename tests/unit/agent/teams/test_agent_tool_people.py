"""Approvals and questions of a called agent reach the people of the calling agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.run import Pending
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question
from tests.fixtures.called_agents import (
    boss_of,
    first_pending,
    last_result,
    one_call,
    runs_by_profile,
    writer,
)


async def test_a_call_that_has_to_be_approved_is_asked_about_where_the_agent_is_called() -> None:
    asked: list[Pending] = []
    written: list[str] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending)
        return True

    boss = boss_of(writer(written), approve=approve)
    assert (await boss.run("go")).status == "completed"
    assert written == ["甲.txt"]
    (pending,) = asked
    assert (pending.kind, pending.tool, dict(pending.arguments)) == (
        "approval", "研究员/write", {"path": "甲.txt"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "written", "told"),
    [
        ({"action": "deny", "reason": "太早"}, [], "太早"),
        ({"action": "edit", "arguments": {"path": "乙.txt"}}, ["乙.txt"], "wrote 乙.txt"),
    ],
)
async def test_the_agent_is_told_what_a_person_decides(
    decision: Mapping[str, Any], written: list[str], told: str
) -> None:
    really: list[str] = []
    child = writer(really)
    boss = boss_of(child, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, pending = await first_pending(boss)
        assert pending.id == "c1.1"
        await boss.send_command(run_id, ApprovalDecision(id=pending.id, **decision))
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert told in last_result(llm.calls[1])
    assert really == written
    assert (await boss.journal.get(run_id)).status == "completed"


async def test_a_person_may_decide_at_the_run_itself() -> None:
    written: list[str] = []
    child = writer(written, name="writer")
    boss = boss_of(child, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await first_pending(boss)
        own = (await runs_by_profile(boss))["writer"]
        await boss.send_command(own.id, ApprovalDecision(id="c1", action="approve"))
    assert written == ["甲.txt"]
    run = await boss.journal.get(run_id)
    assert (run.status, run.pending) == ("completed", ())


async def test_no_one_is_asked_where_no_one_is_there() -> None:
    written: list[str] = []
    child = writer(written)
    assert (await boss_of(child).run("go")).status == "completed"
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert "没有人可以询问" in last_result(llm.calls[1])
    assert written == []


async def test_an_agent_with_people_of_its_own_asks_them() -> None:
    written: list[str] = []

    async def yes(pending: Pending) -> bool:
        return pending.tool == "write"

    async def no(pending: Pending) -> bool:
        raise AssertionError(pending)

    await boss_of(writer(written, approve=yes), approve=no).run("go")
    assert written == ["甲.txt"]


async def test_a_question_of_a_tool_there_is_asked_here() -> None:
    @tool(read_only=True, open_world=False)
    async def which(context: CallContext) -> str:
        """Ask."""
        assert context.ask is not None
        answer = await context.ask(Question("哪个城市？", {"type": "object"}))
        return f"{answer.action} {answer.content.get('city')}"

    child = Agent(MockProvider([one_call("which"), "done"]), tools=[which])
    boss = boss_of(child, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, pending = await first_pending(boss)
        assert (pending.kind, pending.tool, pending.reason) == ("question", "研究员", "研究员: 哪个城市？")
        await boss.send_command(
            run_id, InputResponse(id=pending.id, action="accept", content={"city": "巴黎"})
        )
    llm = child.parts.llm
    assert isinstance(llm, MockProvider)
    assert last_result(llm.calls[1]) == "accept 巴黎"


async def test_what_an_agent_of_an_agent_asks_is_asked_at_the_top() -> None:
    written: list[str] = []
    asked: list[str] = []

    async def approve(pending: Pending) -> bool:
        asked.append(pending.tool)
        return True

    middle = Agent(
        MockProvider([one_call("writer", goal="write"), "done"]),
        tools=[AgentTool(writer(written), name="writer", description="Writes.")],
    )
    await boss_of(middle, approve=approve).run("go")
    assert written == ["甲.txt"]
    assert asked == ["研究员/writer/write"]


async def test_who_was_asked_before_a_crash_is_asked_again_and_heard() -> None:
    written: list[str] = []
    child = writer(written, name="writer")
    boss = boss_of(child, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        run_id, _ = await first_pending(boss)
        group.cancel_scope.cancel()
    revived = boss_of(child, llm=MockProvider(["done"]), journal=boss.journal, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(revived.resume, run_id)
        run_id, pending = await first_pending(revived)
        assert pending.tool == "研究员/write"
        await revived.send_command(run_id, ApprovalDecision(id=pending.id, action="approve"))
    assert written == ["甲.txt"]
    assert {run.status for run in (await runs_by_profile(boss)).values()} == {"completed"}


async def test_a_call_there_that_may_have_been_made_is_no_ordinary_approval() -> None:
    sent: list[str] = []
    sending = anyio.Event()

    @tool(open_world=False)
    async def send(to: str) -> str:
        """Send."""
        sent.append(to)
        sending.set()
        if len(sent) == 1:
            await anyio.sleep_forever()
        return "sent"

    def script(request: ChatRequest) -> MockAnswer | str:
        return "done" if isinstance(request.messages[-1], ToolMessage) else one_call("send", to="王芳")

    child = Agent(MockProvider(script), tools=[send], permissions="allow", name="child")
    boss = boss_of(child, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "go")
        await sending.wait()
        group.cancel_scope.cancel()
    revived = boss_of(child, llm=MockProvider(["done"]), journal=boss.journal, wait_for_commands=True)
    async with anyio.create_task_group() as group:
        group.start_soon(revived.resume, (await runs_by_profile(boss))["boss"].id)
        run_id, pending = await first_pending(revived)
        assert (pending.kind, pending.tool) == ("unknown", "研究员/send")
        edit = ApprovalDecision(id=pending.id, action="edit", arguments={"to": "李雷"})
        with pytest.raises(InvalidInputError, match="may have been done already"):
            await revived.send_command(run_id, edit)
        await revived.send_command(run_id, ApprovalDecision(id=pending.id, action="approve"))
    assert sent == ["王芳", "王芳"]
