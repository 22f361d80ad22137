"""Inputs that steps have used are corrected, as long as nothing was done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.flow.executor import FlowExecutor
from loom_core.runs.commands import ApprovalDecision, InputResponse, Retry
from loom_core.runs.journal import Journal
from loom_core.runs.run import Pending, Run

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "title": "日期", "minLength": 2},
        "people": {"type": "integer", "title": "人数"},
    },
}


def _book(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"flow_id": "book", "name": "订座", "input_schema": _SCHEMA, "steps": list(steps)}


_LOOK = {"stepId": "look", "operation": {"method": "GET", "url": "/room/{$inputs.day}", "query": {}}}
_BOTH = {
    "stepId": "both",
    "parallel": [
        [_LOOK],
        [{"stepId": "staff", "operation": {"method": "GET", "url": "/staff", "query": {}}}],
    ],
}
_ASK = {"stepId": "people", "ask": {"question": "{$inputs.day}几位？", "into": "people"}}
_POST = {"stepId": "book", "description": "订座位", "operation": "POST /book"}
_SURE = {"stepId": "sure", "confirm": "{$inputs.day}，{$inputs.people} 位？"}


def _accept(pending: Pending, **content: Any) -> InputResponse:
    return InputResponse(id=pending.id, action="accept", content=content)


@pytest.mark.parametrize("reading", [_LOOK, _BOTH])
async def test_a_correction_goes_back_to_the_first_step_that_has_only_read_with_it(
    api: Api, flows: Flows, reading: dict[str, Any]
) -> None:
    executor = flows([_book(reading, _ASK, _SURE, _POST)])
    run = await executor.execute("book", "订座", {"day": "周五"})
    run = await executor.send_command(run.id, _accept(run.pending[0], day="周六"))
    assert run.pending[0].reason == "周六几位？"
    run = await executor.send_command(run.id, _accept(run.pending[0], people=4))
    decided = ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"day": "周日"}, ask_again=True)
    run = await executor.send_command(run.id, decided)
    assert run.pending[0].reason == "周日几位？"
    run = await executor.send_command(run.id, _accept(run.pending[0], people=5))
    run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
    assert run.status == "completed"
    asked = [each.path for each in api.asked if each.path.startswith("/room")]
    assert asked == ["/room/周五", "/room/周六", "/room/周日"]
    assert api.asked[-1].body == {"day": "周日", "people": 5}


@pytest.mark.parametrize("size", [{}, {"ask": {"question": "几位？", "into": "people"}}])
async def test_a_correction_goes_back_to_a_step_that_has_decided_by_it(
    api: Api, flows: Flows, size: dict[str, Any]
) -> None:
    few = {"type": "goto", "stepId": "table", "criteria": ["$inputs.people < 9"]}
    table = {"stepId": "table", "operation": "GET /table", "onSuccess": [{"type": "goto", "stepId": "sure"}]}
    hall = {"stepId": "hall", "operation": "GET /hall", "onSuccess": [{"type": "goto", "stepId": "sure"}]}
    executor = flows([_book({"stepId": "size", **size, "onSuccess": [few]}, hall, table, _SURE, _POST)])
    run = await executor.execute("book", "订座", {"day": "周五", **({} if size else {"people": 4})})
    if size:
        run = await executor.send_command(run.id, _accept(run.pending[0], people=4))
    decided = ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"people": 20}, ask_again=True)
    run = await executor.send_command(run.id, decided)
    assert (run.pending[0].reason, api.counts["/hall"]) == ("周五，20 位？", 1)


async def test_after_a_correction_only_questions_that_are_others_now_are_asked_again(
    api: Api, flows: Flows
) -> None:
    name = {"stepId": "name", "ask": {"question": "怎么称呼？", "into": "name"}}
    book = _book(_LOOK, _ASK, name, _SURE, _POST)
    book["input_schema"] = {
        **_SCHEMA,
        "properties": {**_SCHEMA["properties"], "name": {"type": "string", "title": "姓名"}},
    }
    executor = flows([book])

    async def correct(run: Run, **values: Any) -> Run:
        order = ApprovalDecision(id=run.pending[0].id, action="edit", arguments=values, ask_again=True)
        return await executor.send_command(run.id, order)

    run = await executor.execute("book", "订座", {"day": "周五", "people": 4})
    run = await executor.send_command(run.id, _accept(run.pending[0], name="李雷"))
    run = await correct(run, day="周六")
    assert run.pending[0].reason == "周六，4 位？"  # neither was asked about the day
    run = await correct(run, day="周日", people=5)
    assert run.pending[0].reason == "周日，5 位？"
    run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
    assert api.asked[-1].body == {"day": "周日", "people": 5, "name": "李雷"}


async def test_what_a_correction_went_back_for_is_known_after_a_crash(
    api: Api, flows: Flows, journal: Journal
) -> None:
    written = _book(_LOOK, _ASK, _POST)
    run = await flows([written]).execute("book", "订座", {"day": "周五"})
    run = await flows([written]).send_command(run.id, _accept(run.pending[0], day="周六"))
    run = await flows([written]).send_command(run.id, _accept(run.pending[0], people=2))
    assert run.status == "completed"
    assert api.asked[-1].body == {"day": "周六", "people": 2}
    told = [event.payload for event in await journal.events(run.id) if event.type == "inputs"]
    assert told[0]["back_to"] == "look"


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_what_something_was_done_with_stays_and_it_is_said_in_words(
    api: Api, flows: Flows, method: str
) -> None:
    hold = {
        "stepId": "hold",
        "description": "先占座",
        "operation": f"{method} /hold",
        "parameters": {"day": "{$inputs.day}"},
    }
    executor = flows([_book(hold, _ASK, _POST)])
    run = await executor.execute("book", "订座", {"day": "周五"})
    run = await executor.send_command(run.id, _accept(run.pending[0], day="周六"))
    assert "日期改不了了：“先占座”已经按原来的办好了" in run.pending[0].reason
    assert "hold" not in run.pending[0].reason
    run = await executor.send_command(run.id, _accept(run.pending[0], people=4))
    assert api.asked[-1].body == {"day": "周五", "people": 4}


async def test_a_run_that_failed_on_a_wrong_input_is_retried_with_another(
    api: Api, flows: Flows, journal: Journal
) -> None:
    order = {"flow_id": "order", "input_schema": _SCHEMA, "endpoint": "GET /room/{$inputs.day}"}
    api.on("/room/周八", 404)
    executor = flows([order])
    run = await executor.execute("order", "查座", {"day": "周八"})
    assert run.status == "failed"
    run = await flows([order]).retry(run.id, inputs={"day": "周六"})
    assert run.status == "completed"
    assert api.asked[-1].path == "/room/周六"


async def test_a_retry_with_another_input_goes_back_past_the_step_that_failed(api: Api, flows: Flows) -> None:
    api.on("/book", 422, {"ok": True})
    executor = flows([_book(_LOOK, _POST)])
    run = await executor.execute("book", "订座", {"day": "周五", "people": 2})
    run = await executor.retry(run.id, inputs={"people": 3})
    assert run.status == "completed"
    assert [each.path for each in api.asked] == ["/room/周五", "/book", "/book"]
    assert [each.key.partition(":")[2] for each in api.asked[1:]] == ["book", "book#2"]

    api.on("/book", 422, {"ok": True})
    run = await executor.execute("book", "订座", {"day": "周五", "people": 2})
    run = await executor.retry(run.id, inputs={"day": "周六"})
    assert run.status == "completed"
    assert [each.path for each in api.asked[3:]] == ["/room/周五", "/book", "/room/周六", "/book"]
    assert api.asked[-1].body == {"day": "周六", "people": 2}


async def test_a_retry_with_another_input_does_not_repeat_what_may_have_been_done(
    api: Api, flows: Flows
) -> None:
    api.on("/book", 500)
    executor = flows([_book(_LOOK, _POST)])
    run = await executor.execute("book", "订座", {"day": "周五", "people": 2})
    run = await executor.retry(run.id, inputs={"people": 3})
    assert run.status == "failed"
    assert "人数现在改不了：“订座位”可能已经按原来的办了" in run.problem
    assert api.counts["/book"] == 1
    api.on("/book", {"ok": True})
    run = await executor.retry(run.id)
    assert run.status == "completed"
    assert {each.key.partition(":")[2] for each in api.asked if each.path == "/book"} == {"book"}
    assert api.asked[-1].body == {"day": "周五", "people": 2}


async def test_inputs_of_a_retry_are_checked_at_once(api: Api, flows: Flows) -> None:
    api.on("/book", 422)
    executor = flows([_book(_POST)])
    run = await executor.execute("book", "订座", {"day": "周五", "people": 2})
    for wrong, why in (({"people": "viele"}, "people"), ({"who": "x"}, "no input 'who'")):
        with pytest.raises(InvalidInputError, match=why):
            await executor.retry(run.id, inputs=wrong)
    assert api.counts["/book"] == 1


async def test_a_retry_with_what_no_step_has_used_goes_on_where_it_failed(api: Api, flows: Flows) -> None:
    api.on("/a", 422, {"ok": True})
    fail = {"stepId": "a", "operation": {"method": "POST", "url": "/a", "body": {}}}
    later = {"stepId": "b", "operation": {"method": "POST", "url": "/b", "body": {"day": "{$inputs.day}"}}}
    executor = flows([_book(fail, later)])
    run = await executor.execute("book", "订座", {"day": "周五"})
    run = await executor.send_command(run.id, Retry(inputs={"day": "周六"}))
    assert run.status == "completed"
    assert [(each.path, each.body) for each in api.asked] == [
        ("/a", {}),
        ("/a", {}),
        ("/b", {"day": "周六"}),
    ]
