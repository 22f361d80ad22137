"""Idempotency keys: a request that may have been done is repeated with the same key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import Response

from loom_core.flow.config import parse_flow_file, read_flow_file
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import ConfigToolLoader, EndpointCaller
from loom_core.runs.commands import ApprovalDecision, Resume, Retry
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_PAY: dict[str, Any] = {
    "stepId": "pay",
    "operation": {"method": "POST", "url": "/pay", "idempotent": True, "retries": 0},
}


def _flow(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"flow_id": "f", "steps": list(steps)}


def _keys(api: Api, path: str = "/pay") -> list[str]:
    return [each.key.partition(":")[2] for each in api.asked if each.path == path]


async def _goes_on(executor: FlowExecutor, run: Run, how: str) -> Run:
    orders = {"again": Retry(), "from the step": Retry(step="pay"), "resumed": Resume()}
    return await executor.send_command(run.id, orders[how])


@pytest.mark.parametrize("how", ["again", "from the step", "resumed"])
@pytest.mark.parametrize("answer", [504, 500, 408])
async def test_a_request_without_an_answer_keeps_its_key(
    api: Api, flows: Flows, answer: int, how: str
) -> None:
    api.on("/pay", answer, answer, {"id": 1})
    executor = flows([_flow(_PAY)])
    run = await executor.execute("f")
    assert run.status == "failed"
    run = await _goes_on(executor, run, how)
    assert run.status == "failed"
    run = await _goes_on(executor, run, how)
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay", "pay"]


@pytest.mark.parametrize(
    "answer",
    [
        Response(b"x" * 2000),  # more than the file allows
        Response(b"x", headers={"content-encoding": "br"}),
        Response(status_code=303, headers={"location": "/paid/1"}),
    ],
)
async def test_a_request_whose_answer_cannot_be_read_keeps_its_key_too(
    api: Api, flows: Flows, answer: Response
) -> None:
    api.on("/pay", answer, {"id": 1})
    executor = flows([_flow(_PAY)], file={"net": {"allow": ["127.0.0.1"], "max_bytes": 1024}})
    run = await executor.execute("f")
    assert run.status == "failed"
    assert (await executor.retry(run.id)).status == "completed"
    assert _keys(api) == ["pay", "pay"]


async def test_a_user_decides_whether_a_request_is_repeated_whose_answer_cannot_be_read(
    api: Api, flows: Flows
) -> None:
    api.on("/pay", Response(b"x", headers={"content-encoding": "br"}), {"id": 1})
    executor = flows([_flow({"stepId": "pay", "operation": "POST /pay"})])
    run = await executor.execute("f")
    assert "Whether it was done is not known" in run.output
    run = await executor.retry(run.id)
    assert (run.status, run.pending[0].kind) == ("input_required", "unknown")
    assert _keys(api) == ["pay"]


async def test_the_key_is_the_same_after_the_process_has_died(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/pay", 504, {"id": 1})
    run = await flows([_flow(_PAY)]).execute("f")
    run = await flows([_flow(_PAY)]).retry(run.id, "pay")  # from the journal alone
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay"]


async def test_what_was_refused_for_certain_is_asked_for_again(api: Api, flows: Flows) -> None:
    api.on("/pay", 422, {"id": 1})
    executor = flows([_flow(_PAY)])
    run = await executor.execute("f")
    run = await executor.retry(run.id)
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay#2"]


async def test_a_refusal_after_a_lost_answer_leaves_it_in_doubt(api: Api, flows: Flows) -> None:
    api.on("/pay", 504, 429, {"id": 1})
    executor = flows([_flow(_PAY)])
    run = await executor.execute("f")
    run = await executor.retry(run.id)
    run = await executor.retry(run.id)
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay", "pay"]


async def test_what_has_succeeded_and_is_wanted_again_has_a_key_of_its_own(api: Api, flows: Flows) -> None:
    api.on("/pay", 504, {"id": 1})
    api.on("/tell", 422, {"ok": True})
    executor = flows([_flow(_PAY, {"stepId": "tell", "operation": "POST /tell"})])
    run = await executor.execute("f")
    run = await executor.retry(run.id)
    assert run.status == "failed"
    run = await executor.retry(run.id, "pay")
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay", "pay#2"]


@pytest.mark.parametrize("step", ["", "both"])
async def test_a_branch_keeps_its_key_too(api: Api, flows: Flows, step: str) -> None:
    api.on("/pay", 500, {"id": 1})
    both = {"stepId": "both", "parallel": [[_PAY], [{"stepId": "look", "operation": "PUT /look"}]]}
    executor = flows([_flow(both)])
    run = await executor.execute("f")
    run = await executor.retry(run.id, step)
    assert run.status == "completed"
    assert len(set(_keys(api))) == 1


async def test_a_step_that_the_flow_comes_back_to_keeps_its_key(api: Api, flows: Flows) -> None:
    api.on("/pay", 504, {"id": 1})
    back = {**_PAY, "onFailure": [{"type": "goto", "stepId": "look"}]}
    executor = flows([_flow({"stepId": "look", "operation": "GET /look"}, back)])
    run = await executor.execute("f")
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay"]


async def test_what_must_not_be_done_twice_is_asked_about_where_the_flow_comes_back_to_it(
    api: Api, flows: Flows
) -> None:
    api.on("/pay", 504, {"id": 1})
    back = {"stepId": "pay", "operation": "POST /pay", "onFailure": [{"type": "goto", "stepId": "look"}]}
    executor = flows([_flow({"stepId": "look", "operation": "GET /look"}, back)])
    run = await executor.execute("f")
    assert [each.kind for each in run.pending] == ["unknown"]
    assert api.counts["/pay"] == 1
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay"]


@pytest.mark.parametrize(
    ("tool", "step", "repeatable"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"idempotent": True}, True),
        (True, {"idempotent": False}, False),
    ],
)
async def test_a_tool_keeps_its_key_and_is_asked_about_like_a_request(
    api: Api, flows: Flows, tool: bool, step: dict[str, Any], repeatable: bool
) -> None:
    endpoint = {"method": "POST", "url": "/pay", "idempotent": tool, "retries": 0}
    written = {"name": "pay", "description": "d", "confirm": False, "endpoint": endpoint}
    head = {"flow_url": api.url, "net": {"allow": ["127.0.0.1"]}}
    file = parse_flow_file(json.dumps({**head, "system_tools": [written]})).file
    async with EndpointCaller(file) as caller:
        tools = ConfigToolLoader(file, caller).load()
        executor = flows([_flow({"stepId": "pay", "tool": "pay", **step})], tools=tools, permissions="allow")
        api.on("/pay", 504, {"id": 1})
        run = await executor.execute("f")
        assert run.status == "failed"
        run = await executor.retry(run.id)
        if not repeatable:
            assert [each.kind for each in run.pending] == ["unknown"]
            run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay"]


async def test_an_answer_that_cannot_be_read_does_not_count_as_not_done(api: Api, flows: Flows) -> None:
    api.on("/pay", {"oops": 1}, {"id": 7})
    step = {"stepId": "pay", "operation": "POST /pay", "outputs": {"number": "$response.body#/id"}}
    executor = flows([_flow(step)])
    run = await executor.execute("f")
    assert run.status == "failed"
    assert "'number' is missing" in run.problem
    run = await executor.retry(run.id)
    assert [each.kind for each in run.pending] == ["unknown"]
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"
    assert _keys(api) == ["pay", "pay"]


async def test_an_output_that_may_lack_is_null(api: Api, flows: Flows) -> None:
    api.on("/look", {"id": 7})
    outputs = {"id": "$response.body#/id", "note": "$response.body#/note?"}
    step = {"stepId": "look", "operation": "GET /look", "outputs": outputs}
    flow = {**_flow(step), "outputs": {each: f"$steps.look.outputs.{each}" for each in outputs}}
    run = await flows([flow]).execute("f")
    assert (run.status, run.structured) == ("completed", {"id": 7, "note": None})


@pytest.mark.parametrize("answer", [None, {"days": None}, {"days": "viele"}, "broken"])
async def test_a_check_of_what_is_not_there_does_not_let_the_flow_go_on(
    api: Api, flows: Flows, answer: Any
) -> None:
    async def broken(_: object) -> Response:
        return Response("{oops", media_type="application/json")

    api.on("/balance", broken if answer == "broken" else answer)
    executor = flows(
        [
            _flow(
                {"stepId": "look", "operation": "GET /balance", "outputs": {"left": "$response.body#/days?"}},
                {
                    "stepId": "enough",
                    "onSuccess": [{"type": "end", "criteria": ["$steps.look.outputs.left < 3"]}],
                },
                _PAY,
            )
        ]
    )
    run = await executor.execute("f")
    assert run.status == "failed"
    assert "cannot be compared" in run.problem
    assert "/pay" not in api.counts


async def test_what_a_failure_lacks_lets_the_next_way_out_be_looked_at(api: Api, flows: Flows) -> None:
    api.on("/look", 404)
    ways = [
        {"type": "end", "criteria": ["$response.body#/left > 3"], "response": "viel"},
        {"type": "end", "criteria": ["$statusCode == 404"], "response": "nichts da"},
    ]
    executor = flows([_flow({"stepId": "look", "operation": "GET /look", "onFailure": ways})])
    run = await executor.execute("f")
    assert (run.status, run.output) == ("completed", "nichts da")


@pytest.mark.parametrize("answer", ["broken", None, {}, {"days": None}])
async def test_the_leave_of_the_example_is_not_requested_without_a_balance(
    api: Api, journal: Journal, answer: Any
) -> None:
    async def broken(_: object) -> Response:
        return Response("{oops", media_type="application/json")

    api.on("/leave/balance", broken if answer == "broken" else answer)
    loaded = read_flow_file(Path(__file__).parents[4] / "examples" / "flow_company" / "flow.json")
    loaded = replace(loaded, file=loaded.file.model_copy(update={"flow_url": api.url}))
    async with EndpointCaller(loaded.file) as caller:
        tools = ConfigToolLoader(loaded.file, caller).load()
        executor = FlowExecutor(loaded, journal=journal, caller=caller, tools=tools)
        run = await executor.execute("leave_request", parameters={"days": 30, "start": "2027-03-01"})
    assert run.status == "failed"
    assert api.counts == {"/leave/balance": 1}
