from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.flow.executor import FlowExecutor, FlowLimits
from loom_core.runs.journal import Journal

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

LEAVE: dict[str, Any] = {
    "flow_id": "请假",
    "name": "请假申请",
    "input_schema": {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "title": "天数", "minimum": 1},
            "reason": {"type": "string", "title": "事由"},
        },
        "required": ["days", "reason"],
    },
    "endpoint": "POST /leave",
    "outputs": {"id": "$response.body#/id"},
    "response": "已提交，单号 {$outputs.id}",
}


async def test_a_flow_of_one_request_sends_its_inputs_and_says_what_came(api: Api, flows: Flows) -> None:
    api.on("/leave", {"id": "L-7"})
    run = await flows([LEAVE]).execute("请假", "我要请三天假", {"days": 3, "reason": "探亲"})
    assert (run.status, run.output, run.structured) == ("completed", "已提交，单号 L-7", {"id": "L-7"})
    (asked,) = api.asked
    assert asked.body == {"days": 3, "reason": "探亲"}
    assert asked.key == f"{run.id}:request"


async def test_a_flow_without_an_endpoint_asks_the_flow_url(api: Api, flows: Flows) -> None:
    api.on("/", {"answer": "好的"})
    executor = flows([{"flow_id": "order"}], file={"context": {"tenantId": "t1"}})
    run = await executor.execute("order", "我的订单", context={"chatbotId": "c2"})
    assert run.structured == {"answer": "好的"}
    assert api.asked[0].body == {
        "flow_id": "order",
        "message": "我的订单",
        "parameters": {},
        "context": {"tenantId": "t1", "chatbotId": "c2"},
    }


async def test_steps_hand_their_outputs_on_in_order(api: Api, flows: Flows, journal: Journal) -> None:
    api.on("/customers/7", {"name": "王芳", "地址": {"城市": "上海"}})
    api.on("/orders", {"id": 42})
    flow = {
        "flow_id": "order",
        "input_schema": {"type": "object", "properties": {"customer": {"type": "integer"}}},
        "steps": [
            {
                "stepId": "find",
                "operation": "GET /customers/{$inputs.customer}",
                "outputs": {"city": "$response.body#/地址/城市", "name": "$response.body.name"},
            },
            {
                "stepId": "order",
                "operation": "POST /orders",
                "parameters": {"to": "{$steps.find.outputs.city}", "who": "给 {$steps.find.outputs.name}"},
                "outputs": {"id": "$response.body#/id"},
            },
        ],
        "outputs": {"number": "$steps.order.outputs.id"},
        "response": "订单号 {$outputs.number}",
    }
    run = await flows([flow]).execute("order", "下单", {"customer": 7})
    assert (run.output, run.structured) == ("订单号 42", {"number": 42})
    assert api.asked[1].body == {"to": "上海", "who": "给 王芳"}
    types = [event.type for event in await journal.events(run.id)]
    assert types == ["flow_start", "step_start", "step_result", "step_start", "step_result", "flow_finish"]


async def test_what_does_not_fit_is_refused_before_there_is_a_run(flows: Flows, journal: Journal) -> None:
    executor = flows([LEAVE])
    with pytest.raises(NotFoundError, match="请假"):
        await executor.execute("leave")
    with pytest.raises(InvalidInputError, match="days"):
        await executor.execute("请假", parameters={"days": "many"})
    with pytest.raises(InvalidInputError, match="no input 'day'"):
        await executor.execute("请假", parameters={"day": 3})
    assert await journal.runs() == []


async def test_a_failing_request_fails_the_run_and_says_why(api: Api, flows: Flows, journal: Journal) -> None:
    api.on("/leave", 422)
    run = await flows([LEAVE]).execute("请假", "请假", {"days": 3, "reason": "探亲"})
    assert run.status == "failed"
    assert "status 422" in run.problem
    events = await journal.events(run.id)
    assert events[-2].payload["status"] == "failure"
    assert (events[-1].type, events[-1].payload["failure"]) == ("error", "step")


async def test_a_criterion_decides_what_has_succeeded(api: Api, flows: Flows) -> None:
    api.on("/pay", {"code": 1, "msg": "余额不足"})
    flow = {
        "flow_id": "pay",
        "steps": [
            {
                "stepId": "pay",
                "operation": {
                    "url": "/pay",
                    "successCriteria": ["$response.body#/code == 0"],
                    "failure": "{$response.body#/msg}",
                },
            }
        ],
    }
    run = await flows([flow]).execute("pay")
    assert run.status == "failed"
    assert "余额不足" in run.problem


@pytest.mark.parametrize("where", ["operation", "step"])
async def test_what_users_are_told_of_a_failure_has_titles_and_words(
    api: Api, flows: Flows, where: str
) -> None:
    api.on("/book", 409 if where == "operation" else {"left": 0})
    room = {"oneOf": [{"const": "R1", "title": "The hall"}], "default": "R1"}
    day = {"type": "string", "format": "date", "default": "2026-12-01"}
    criteria = {} if where == "operation" else {"successCriteria": ["$response.body#/left > 0"]}
    operation = {"url": "/book", "failure": "{$inputs.room} is full on {$inputs.day}."}
    flow = {
        "flow_id": "book",
        "input_schema": {"type": "object", "properties": {"room": room, "day": day}},
        "steps": [{"stepId": "book", "operation": operation, **criteria}],
    }
    run = await flows([flow]).execute("book")
    assert "The hall is full on Tuesday, 1 December 2026." in run.output
    assert api.asked[0].body == {"room": "R1", "day": "2026-12-01"}


async def test_goto_and_end_lead_elsewhere(api: Api, flows: Flows) -> None:
    api.on("/stock", {"left": 0})
    flow = {
        "flow_id": "buy",
        "steps": [
            {
                "stepId": "stock",
                "operation": "GET /stock",
                "onSuccess": [
                    {"type": "goto", "stepId": "wait", "criteria": ["$response.body#/left == 0"]},
                ],
            },
            {"stepId": "buy", "operation": "POST /buy"},
            {
                "stepId": "wait",
                "operation": "POST /wait",
                "onSuccess": [{"type": "end", "response": "已登记，{$response.body#/ok}"}],
            },
            {"stepId": "never", "operation": "POST /never"},
        ],
    }
    run = await flows([flow]).execute("buy")
    assert (run.status, run.output) == ("completed", "已登记，true")
    assert dict(api.counts) == {"/stock": 1, "/wait": 1}


async def test_a_flow_that_goes_in_circles_is_stopped(api: Api, flows: Flows) -> None:
    flow = {
        "flow_id": "circle",
        "steps": [
            {"stepId": "a", "operation": "POST /a"},
            {"stepId": "b", "operation": "POST /b", "onSuccess": [{"type": "goto", "stepId": "a"}]},
        ],
    }
    run = await flows([flow], limits=FlowLimits(visits=3)).execute("circle")
    assert run.status == "failed"
    assert "an endless loop" in run.problem
    assert api.counts == {"/a": 3, "/b": 3}
    keys = [each.key.partition(":")[2] for each in api.asked]
    assert keys == ["a", "b", "a#2", "b#2", "a#3", "b#3"]


async def test_a_step_is_retried_as_its_action_says_and_then_falls_back(api: Api, flows: Flows) -> None:
    api.on("/pay", 500, 500, 500)
    flow = {
        "flow_id": "pay",
        "steps": [
            {
                "stepId": "pay",
                "operation": "POST /pay",
                "onFailure": [
                    {"type": "retry", "retryAfter": 0.01, "retryLimit": 2},
                    {"type": "goto", "stepId": "sorry"},
                ],
            },
            {"stepId": "ship", "operation": "POST /ship"},
            {"stepId": "sorry", "operation": "POST /sorry"},
        ],
    }
    run = await flows([flow]).execute("pay")
    assert run.status == "completed"
    assert api.counts == {"/pay": 3, "/sorry": 1}
    assert len({each.key for each in api.asked if each.path == "/pay"}) == 1


async def test_something_else_is_done_before_a_retry(api: Api, flows: Flows) -> None:
    api.on("/data", 401, {"value": 1})
    flow = {
        "flow_id": "data",
        "steps": [
            {
                "stepId": "data",
                "operation": "GET /data",
                "onFailure": [{"type": "retry", "stepId": "login", "retryAfter": 0}],
                "onSuccess": [{"type": "end"}],
            },
            {"stepId": "login", "operation": "POST /login"},
        ],
    }
    run = await flows([flow]).execute("data")
    assert run.status == "completed", run.problem
    assert [each.path for each in api.asked] == ["/data", "/login", "/data"]
