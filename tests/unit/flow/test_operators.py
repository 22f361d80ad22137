"""A flow hands a conversation over to a person, who returns it; and waits for times and events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.flow.operators import SpokenMessage
from loom_core.runs.commands import InputResponse
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, RunRequest
from tests.unit.flow.conftest import LEAVE, Talk, talking

PERSON: dict[str, Any] = {
    "flow_id": "person",
    "name": "转人工 / Talk to a person",
    "trigger_patterns": ["人工", "talk to (?:a person|someone)"],
    "steps": [
        {
            "stepId": "desk",
            "handover": {
                "text": "正在为您转接。 / I am connecting you.",
                "about": "“{$message}”",
                "queue": "front",
                "schema": {
                    "type": "object",
                    "properties": {"amount": {"type": "integer", "minimum": 1}},
                    "required": ["amount"],
                },
            },
        },
        {"stepId": "refund", "operation": "POST /refund"},
    ],
    "response": "已退{$steps.desk.outputs.result.amount}元。 / Refunded {$steps.desk.outputs.result.amount}.",
}
PAID: dict[str, Any] = {
    "flow_id": "pay",
    "name": "付款 / Payment",
    "trigger_patterns": ["付款(?P<order>\\w+)"],
    "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}},
    "steps": [
        {
            "stepId": "paid",
            "wait_for": {"event": "payment.received", "key": "{$inputs.order}", "timeout_seconds": 3600},
            "outputs": {"amount": "$response.body#/amount"},
        }
    ],
    "response": "收到{$steps.paid.outputs.amount}元。",
}


@asynccontextmanager
async def at_the_desk(*flows: dict[str, Any], **options: Any) -> AsyncGenerator[Talk]:
    async with talking(*(flows or (PERSON, LEAVE)), **options) as talk:
        yield talk


async def test_an_operator_has_the_whole_conversation_answers_and_returns_what_was_agreed() -> None:
    async with at_the_desk() as talk:
        desk = talk.assistant.operators
        await talk("你好")
        reply = await talk("转人工，我要退款")
        assert (reply.status, reply.text) == ("input_required", "正在为您转接。")
        (handed,) = await desk.queue()
        assert (handed.about, handed.pending.tool, handed.pending.taken_by) == (
            "“转人工，我要退款”",
            "front",
            "",
        )

        passed = await talk("我的订单坏了")
        assert (passed.text, passed.route.action) == ("已转告同事。", "pass_on")
        assert await desk.conversation(handed) == [
            SpokenMessage("user", "你好"),
            SpokenMessage("assistant", "您好。我可以帮您办理：转人工、请假。"),
            SpokenMessage("user", "转人工，我要退款"),
            SpokenMessage("assistant", "正在为您转接。"),
            SpokenMessage("user", "我的订单坏了"),
            SpokenMessage("assistant", "已转告同事。"),
        ]
        await desk.say(handed, "抱歉，退您50元好吗？", by="小李")
        handed = await desk.find(handed.run.id)
        assert (handed.pending.taken_by, handed.about) == ("小李", "“转人工，我要退款”")
        assert (await desk.conversation(handed))[-1] == SpokenMessage("operator", "抱歉，退您50元好吗？")

        heard = await talk("请假也行")  # the operator has the conversation, so no flow begins
        assert heard.text == "小李：抱歉，退您50元好吗？\n\n已转告同事。"
        assert (await talk("好的")).text == "已转告同事。"
        assert (await talk("")).text == "小李正在为您服务。"
        with pytest.raises(InvalidInputError, match="amount"):
            await desk.hand_back(handed, {"amount": 0}, by="小李")
        await desk.say(handed, "马上退。", by="小李")
        run = await desk.hand_back(handed, {"amount": 50}, by="小李")
        assert (run.status, run.output) == ("completed", "已退50元。")
        told = await talk("谢谢")
        assert told.text == "小李：马上退。\n\n已退50元。\n\n不客气。"
        assert (await talk("我要请三天假")).text == "请假还需要：事由。"
        assert await desk.queue() == []
    assert [what for what, _ in talk.api.requests] == ["POST /refund"]


async def test_before_an_operator_takes_it_the_user_may_ask_for_something_else_or_cancel() -> None:
    async with at_the_desk() as talk:
        assert (await talk("I want to talk to someone")).text == "I am connecting you."
        other = await talk("take leave")
        assert other.flow_id == "leave"
        assert (await talk("cancel")).route.action == "cancel"
        assert (await talk("my parcel is broken")).text == "I have passed that on to my colleague."
        done = await talk("never mind")
        assert (done.route.action, done.status) == ("cancel", "aborted")
        assert await talk.assistant.operators.queue() == []


async def test_what_an_operator_has_another_one_takes_over_only_by_saying_so() -> None:
    async with at_the_desk() as talk:
        desk = talk.assistant.operators
        await talk("talk to a person")
        (handed,) = await desk.queue()
        await desk.say(handed, "", by="Anna")  # the others still see the queue as it was
        for act in (desk.say(handed, "Hello", by="Bo"), desk.hand_back(handed, {"amount": 1}, by="Bo")):
            with pytest.raises(InvalidInputError, match="Anna has this conversation"):
                await act
        await desk.say(handed, "Hello", by="Bo", takes_over=True)
        handed = await desk.find(handed.run.id)
        assert handed.pending.taken_by == "Bo"
        run = await desk.give_up(handed, "Please call us.", by="Bo")
        assert run.status == "failed"
        told = (await talk("hello")).text
        assert told.startswith("Bo: Hello\n\n“Talk to a person” did not succeed. Please call us.")
        with pytest.raises(NotFoundError, match="not handed over"):
            await desk.find(handed.run.id)


async def test_an_operator_sees_the_conversations_of_their_flows_and_tenant_only() -> None:
    async with at_the_desk() as talk:
        desk = talk.assistant.operators
        await talk("talk to a person", context={"tenantId": "acme"})
        (handed,) = await desk.queue(flows=frozenset({"person"}), context={"tenantId": "acme"})
        assert await desk.queue(context={"tenantId": "other"}) == []
        assert await desk.queue(flows=frozenset({"leave"})) == []
        with pytest.raises(NotFoundError):
            await desk.find(handed.run.id, context={"tenantId": "other"})


async def test_an_operator_who_does_not_answer_the_user_in_time_has_the_conversation_no_more() -> None:
    desk_step = {"stepId": "desk", "handover": {"reply_seconds": 1e-3}}
    ask = {"stepId": "topic", "ask": "About what?"}
    slow = {**PERSON, "steps": [ask, desk_step], "response": "Done."}
    quick = {**PERSON, "flow_id": "quick", "trigger_patterns": ["quick"], "steps": [desk_step]}
    async with at_the_desk(slow, quick, look_seconds=0.01) as talk:
        desk, journal = talk.assistant.operators, talk.assistant.journal

        async def wait_until_released(run_id: str) -> None:
            while (run := await journal.get(run_id)).pending[0].taken_by:
                await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)

        later = await talk("talk to a person")
        earlier = await talk("quick", session_id="")
        await talk("a refund", session_id=later.session_id)
        assert [each.run.id for each in await desk.queue()] == [earlier.run_id, later.run_id]

        await desk.say(await desk.find(later.run_id), "What is wrong with it?", by="Anna")
        assert (await desk.find(later.run_id)).pending.deadline is None  # it is the user's turn
        await talk("It is broken.", session_id=later.session_id)
        await wait_until_released(later.run_id)
        assert [each.run.id for each in await desk.queue()] == [earlier.run_id, later.run_id]
        await desk.say(await desk.find(later.run_id), "", by="Bo")  # takes it, and says nothing
        await wait_until_released(later.run_id)
        run = await desk.hand_back(await desk.find(later.run_id), {}, by="Anna")
        assert (run.status, run.output) == ("completed", "Done.")


async def test_without_a_process_that_goes_on_with_it_such_a_conversation_is_free_too() -> None:
    step = {"stepId": "desk", "handover": {"reply_seconds": 1e-3}}
    async with at_the_desk({**PERSON, "steps": [step]}, look_seconds=None) as talk:
        desk = talk.assistant.operators
        await talk("talk to a person")
        (handed,) = await desk.queue()
        await desk.say(handed, "", by="Anna")
        while (await desk.queue())[0].pending.taken_by:
            await anyio.lowlevel.checkpoint()
        await desk.say(handed, "Hello", by="Bo")
        assert (await desk.find(handed.run.id)).pending.taken_by == "Bo"


async def test_however_many_wait_the_earliest_of_a_tenant_are_in_the_queue() -> None:
    async with at_the_desk() as talk:
        journal = talk.assistant.journal
        for number in range(1002):
            tenant = {"tenantId": "acme" if number < 1 else "other"}
            run = await journal.create(RunRequest(goal=f"{number}", metadata={"context": tenant}))
            log = await journal.claim(run.id)
            assert log is not None
            async with log:
                asked = Pending(id="desk", kind="operator")
                log.add("approval_required", {}, status="input_required", pending=(asked,))
        queue = await talk.assistant.operators.queue()
        assert (len(queue), queue[0].about) == (1000, "0")
        assert len(await talk.assistant.operators.queue(context={"tenantId": "acme"})) == 1


async def test_without_an_operator_in_time_the_step_fails_and_says_so(tmp_path: Path) -> None:
    step = {"stepId": "desk", "handover": {"timeout_seconds": 1e-3}}
    hurried = {**PERSON, "steps": [step], "response": "done"}
    async with at_the_desk(hurried, look_seconds=0.01) as talk:
        await talk("talk to a person")
        (run,) = await talk.assistant.journal.runs()
        while run.status != "failed":
            run = await talk.assistant.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert "None of my colleagues is free at the moment." in run.output


async def test_a_handover_and_what_was_said_in_it_survive_the_process(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db")
    async with at_the_desk(journal=journal) as talk:
        await talk("talk to a person")
        (handed,) = await talk.assistant.operators.queue()
        await talk.assistant.operators.say(handed, "Hello", by="Anna")
        session = talk.session_id
    await journal.aclose()
    journal = Journal(tmp_path / "runs.db")
    async with at_the_desk(journal=journal) as talk:
        desk = talk.assistant.operators
        (handed,) = await desk.queue()
        assert handed.pending.taken_by == "Anna"
        reply = await talk("are you there?", session_id=session)
        assert reply.text == "Anna: Hello\n\nI have passed that on to my colleague."
        run = await desk.hand_back(await desk.find(handed.run.id), {"amount": 3}, by="Anna")
        assert (run.status, run.output) == ("completed", "Refunded 3.")
    await journal.aclose()


async def test_an_event_goes_to_the_runs_that_wait_for_it_with_its_key() -> None:
    async with at_the_desk(PAID) as talk:
        desk = talk.assistant.operators
        first, second = await talk("付款A1"), await talk("付款B2", session_id="")
        assert first.text == "“付款”正在等待，到时会自动继续。"
        with pytest.raises(NotFoundError, match=r"payment\.received.*C3"):
            await desk.send_event("payment.received", key="C3")
        assert await desk.send_event("payment.received", key="A1", payload={"amount": 7}) == [first.run_id]
        run = await talk.assistant.journal.wait_until_idle(first.run_id, after=0, seconds=10)
        while run.status != "completed":
            run = await talk.assistant.journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert run.output == "收到7元。"
        assert (await talk.assistant.journal.get(second.run_id)).status == "input_required"
        with pytest.raises(NotFoundError):
            await desk.send_event("payment.received", key="A1", payload={"amount": 7})
        with pytest.raises(NotFoundError):
            await desk.send_event("payment.received", key="B2", caller="someone else")


async def test_an_event_that_is_declined_has_not_come() -> None:
    async with at_the_desk(PAID) as talk:
        reply = await talk("付款A1")
        (pending,) = reply.pending
        host, journal = talk.assistant.host, talk.assistant.journal
        run = await host.send_commands(reply.run_id, InputResponse(id=pending.id, action="decline"))
        run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert (run.status, run.output) == ("aborted", "好的，没有执行。")


async def test_a_wait_takes_the_values_of_inputs_and_not_their_titles() -> None:
    shop = {"oneOf": [{"const": "S1", "title": "Harbour"}], "default": "S1"}
    when = {"type": "string", "format": "date-time", "default": "2020-01-01T10:00:00+08:00"}
    flow = {
        "flow_id": "pay",
        "trigger_patterns": ["pay"],
        "input_schema": {"type": "object", "properties": {"shop": shop, "when": when}},
        "steps": [
            {"stepId": "begin", "wait_for": {"until": "{$inputs.when}"}},
            {
                "stepId": "paid",
                "wait_for": {"event": "paid", "key": "{$inputs.shop}", "text": "{$inputs.shop}"},
            },
        ],
    }
    async with at_the_desk(flow) as talk:
        reply = await talk("pay")
        assert (reply.text, reply.pending[0].arguments) == ("Harbour", {"key": "S1"})


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ({"seconds": 60}, 60),
        ({"until": "2020-01-01"}, 0),
        ({"until": "2020-01-01T10:00:00+08:00"}, 0),
    ],
)
async def test_a_wait_for_a_time_ends_in_any_process(
    wait: dict[str, Any], seconds: float, tmp_path: Path
) -> None:
    flow = {
        "flow_id": "later",
        "trigger_patterns": ["later"],
        "steps": [{"stepId": "wait", "wait_for": {**wait, "text": "Until then."}}],
        "response": "Now.",
    }
    async with at_the_desk(flow) as talk:
        reply = await talk("later")
        if not seconds:
            assert reply.text == "Now."
            return
        assert (reply.text, reply.pending[0].kind) == ("Until then.", "event")
        deadline = reply.pending[0].deadline
        assert deadline is not None
        assert time.time() < deadline < time.time() + seconds + 1
