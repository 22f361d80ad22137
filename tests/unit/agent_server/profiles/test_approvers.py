"""Who decides what a run waits for, and how: asked by their client, by a tool, by the deadline, elsewhere."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import anyio
import pytest
from loom_agent.command_line.commands import run_code
from mcp import Client
from mcp_types import ElicitResult
from pydantic import BaseModel

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.commands import ApprovalDecision
from loom_core.server.auth.caller import Caller, use_caller
from loom_core.server.calls.client_input import RoundTrips
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.long_polling import LONGEST_WAIT, LongPoll
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result

pytestmark = pytest.mark.slow

OPS = Caller("ops", frozenset({"read", "write"}), id="token:ops")
ADA = Caller("ada", frozenset({"read", "write"}), id="token:ada")
BOB = Caller("bob", frozenset({"read", "write"}), id="token:bob")
READER = Caller("ada", frozenset({"read"}), id="token:ada")


def user(*answers):
    """A client's user who gives these answers in turn, and what they were asked."""
    waiting, asked = list(answers), []

    async def answer(_context, params):
        asked.append(params)
        return waiting.pop(0)

    return answer, asked


YES = ElicitResult(action="accept", content={})
NO = ElicitResult(action="decline")
CLOSED = ElicitResult(action="cancel")


class Status(BaseModel):
    status: str


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    return request.param


async def test_the_user_is_asked_by_their_client_in_both_eras(mode, connect, call):
    answer, asked = user(YES)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal="请记一条笔记：明天去青岛")
        listed = await call(client, "agent_runs")
    assert run["status"] == "completed"
    assert "明天去青岛" in run["output"]
    assert len(listed["runs"]) == 1, "a call that is made again with the answer is the same run"
    (question,) = asked
    assert question.message.startswith('智能体要以 {"text": "请记一条笔记：明天去青岛"} 调用 keep_note。')
    assert question.requested_schema == {"type": "object", "properties": {}}


async def test_several_decisions_and_a_question_are_asked_one_after_the_other(mode, connect, call):
    name = ElicitResult(action="accept", content={"answer": "李明"})
    answer, asked = user(YES, NO, name)
    goal = (
        'use keep_note {"text": "a"} and use keep_note {"text": "b"} and use ask_user {"question": "Name?"}'
    )
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal=goal)
        listed = await call(client, "agent_runs")
    assert run["status"] == "completed"
    assert '"kept":"a"' in run["output"]
    assert '"kept":"b"' not in run["output"]
    assert "李明" in run["output"]
    assert [question.message for question in asked][2] == "Name?"
    assert asked[2].requested_schema["required"] == ["answer"]
    assert len(listed["runs"]) == 1


async def test_a_question_that_is_closed_leaves_the_run_waiting_and_is_asked_again_later(mode, connect, call):
    answer, asked = user(CLOSED, YES)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal="note that")
        assert run["status"] == "input_required"
        assert "agent_wait" in run["next"]
        done = await call(client, "agent_wait", run_id=run["run_id"])
    assert done["status"] == "completed"
    assert len(asked) == 2


async def test_what_is_left_after_a_decision_is_asked_in_the_same_call(mode, connect, call):
    answer, asked = user(CLOSED, YES)
    goal = 'use keep_note {"text": "a"} and use keep_note {"text": "b"}'
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal=goal)
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        with anyio.fail_after(LONGEST_WAIT / 2):
            done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert done["status"] == "completed"
    assert len(asked) == 2


async def test_a_form_that_does_not_fit_the_question_leaves_it_open_and_says_why(mode, connect, call):
    wrong = ElicitResult(action="accept", content={"answer": 5})
    right = ElicitResult(action="accept", content={"answer": "李明"})
    answer, asked = user(wrong, right)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal="请问我的名字")
        assert run["status"] == "input_required"
        assert "`answer` must be a string, got 5" in run["problem"]
        done = await call(client, "agent_wait", run_id=run["run_id"])
    assert "李明" in done["output"]
    assert len(asked) == 2


async def test_there_is_no_question_for_which_there_is_no_time(connect, call):
    answer, asked = user()
    async with connect(mode="legacy", elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal="note that", wait_seconds=5)
    assert (run["status"], asked) == ("input_required", [])
    assert "wait_seconds 45" in run["next"]


async def test_an_answer_that_comes_in_a_call_of_its_own_may_take_longer_than_a_call(running):
    server = LoomServer("asking", version="1", title="Asking")
    async with running() as service:
        run = await service.start("note that")
        run = await service.wait_until_idle(run.id, seconds=30)
        (pending,) = run.pending
        asked = {"answers": {}, "asked": {pending.id: time.time() - 2 * LONGEST_WAIT}}
        given = {"requestState": json.dumps(asked), "inputResponses": {pending.id: YES.model_dump()}}
        poll = LongPoll(runs=service, question=lambda *_: "Keep it?", lines=lambda _: lambda _: "")

        async def wait(ctx: ToolContext) -> ToolReply[Status]:
            """Waits for the run, in the call with the answer."""
            answered = replace(ctx, client_input=RoundTrips(given))
            done = await poll.wait_for_run(answered, run.id, seconds=LONGEST_WAIT)
            return tool_result("", Status(status=done.status))

        server.tool(title="Wait", read_only=True, destructive=False, idempotent=True, open_world=False)(wait)
        async with Client(server.protocol, elicitation_callback=user()[0]) as client:
            result = await client.call_tool("wait", {})
    assert result.structured_content == {"status": "completed"}


async def test_a_reply_that_begins_a_run_asks_too(mode, connect, call):
    answer, _ = user(YES)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        first = await call(client, "agent_run", goal="What time is it?")
        second = await call(client, "agent_reply", session_id=first["session_id"], message="note that")
        listed = await call(client, "agent_runs", session_id=first["session_id"])
    assert second["status"] == "completed"
    assert len(listed["runs"]) == 2


async def test_what_was_decided_elsewhere_meanwhile_holds(connect, call, running):
    decided = anyio.Event()

    async def answer(_context, _params):
        async with running() as other:
            (run,) = await other.runs(status=["input_required"])
            await other.decide(
                run, ApprovalDecision(id=run.pending[0].id, action="deny", reason="第一个", by="other")
            )
        decided.set()
        return YES

    async with connect(mode="legacy", elicitation_callback=answer) as client:
        run = await call(client, "agent_run", goal="note that")
    assert decided.is_set()
    assert run["status"] == "completed"
    assert "第一个" in run["output"]


async def test_over_http_no_tool_decides_unless_that_is_said(connect, call, refused, configure):
    configure(default={}, open={"approvals": {"via_tool": "on"}})
    async with connect(over_http=True) as client:
        run = await call(client, "agent_run", goal="note that")
        assert "runs decide" in run["next"]
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        text = await refused(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
        assert "approvals.via_tool" in text
        run = await call(client, "agent_run", goal="note that", profile="open")
        assert "agent_decide" in run["next"]
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        done = await call(client, "agent_decide", run_id=run["run_id"], decisions=decisions)
    assert done["status"] == "completed"


async def test_over_stdio_the_tool_can_be_switched_off(connect, call, refused, configure):
    configure(default={"approvals": {"via_tool": "off"}})
    async with connect() as client:
        run = await call(client, "agent_run", goal="note that")
        decisions = [{"id": run["pending"][0]["id"], "action": "approve"}]
        await refused(client, "agent_decide", run_id=run["run_id"], decisions=decisions)


async def test_runs_of_another_caller_are_as_if_they_were_not_there(running):
    async with running(over_http=True) as service:
        with use_caller(ADA):
            run = await service.start("What time is it?")
        with use_caller(BOB):
            assert await service.runs() == []
            for look in (
                service.run(run.id),
                service.wait_until_idle(run.id, seconds=1),
                service.events(run.id),
                service.blob(run.id, 1),
                service.latest(run.request.session_id),
                service.send_commands(run.id, ApprovalDecision(id="x", action="deny")),
            ):
                with pytest.raises(NotFoundError):
                    await look
            with pytest.raises(NotFoundError):
                await service.start("x", session_id=run.request.session_id)
        with use_caller(ADA):
            done = await service.wait_until_idle(run.id, seconds=30)
            assert done.status == "completed"
            assert [each.id for each in await service.runs(query="time")] == [run.id]


async def test_who_is_named_decides_over_http_and_no_one_else(running, configure):
    configure(default={"approvals": {"who": ["ops"]}})
    async with running(over_http=True) as service:
        with use_caller(ADA):
            run = await service.start("note that")
            run = await service.wait_until_idle(run.id, seconds=30)
            assert run.status == "input_required"
            assert not service.approvers.can_decide(run)
            assert not service.approvers.can_decide_by_tool(run)
        with use_caller(BOB), pytest.raises(NotFoundError):
            await service.run(run.id)
        with use_caller(OPS):
            assert [each.id for each in await service.runs(status=["input_required"])] == [run.id]
            assert service.approvers.can_decide_by_tool(run)
            await service.decide(run, ApprovalDecision(id=run.pending[0].id, action="approve", by="ops"))
            done = await service.wait_until_idle(run.id, after=run.last_seq, seconds=30)
    assert done.status == "completed"


async def test_who_may_only_read_decides_nothing(running):
    async with running(over_http=True) as service:
        with use_caller(ADA):
            run = await service.wait_until_idle((await service.start("note that")).id, seconds=30)
        with use_caller(READER):
            assert service.approvers.can_see(run)
            assert not service.approvers.can_decide(run)


async def test_a_token_that_is_bound_to_profiles_has_no_others(running, configure):
    configure(default={}, 研究={})
    bound = Caller("ada", frozenset({"read", "write"}), frozenset({"研究"}), id="token:ada")
    async with running(over_http=True) as service:
        with use_caller(bound):
            with pytest.raises(NotFoundError, match="There is no profile 'default'") as raised:
                await service.start("What time is it?")
            assert raised.value.advice == "There are: 研究."
            run = await service.start("What time is it?", profile="研究")
            assert (await service.wait_until_idle(run.id, seconds=30)).status == "completed"


async def test_a_decision_that_comes_twice_is_refused_the_second_time(running):
    async with running() as service:
        run = await service.wait_until_idle((await service.start("note that")).id, seconds=30)
        decision = ApprovalDecision(id=run.pending[0].id, action="approve")
        await service.decide(run, decision)
        with pytest.raises(InvalidInputError, match=r"decided already|does not wait|has ended"):
            await service.decide(run, decision)
        done = await service.wait_until_idle(run.id, after=run.last_seq, seconds=30)
    assert run_code(run) == 3
    assert run_code(done) == 0
