from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.flow.executor import FlowExecutor
from loom_core.flow.understanding.moments import situation
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Pause, Reply, Resume
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "title": "天数", "minimum": 1},
        "reason": {"type": "string", "title": "事由"},
        "kind": {"type": "string", "enum": ["年假", "病假"], "default": "年假"},
    },
    "required": ["days", "reason"],
}
LEAVE: dict[str, Any] = {"flow_id": "请假", "input_schema": SCHEMA, "endpoint": "POST /leave"}


async def test_what_is_missing_is_asked_for_and_then_the_flow_goes_on(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE])
    run = await executor.execute("请假", "我要请假", {"days": 3})
    assert run.status == "input_required"
    (pending,) = run.pending
    assert (pending.kind, pending.reason) == ("question", "请假还需要：事由。")
    assert pending.schema == {
        "type": "object",
        "properties": {"reason": {"type": "string", "title": "事由"}},
        "required": ["reason"],
    }
    assert api.asked == []
    assert run.driver == ""

    run = await executor.send_command(
        run.id, InputResponse(id=pending.id, action="accept", content={"reason": "探亲"}, by="王芳")
    )
    assert run.status == "completed"
    assert [each.body for each in api.asked] == [{"days": 3, "reason": "探亲", "kind": "年假"}]


async def test_an_answer_corrects_what_was_given_before(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE])
    run = await executor.execute("请假", "我要请两天假", {"days": 2})
    content = {"reason": "探亲", "days": "3"}
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="accept", content=content)
    )
    assert run.status == "completed"
    assert api.asked[0].body["days"] == 3


async def test_an_answer_that_does_not_fit_is_asked_for_again(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE])
    run = await executor.execute("请假", "我要请假", {"reason": "探亲"})
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="accept", content={"days": 0})
    )
    assert run.status == "input_required"
    assert run.pending[0].reason == "请假还需要：天数。 这样不行：天数不能是0：至少是1。"
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="accept", content={"days": 1})
    )
    assert run.status == "completed"
    assert len(api.asked) == 1


async def test_who_declines_ends_the_flow_and_can_take_it_up_again(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE])
    run = await executor.execute("请假", "我要请假")
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="decline", by="王芳")
    )
    assert (run.status, run.pending) == ("aborted", ())
    assert "王芳" in run.problem
    run = await executor.send_command(run.id, Resume())
    assert run.status == "input_required"
    content = {"days": 1, "reason": "病了"}
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="accept", content=content)
    )
    assert run.status == "completed"
    assert len(api.asked) == 1


async def test_a_flow_that_is_to_be_confirmed_waits_and_takes_changes(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE | {"confirm": "always"}])
    run = await executor.execute("请假", "请假", {"days": 2, "reason": "探亲"})
    (pending,) = run.pending
    assert (pending.kind, pending.tool) == ("approval", "请假")
    assert pending.arguments == {"days": 2, "reason": "探亲", "kind": "年假"}
    assert api.asked == []
    run = await executor.send_command(
        run.id, ApprovalDecision(id=pending.id, action="edit", arguments={"days": 3})
    )
    assert run.status == "completed"
    assert api.asked[0].body["days"] == 3


async def test_a_no_to_a_flow_ends_it_before_anything_is_done(api: Api, flows: Flows) -> None:
    executor = flows([LEAVE])
    run = await executor.execute(
        "请假", "我不请假了", {"days": 2, "reason": "-"}, confirm=True, confirm_reason="要请假吗？"
    )
    assert run.pending[0].reason == "要请假吗？"
    run = await executor.send_command(
        run.id, ApprovalDecision(id=run.pending[0].id, action="deny", reason="说了不请")
    )
    assert run.status == "aborted"
    assert "说了不请" in run.problem
    assert api.asked == []


ASKING: dict[str, Any] = {
    "flow_id": "book",
    "input_schema": {
        "type": "object",
        "properties": {"day": {"type": "string"}, "people": {"type": "integer"}},
    },
    "steps": [
        {"stepId": "day", "ask": {"question": "哪一天？", "into": "day"}},
        {"stepId": "room", "operation": "GET /room/{$inputs.day}"},
        {"stepId": "people", "ask": {"question": "{$inputs.day}几位？", "into": "people"}},
        {
            "stepId": "sure",
            "confirm": "订 {$inputs.day}，{$inputs.people} 位？",
            "onFailure": [{"type": "end", "response": "那就算了。"}],
        },
        {"stepId": "book", "operation": "POST /book"},
    ],
    "response": "订好了",
}


def _accept(pending: Pending, **content: Any) -> InputResponse:
    return InputResponse(id=pending.id, action="accept", content=content)


async def test_steps_ask_and_confirm_in_their_turn(api: Api, flows: Flows) -> None:
    executor = flows([ASKING])
    run = await executor.execute("book", "订座")
    assert run.pending[0].reason == "哪一天？"
    run = await executor.send_command(run.id, _accept(run.pending[0], day="周五"))
    assert run.pending[0].reason == "周五几位？"
    run = await executor.send_command(run.id, _accept(run.pending[0], people="4"))
    assert run.pending[0].reason == "订 周五，4 位？"
    run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
    assert (run.status, run.output) == ("completed", "订好了")
    assert api.counts == {"/room/周五": 1, "/book": 1}
    assert api.asked[1].body == {"day": "周五", "people": 4}


async def test_a_no_at_a_step_is_a_failure_that_its_actions_may_handle(api: Api, flows: Flows) -> None:
    executor = flows([ASKING])
    run = await executor.execute("book", "订座", {"day": "周五"})
    run = await executor.send_command(run.id, _accept(run.pending[0], day="周六"))
    run = await executor.send_command(run.id, _accept(run.pending[0], people=4))
    run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="deny"))
    assert (run.status, run.output) == ("completed", "那就算了。")
    assert "/book" not in api.counts


async def test_an_answer_given_in_another_process_is_heard(
    api: Api, flows: Flows, journal: Journal, tmp_path: Path
) -> None:
    first = Journal(tmp_path / "runs.db")
    run = await flows([ASKING], journal=first).execute("book", "订座")
    await first.aclose()
    second = Journal(tmp_path / "runs.db")
    executor = flows([ASKING], journal=second)
    await second.send_commands(run.id, _accept(run.pending[0], day="周五"))
    run = await executor.resume(run.id)
    assert run.pending[0].reason == "周五几位？"
    await second.aclose()


async def test_a_flow_is_paused_resumed_and_aborted_by_orders(flows: Flows) -> None:
    executor = flows([ASKING])
    run = await executor.execute("book", "订座")
    run = await executor.send_command(run.id, Pause(by="王芳"))
    assert run.status == "paused"
    run = await executor.send_command(run.id, _accept(run.pending[0], day="周五"))
    assert run.status == "paused"
    run = await executor.send_command(run.id, Resume())
    assert run.pending[0].reason == "周五几位？"
    run = await executor.send_command(run.id, Reply(text="快一点"))
    assert run.status == "input_required"
    run = await executor.send_command(run.id, Abort(reason="不订了", by="王芳"))
    assert (run.status, run.pending) == ("aborted", ())
    run = await executor.send_command(run.id, Resume())
    assert run.pending[0].reason == "周五几位？"


async def test_who_does_not_answer_in_time_has_refused(flows: Flows) -> None:
    executor = flows([ASKING], answer_seconds=0.0)
    run = await executor.execute("book", "订座")
    run = await executor.resume(run.id)
    assert run.status == "aborted"


async def test_a_program_of_its_own_may_answer(api: Api, flows: Flows) -> None:
    async def approve(pending: Pending) -> bool | ApprovalDecision | InputResponse:
        if pending.kind == "approval":
            return True
        return _accept(pending, **dict.fromkeys(pending.schema["properties"], "5"))

    run = await flows([ASKING], approve=approve).execute("book", "Book a table")
    assert (run.status, run.output) == ("completed", "订好了")
    assert api.asked[-1].body == {"day": "5", "people": 5}


async def test_events_have_no_inputs_that_are_called_a_secret_and_requests_have_them(
    api: Api, flows: Flows, journal: Journal
) -> None:
    properties = {"user": {"type": "string"}, "密码": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["user", "密码"]}
    executor = flows([{"flow_id": "login", "endpoint": "POST /login", "input_schema": schema}])
    asked = await executor.execute("login", "登录", {"user": "王芳"})
    content = {"密码": "芝麻开门"}
    run = await executor.send_command(
        asked.id, InputResponse(id=asked.pending[0].id, action="accept", content=content)
    )
    given = await executor.execute("login", "登录", {"user": "王芳", **content}, confirm=True)
    run_again = await executor.send_command(
        given.id, ApprovalDecision(id=given.pending[0].id, action="approve")
    )
    assert (run.status, run_again.status) == ("completed", "completed")

    assert [each.body for each in api.asked] == [{"user": "王芳", **content}] * 2
    told = [each.payload for id_ in (run.id, given.id) for each in await journal.events(id_)]
    assert "芝麻开门" not in str(told)
    assert "王芳" in str(told)


@pytest.mark.parametrize("where", ["file", "context"])
async def test_a_day_is_that_of_the_conversations_time_zone_without_a_message_too(
    flows: Flows, where: str
) -> None:
    day = {"type": "string", "format": "date", "formatMinimum": "today"}
    schema = {"type": "object", "properties": {"day": day}, "required": ["day"]}
    flow = {"flow_id": "f", "input_schema": schema, "steps": [{"stepId": "sure", "confirm": "?"}]}
    zone = {"timezone": "Pacific/Kiritimati"}  # 14 hours ahead
    executor = flows([flow], file={"basic_settings": zone} if where == "file" else {})
    context = zone if where == "context" else {}
    with situation(datetime(2026, 11, 28, 13, tzinfo=UTC), "en"):
        given = await executor.execute("f", "", {"day": "today"}, context=context)
        asked = await executor.execute("f", context=context)
        answer = InputResponse(id=asked.pending[0].id, action="accept", content={"day": "tomorrow"})
        answered = await executor.send_command(asked.id, answer)
    assert [run.pending[0].arguments for run in (given, answered)] == [
        {"day": "2026-11-29"},
        {"day": "2026-11-30"},
    ]
