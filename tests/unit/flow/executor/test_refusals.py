"""Arguments that a run or an executor refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.errors import InvalidInputError
from loom_core.flow.config import parse_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import EndpointCaller
from loom_core.runs.commands import ApprovalDecision, InputResponse, Retry
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]


def _post(step_id: str, **more: Any) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


def _flow(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"flow_id": "f", "steps": list(steps), **more}


async def test_an_order_to_go_on_from_a_step_that_is_not_there_leaves_the_run_as_it_was(
    api: Api, flows: Flows
) -> None:
    api.on("/pay", 422, {"id": 1})
    executor = flows([_flow(_post("pay"))])
    run = await executor.execute("f")
    run = await executor.send_command(run.id, Retry(step="both/0/pay"))
    assert run.status == "failed"
    assert "'both/0/pay'" in run.problem
    assert "There are: pay." in run.problem
    assert (await executor.retry(run.id)).status == "completed"


async def test_inputs_that_do_not_fit_together_are_asked_for_again(api: Api, flows: Flows) -> None:
    schema = {
        "type": "object",
        "properties": {"from": {"type": "string"}, "to": {"type": "string"}},
        "dependentRequired": {"to": ["from"]},
    }
    executor = flows([{"flow_id": "f", "input_schema": schema, "endpoint": "POST /trip"}])
    run = await executor.execute("f", "Book a trip", {"to": "Shanghai"})
    assert run.status == "input_required"
    assert "does not fit" in run.pending[0].reason
    content = {"to": "Shanghai", "from": "Beijing"}
    run = await executor.send_command(
        run.id, InputResponse(id=run.pending[0].id, action="accept", content=content)
    )
    assert run.status == "completed"
    assert api.asked[0].body == content


async def test_a_change_that_does_not_fit_is_asked_for_again(api: Api, flows: Flows) -> None:
    schema = {"type": "object", "properties": {"days": {"type": "integer", "maximum": 5}}}
    sure = {"stepId": "sure", "confirm": "{$inputs.days} days?"}
    executor = flows([_flow(sure, _post("leave"), input_schema=schema, confirm="always")])
    run = await executor.execute("f", "Leave", {"days": 3})
    for _ in range(2):
        wrong = ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"days": 9})
        run = await executor.send_command(run.id, wrong)
        assert run.status == "input_required"
        assert "does not fit" in run.pending[0].reason
        right = ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"days": 4})
        run = await executor.send_command(run.id, right)
    assert run.status == "completed"
    assert api.asked[0].body == {"days": 4}


async def test_a_run_that_stands_at_a_step_that_is_gone_says_so(api: Api, flows: Flows) -> None:
    run = await flows([_flow(_post("pay"), {"stepId": "ask", "ask": "Which?"})]).execute("f")
    executor = flows([_flow(_post("pay"), _post("tell"))])
    run = await executor.send_command(
        run.id, InputResponse(id="ask", action="accept", content={"answer": "A"})
    )
    assert "'ask' is different" in run.problem
    run = await executor.retry(run.id)
    assert "no step 'ask' any more" in run.problem
    run = await executor.retry(run.id, "tell")
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/tell": 1}


async def test_who_wants_a_run_driven_that_another_drives_waits_for_it(api: Api, flows: Flows) -> None:
    executor = flows([_flow(_post("pay"))])
    run = await executor.journal.create(executor.build_request("f"))
    ended: list[Run] = []

    async def drive() -> None:
        ended.append(await executor.resume(run.id))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(drive)
    assert [each.status for each in ended] == ["completed"] * 3
    assert api.counts == {"/pay": 1}


async def test_another_file_is_taken_while_runs_go_on(api: Api, flows: Flows, journal: Journal) -> None:
    executor = flows([_flow({"stepId": "ask", "ask": "Which?"}, _post("old"))])
    run = await executor.execute("f", route={"how": "pattern", "flow_id": "f"})
    assert (await journal.events(run.id))[0].type == "route"
    steps = [{"stepId": "ask", "ask": "Which?"}, _post("new")]
    written = {"net": {"allow": ["127.0.0.1"]}, "flow_url": api.url, "flows": [_flow(*steps)]}
    loaded = parse_flow_file(json.dumps(written))
    async with EndpointCaller(loaded.file) as caller:
        executor.reload(loaded, caller=caller)
        run = await executor.send_command(
            run.id, InputResponse(id="ask", action="accept", content={"answer": "A"})
        )
    assert run.status == "completed"
    assert api.counts == {"/new": 1}


async def test_a_condition_that_cannot_be_judged_is_a_failure(api: Api, flows: Flows) -> None:
    api.on("/pay", {"codes": ["a"]})
    criterion = {"type": "jsonpath", "context": "$response.body", "condition": "$.codes[?@ == 'b']"}
    executor = flows([_flow(_post("pay", successCriteria=[criterion]))])
    run = await executor.execute("f")
    assert run.status == "failed"
    assert "success criteria" in run.problem


@pytest.mark.parametrize(
    "number",
    [float("nan"), float("inf"), pytest.param(10**5000, id="long"), pytest.param("\ud800", id="half")],
)
async def test_numbers_that_json_does_not_have_are_refused_at_the_entrance(
    api: Api, flows: Flows, number: object
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    executor = flows([{"flow_id": "f", "endpoint": "POST /f", "input_schema": schema}])
    with pytest.raises(InvalidInputError, match="JSON"):
        await executor.execute("f", parameters={"n": number})
    assert not api.asked


@pytest.mark.parametrize(
    ("wait", "problem"),
    [
        ({"until": "明天"}, "'明天' is no date or time"),
        ({"until": "0001-01-01T00:00"}, "'0001-01-01T00:00' is no date or time"),
        ({"event": "paid", "key": "{$inputs.order}"}, "The key of the event 'paid' is empty"),
    ],
)
async def test_a_wait_for_what_cannot_come_is_a_failed_step(
    flows: Flows, wait: dict[str, Any], problem: str
) -> None:
    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    executor = flows([_flow({"stepId": "wait", "wait_for": wait}, input_schema=schema)])
    assert problem in (await executor.execute("f")).problem
