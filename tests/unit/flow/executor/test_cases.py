"""Steps of which the first case that fits is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.flow.executor import FlowExecutor
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.journal import Journal

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_INPUTS = {"type": "object", "properties": {"days": {"type": "integer"}, "kind": {"type": "string"}}}


def _post(step_id: str, **more: Any) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


def _flow(*cases: dict[str, Any], after: Any = (), **more: Any) -> dict[str, Any]:
    route = {"stepId": "route", "switch": list(cases), **more}
    return {"flow_id": "f", "input_schema": _INPUTS, "steps": [route, *after]}


_LONG = {"when": "$inputs.days > 3", "steps": [_post("manager", outputs={"id": "$response.body#/id?"})]}
_SICK = {"when": ["$inputs.days <= 3", "$inputs.kind == 'sick'"], "steps": [_post("doctor"), _post("file")]}
_ELSE = {"steps": [_post("auto")]}


@pytest.mark.parametrize(
    ("inputs", "asked"),
    [
        ({"days": 5, "kind": "sick"}, ["/manager"]),
        ({"days": 2, "kind": "Sick"}, ["/doctor", "/file"]),
        ({"days": 2, "kind": "fun"}, ["/auto"]),
    ],
)
async def test_the_first_case_whose_criteria_hold_is_run(
    api: Api, flows: Flows, inputs: dict[str, Any], asked: list[str]
) -> None:
    run = await flows([_flow(_LONG, _SICK, _ELSE)]).execute("f", parameters=inputs)
    assert run.status == "completed", run.problem
    assert [each.path for each in api.asked] == asked


async def test_a_step_of_which_no_case_fits_does_nothing(api: Api, flows: Flows) -> None:
    flow = _flow(_LONG, after=[_post("then", parameters={"id": "{$steps.manager.outputs.id}"})])
    run = await flows([flow]).execute("f", parameters={"days": 1})
    assert (run.status, [each.body for each in api.asked]) == ("completed", [{}])


async def test_outputs_of_the_case_and_its_result_can_be_used_afterwards(api: Api, flows: Flows) -> None:
    api.on("/manager", {"id": 7})
    parameters = {"id": "{$steps.manager.outputs.id}", "all": "$steps.route.outputs.result"}
    flow = _flow(_LONG, after=[_post("then", parameters=parameters)])
    run = await flows([flow]).execute("f", parameters={"days": 9})
    assert run.status == "completed", run.problem
    assert api.asked[-1].body == {"id": 7, "all": {"id": 7}}


async def test_a_criterion_on_a_missing_value_fails_the_step(flows: Flows) -> None:
    run = await flows([_flow(_LONG, _ELSE)]).execute("f")
    assert run.status == "failed"
    assert "cannot be compared" in run.problem


async def test_a_case_that_fails_is_the_failure_of_its_step_and_goes_on_there(api: Api, flows: Flows) -> None:
    api.on("/file", 422, {"ok": True})
    executor = flows([_flow(_SICK, _ELSE)])
    run = await executor.execute("f", parameters={"days": 1, "kind": "sick"})
    assert (run.status, "route/0/file" in run.problem) == ("failed", True)
    run = await executor.retry(run.id)
    assert run.status == "completed"
    assert api.counts == {"/doctor": 1, "/file": 2}


async def test_a_case_may_ask_and_stays_the_same_while_it_waits(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/look", {"left": 5}, {"left": 0})
    look = {"stepId": "look", "operation": "GET /look", "outputs": {"left": "$response.body#/left"}}
    sure = {"stepId": "sure", "confirm": "Really?"}
    route = {
        "stepId": "route",
        "switch": [{"when": "$steps.look.outputs.left > 0", "steps": [sure, _post("book")]}, _ELSE],
    }
    executor = flows([{"flow_id": "f", "steps": [look, route]}])
    run = await executor.execute("f")
    (pending,) = run.pending
    run = await executor.send_command(run.id, ApprovalDecision(id=pending.id, action="approve"))
    assert (run.status, api.counts) == ("completed", {"/look": 1, "/book": 1})
    branches = [event.payload for event in await journal.events(run.id) if event.type == "branch"]
    assert [(each["branch"], each["status"]) for each in branches] == [(0, "start"), (0, "success")]
    assert api.asked[-1].key == f"{run.id}:route/0/book"


async def test_a_corrected_input_chooses_the_case_again(api: Api, flows: Flows) -> None:
    ask = {"stepId": "why", "ask": {"question": "Why?", "schema": {"type": "string"}}}
    executor = flows([_flow({**_LONG, "steps": [ask, *_LONG["steps"]]}, _ELSE)])
    run = await executor.execute("f", parameters={"days": 5})
    answer = InputResponse(id=run.pending[0].id, action="accept", content={"days": 1})
    run = await executor.send_command(run.id, answer)
    assert (run.status, api.counts) == ("completed", {"/auto": 1}), run.pending


async def test_cases_of_cases_and_of_branches_are_run(api: Api, flows: Flows) -> None:
    inner = {"stepId": "inner", "switch": [{"when": "$inputs.days == 9", "steps": [_post("nine")]}]}
    both = {"stepId": "both", "parallel": [[inner], [_post("b")]]}
    run = await flows([_flow({"steps": [both]})]).execute("f", parameters={"days": 9})
    assert (run.status, api.counts) == ("completed", {"/nine": 1, "/b": 1})
    assert {each.key.partition(":")[2] for each in api.asked} == {
        "route/0/both/0/inner/0/nine",
        "route/0/both/1/b",
    }
