"""Steps that run for each item of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.requests import Request

from loom_core.flow.executor import FlowExecutor
from loom_core.flow.executor.definition import compute_digests
from loom_core.flow.executor.recorder import FlowRecorder
from loom_core.flow.executor.state import Frame
from loom_core.runs.commands import ApprovalDecision
from loom_core.runs.journal import Journal

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_INPUTS = {"type": "object", "properties": {"ids": {"type": "array"}, "who": {"type": "string"}}}
_BOOK: dict[str, Any] = {
    "stepId": "book",
    "operation": "POST /book/{$item#/id}",
    "parameters": {"number": "$index", "all": "{$item}", "who": "{$inputs.who}"},
}


def _flow(*steps: dict[str, Any], after: Any = (), **more: Any) -> dict[str, Any]:
    each = {"stepId": "each", "for_each": {"in": "$inputs.ids", "steps": list(steps), **more}}
    return {"flow_id": "f", "input_schema": _INPUTS, "steps": [each, *after]}


def _items(count: int) -> dict[str, Any]:
    return {"ids": [{"id": number} for number in range(count)], "who": "王芳"}


async def test_the_steps_run_for_each_item_in_order_and_their_results_are_a_list(
    api: Api, flows: Flows
) -> None:
    for number in range(3):
        api.on(f"/book/{number}", {"booked": number})
    then = {"stepId": "then", "operation": "POST /then", "parameters": {"all": "$steps.each.outputs.results"}}
    run = await flows([_flow(_BOOK, after=[then])]).execute("f", parameters=_items(3))
    assert run.status == "completed", run.problem
    assert [each.path for each in api.asked] == ["/book/0", "/book/1", "/book/2", "/then"]
    assert api.asked[1].body == {"number": 1, "all": {"id": 1}, "who": "王芳"}
    assert api.asked[3].body == {"all": [{"booked": 0}, {"booked": 1}, {"booked": 2}]}
    assert [each.key.partition(":")[2] for each in api.asked[:2]] == ["each/0/book", "each/1/book"]


async def test_a_list_may_be_in_the_file_and_empty(api: Api, flows: Flows) -> None:
    put = {"stepId": "put", "operation": "PUT /{$item}"}
    run = await flows([_flow(put, **{"in": ["a", "{$inputs.who}"]})]).execute("f", parameters=_items(0))
    assert [each.path for each in api.asked] == ["/a", "/王芳"]
    run = await flows([_flow(put)]).execute("f", parameters=_items(0))
    assert (run.status, len(api.asked)) == ("completed", 2)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (_items(4), "There are 4 items, more than the limit of 3: nothing was done."),
        ({"who": "x"}, "$inputs.ids is not a list"),
    ],
)
async def test_no_list_and_one_that_is_too_long_fail_before_anything_is_done(
    api: Api, flows: Flows, inputs: dict[str, Any], said: str
) -> None:
    run = await flows([_flow(_BOOK, limit=3)]).execute("f", parameters=inputs)
    assert (run.status, api.asked) == ("failed", [])
    assert said in run.problem


async def test_so_many_items_run_at_a_time(api: Api, flows: Flows) -> None:
    running, most, both = set[str](), list[int](), anyio.Event()

    async def book(request: Request) -> Any:
        running.add(request.url.path)
        most.append(len(running))
        if len(running) == 2:
            both.set()
        with anyio.fail_after(30):
            await both.wait()
        running.discard(request.url.path)
        return {"ok": True}

    for number in range(6):
        api.on(f"/book/{number}", book)
    run = await flows([_flow(_BOOK, parallel=2)]).execute("f", parameters=_items(6))
    assert (run.status, len(api.asked), max(most)) == ("completed", 6, 2)


async def test_items_that_fail_do_not_stop_the_others_and_only_they_are_done_again(
    api: Api, flows: Flows
) -> None:
    api.on("/book/1", 422, {"ok": 1})
    api.on("/book/3", 422, {"ok": 3})
    executor = flows([_flow(_BOOK, {"stepId": "tell", "operation": "POST /tell"})])
    run = await executor.execute("f", parameters=_items(4))
    assert run.status == "failed"
    assert "2 of 4 items have failed." in run.problem
    assert "2 of 4 did not succeed." in run.output
    run = await executor.retry(run.id)
    assert run.status == "completed", run.problem
    assert api.counts == {"/book/0": 1, "/book/1": 2, "/book/2": 1, "/book/3": 2, "/tell": 4}


async def test_an_action_sees_the_results_of_the_others_and_may_retry(api: Api, flows: Flows) -> None:
    api.on("/book/1", 422)
    goto = {"type": "goto", "stepId": "tell"}
    flow = _flow(_BOOK)
    flow["steps"][0]["onFailure"] = [{"type": "retry", "retryAfter": 0, "retryLimit": 2}, goto]
    results = {"results": "$steps.each.outputs.results"}
    flow["steps"].append({"stepId": "tell", "operation": "POST /tell", "parameters": results})
    run = await flows([flow]).execute("f", parameters=_items(2))
    assert run.status == "completed", run.problem
    assert api.counts == {"/book/0": 1, "/book/1": 3, "/tell": 1}
    assert api.asked[-1].body == {"results": [{"ok": True}, None]}


async def test_the_user_may_be_asked_about_each_item(api: Api, flows: Flows) -> None:
    no = [{"type": "end"}]
    sure = {"stepId": "sure", "confirm": "Book {$item#/id} for {$inputs.who}?", "onFailure": no}
    executor = flows([_flow(sure, _BOOK)])
    run = await executor.execute("f", parameters=_items(3))
    for number, action in enumerate(["approve", "deny", "approve"]):
        (pending,) = run.pending
        assert pending.reason == f"Book {number} for 王芳?"
        run = await executor.send_command(run.id, ApprovalDecision(id=pending.id, action=action))
    assert (run.status, api.counts) == ("completed", {"/book/0": 1, "/book/2": 1})


async def test_items_of_items_see_the_inner_item_and_cases_the_one_around_them(
    api: Api, flows: Flows
) -> None:
    put = {"stepId": "put", "operation": "PUT /{$item}/{$index}"}
    case = {"stepId": "case", "switch": [{"when": "$item != 'b'", "steps": [put]}]}
    inner = {"stepId": "inner", "for_each": {"in": "$item", "steps": [case]}}
    run = await flows([_flow(inner)]).execute("f", parameters={"ids": [["a", "b"], [], ["c"]]})
    assert (run.status, [each.path for each in api.asked]) == ("completed", ["/a/0", "/c/0"]), run.problem


async def test_a_crash_between_the_starts_of_two_items_loses_none_and_changes_none(
    api: Api, flows: Flows, journal: Journal
) -> None:
    executor = flows([_flow(_BOOK)])
    run = await journal.create(executor.build_request("f", parameters=_items(2)))
    log = await journal.claim(run.id)
    assert log is not None
    steps = executor.parts.file.find_flow("f").steps
    shared: dict[str, Any] = {"flow_id": "f", "scope": ""}
    async with log:
        record = FlowRecorder(log)
        digests = compute_digests(steps)
        root = Frame(
            path="", parent=None, step="", key="", inputs=_items(2), digests=digests, at="each", **shared
        )
        record.record_flow_start(root, name="f", message="", config=executor.parts.version)
        record.record_step_start(root, "each", "")
        digests = compute_digests(steps[0].inner_steps(0))
        where: dict[str, Any] = {"path": "each/0/", "parent": "", "step": "each", "key": "each/0/"}
        record.record_branch_start(
            Frame(inputs={}, digests=digests, at="book", item=[{"id": "kept"}], **where, **shared)
        )
        await record.commit()
    run = await executor.resume(run.id)
    assert run.status == "completed", run.problem
    assert [each.path for each in api.asked] == ["/book/kept", "/book/1"]
