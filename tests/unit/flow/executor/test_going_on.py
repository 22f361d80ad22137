"""A run goes on after what drove it is gone, after failures, and after its flow has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.requests import Request

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.flow.executor import FlowExecutor, FlowLimits
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse, Resume, Retry
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.run import PARENT_RUN, Run, RunRequest

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]


def _flow(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"flow_id": "f", "steps": list(steps), **more}


def _post(step_id: str, **more: Any) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


class Hanging:
    """Begins, and does not answer before it is let go."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()

    async def __call__(self, request: Request) -> Any:
        self.begun.set()
        with anyio.move_on_after(10):
            await self.go.wait()
        return {"late": True}


async def _break_off(executor: FlowExecutor, run: Run, when: anyio.Event) -> None:
    """Drive a run, and be gone in the middle of it."""
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        with anyio.fail_after(30):
            await when.wait()
        group.cancel_scope.cancel()


async def _begun(executor: FlowExecutor, **named: Any) -> Run:
    return await executor.journal.create(executor.build_request("f", **named))


async def test_what_may_have_been_done_is_asked_about_and_done_again_under_the_same_key(
    api: Api, flows: Flows
) -> None:
    hanging = Hanging()
    api.on("/pay", hanging, {"id": 1})
    executor = flows([_flow(_post("look", idempotent=True), _post("pay"), _post("tell"))])
    run = await _begun(executor)
    await _break_off(executor, run, hanging.begun)
    hanging.go.set()

    run = await executor.resume(run.id)
    (pending,) = run.pending
    assert (pending.kind, pending.id, pending.tool) == ("unknown", "pay", "f")
    assert api.counts == {"/look": 1, "/pay": 1}

    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"
    assert api.counts == {"/look": 1, "/pay": 2, "/tell": 1}
    assert {each.key for each in api.asked if each.path == "/pay"} == {f"{run.id}:pay"}


async def test_what_may_have_been_done_and_is_not_wanted_again_is_a_failure(api: Api, flows: Flows) -> None:
    hanging = Hanging()
    api.on("/pay", hanging)
    retry = {"type": "retry", "retryLimit": 3, "retryAfter": 0}
    executor = flows([_flow(_post("pay", onFailure=[retry]))])
    run = await _begun(executor)
    await _break_off(executor, run, hanging.begun)
    hanging.go.set()
    run = await executor.resume(run.id)
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="deny"))
    assert run.status == "failed"
    assert "It is not known" in run.problem
    run = await executor.send_command(run.id, Resume())
    assert [each.kind for each in run.pending] == ["unknown"]
    assert api.counts == {"/pay": 1}
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="deny"))
    api.on("/pay", {"id": 1})
    run = await executor.retry(run.id, "pay")
    assert run.status == "completed"
    assert {each.key for each in api.asked} == {f"{run.id}:pay"}


async def test_what_does_no_harm_is_done_again_without_asking(api: Api, flows: Flows) -> None:
    hanging = Hanging()
    api.on("/look", hanging, {"found": True})
    executor = flows([_flow({"stepId": "look", "operation": "GET /look"})])
    run = await _begun(executor)
    await _break_off(executor, run, hanging.begun)
    hanging.go.set()
    run = await executor.resume(run.id)
    assert (run.status, run.structured) == ("completed", {"found": True})


async def test_no_answer_in_time_is_not_taken_for_a_no(api: Api, flows: Flows) -> None:
    hanging = Hanging()
    api.on("/pay", hanging, {"id": 1})
    retry = {"type": "retry", "retryAfter": 0}
    executor = flows([_flow(_post("pay", timeout_seconds=0.2, onFailure=[retry]))])
    run = await executor.execute("f")
    hanging.go.set()
    assert run.status == "input_required"
    assert run.pending[0].kind == "unknown"
    assert api.counts == {"/pay": 1}
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"


async def test_a_retry_that_waits_is_still_due_when_the_program_is_started_again(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/pay", 503, {"id": 1})
    retry = {"type": "retry", "retryAfter": 0.6}
    executor = flows([_flow(_post("pay", onFailure=[retry]))])
    run = await _begun(executor)
    waits = anyio.Event()

    async def watch() -> None:
        async for event in journal.follow(run.id):
            if event.type == "step_result":
                waits.set()
                return

    began = time.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await _break_off(executor, run, waits)
    run = await flows([_flow(_post("pay", onFailure=[retry]))]).resume(run.id)
    assert run.status == "completed"
    assert time.monotonic() - began >= 0.6
    assert api.counts == {"/pay": 2}


async def test_a_failed_run_goes_on_where_it_failed(api: Api, flows: Flows) -> None:
    api.on("/pay", 422, {"id": 1})
    executor = flows([_flow(_post("reserve"), _post("pay"), _post("tell"))])
    run = await executor.execute("f")
    assert run.status == "failed"
    run = await executor.retry(run.id, by="王芳")
    assert run.status == "completed"
    assert api.counts == {"/reserve": 1, "/pay": 2, "/tell": 1}


async def test_a_retry_from_a_step_does_it_and_what_follows_again(api: Api, flows: Flows) -> None:
    api.on("/tell", 422, {"ok": True})
    executor = flows([_flow(_post("reserve"), _post("pay"), _post("tell"))])
    run = await executor.execute("f")
    run = await executor.retry(run.id, "pay")
    assert run.status == "completed"
    assert api.counts == {"/reserve": 1, "/pay": 2, "/tell": 2}
    keys = [each.key.partition(":")[2] for each in api.asked]
    assert keys == ["reserve", "pay", "tell", "pay#2", "tell#2"]


async def test_a_retry_may_leave_the_failed_step_out(api: Api, flows: Flows) -> None:
    api.on("/pay", 422)
    executor = flows([_flow(_post("pay"), _post("tell"))])
    run = await executor.execute("f")
    run = await executor.retry(run.id, "tell")
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/tell": 1}


async def test_a_retry_is_refused_where_there_is_nothing_to_retry(flows: Flows) -> None:
    executor = flows([_flow(_post("pay"))])
    run = await executor.execute("f")
    with pytest.raises(InvalidInputError, match="completed"):
        await executor.retry(run.id)
    with pytest.raises(InvalidInputError, match="no step 'pya'"):
        await executor.retry(run.id, "pya")
    other = await executor.journal.create(RunRequest(goal="an agent's"))
    with pytest.raises(InvalidInputError, match="not a flow"):
        await executor.retry(other.id, "")


async def test_a_run_whose_later_steps_have_changed_goes_on(api: Api, flows: Flows, journal: Journal) -> None:
    ask = {"stepId": "ask", "ask": "Which one?"}
    run = await flows([_flow(_post("pay", description="old"), ask)]).execute("f")
    executor = flows([_flow(_post("pay", description="new words"), ask, _post("tell"))])
    run = await executor.send_command(
        run.id, InputResponse(id="ask", action="accept", content={"answer": "A"})
    )
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/tell": 1}
    assert "flow_changed" in [event.type for event in await journal.events(run.id)]


async def test_a_run_whose_done_steps_have_changed_says_so_and_can_be_retried(api: Api, flows: Flows) -> None:
    ask = {"stepId": "ask", "ask": "Which one?"}
    answer = InputResponse(id="ask", action="accept", content={"answer": "A"})
    run = await flows([_flow(_post("pay"), ask)]).execute("f")
    executor = flows([_flow(_post("charge"), ask)])
    run = await executor.send_command(run.id, answer)
    assert run.status == "failed"
    assert "'pay' is different" in run.problem
    run = await executor.send_command(run.id, Resume())
    assert run.status == "failed"
    run = await executor.retry(run.id, "charge")
    assert run.status == "input_required"
    run = await executor.send_command(run.id, answer)
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/charge": 1}


async def test_a_flow_that_is_gone_fails_its_runs_until_it_is_back(api: Api, flows: Flows) -> None:
    ask = {"stepId": "ask", "ask": "Which one?"}
    executor = flows([_flow(ask)])
    run = await executor.execute("f")
    other = flows([{"flow_id": "g"}])
    run = await other.send_command(run.id, InputResponse(id="ask", action="accept", content={"answer": "A"}))
    assert run.status == "failed"
    assert "no flow 'f'" in run.problem
    run = await executor.send_command(run.id, Resume())
    assert run.status == "completed"


async def test_a_host_drives_flows_and_an_abort_ends_what_is_under_way(
    api: Api, flows: Flows, journal: Journal
) -> None:
    hanging = Hanging()
    api.on("/pay", hanging)
    executor = flows([_flow(_post("pay"))], limits=FlowLimits(settle_seconds=0.05))
    async with RunHost(journal, executor.runner) as host:
        run = await host.start(executor.build_request("f"))
        with anyio.fail_after(30):
            await hanging.begun.wait()
            await host.send_commands(run.id, Abort(by="王芳"))
            while run.status != "aborted":
                run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=5)
        hanging.go.set()
        with pytest.raises(NotFoundError):
            await host.start(RunRequest(goal="x", profile="nothing"))


async def test_a_host_that_ends_lets_what_must_not_be_done_twice_end(
    api: Api, flows: Flows, journal: Journal
) -> None:
    hanging = Hanging()
    api.on("/pay", hanging)
    executor = flows([_flow(_post("pay"), _post("tell"))])
    async with anyio.create_task_group() as group, RunHost(journal, executor.runner, grace_seconds=5) as host:
        run = await host.start(executor.build_request("f"))
        await hanging.begun.wait()
        group.start_soon(_let_go, hanging)
    run = await executor.resume(run.id)
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/tell": 1}


async def _let_go(hanging: Hanging) -> None:
    await anyio.lowlevel.checkpoint()
    hanging.go.set()


async def test_a_host_takes_up_a_run_that_was_parked_when_it_is_answered(
    api: Api, flows: Flows, journal: Journal
) -> None:
    executor = flows([_flow({"stepId": "ask", "ask": "Which one?"}, _post("pay"))])
    async with RunHost(journal, executor.runner) as host:
        run = await host.start(executor.build_request("f"))
        with anyio.fail_after(30):
            while run.status != "input_required" or host.driven:
                run = await journal.get(run.id)
            await host.send_commands(
                run.id, InputResponse(id="ask", action="accept", content={"answer": "A"})
            )
            while run.status != "completed":
                run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=5)
    assert api.counts == {"/pay": 1}


async def test_a_flow_takes_no_more_time_than_it_may(api: Api, flows: Flows) -> None:
    hanging = Hanging()
    api.on("/look", hanging, {"found": 1})
    executor = flows([_flow({"stepId": "look", "operation": "GET /look"})])
    run = await executor.execute("f", seconds=0.2)
    assert run.status == "failed"
    assert "0.2 s" in run.problem
    hanging.go.set()
    run = await executor.send_command(run.id, Resume())
    assert run.status == "completed"


async def test_a_flow_that_is_aborted_before_it_is_taken_up_asks_for_nothing(
    flows: Flows, api: Api, journal: Journal
) -> None:
    executor = flows([_flow(_post("付款"))])
    run = await _begun(executor)
    await journal.send_commands(run.id, Abort(by="小王", reason="不用了"))

    run = await executor.resume(run.id)

    assert (run.status, run.problem) == ("aborted", "The run was aborted by 小王: 不用了")
    assert not api.asked


async def test_what_was_for_a_call_is_not_tried_again_by_itself(
    flows: Flows, api: Api, journal: Journal
) -> None:
    api.on("/pay", 400)
    executor = flows([_flow(_post("pay"))])
    request = executor.build_request("f")
    child = await journal.create(replace(request, metadata={**request.metadata, PARENT_RUN: "run_outer"}))
    assert (await executor.resume(child.id)).status == "failed"

    for order in (Retry(), Resume()):
        with pytest.raises(InvalidInputError, match="was for a call of run run_outer"):
            await journal.send_commands(child.id, order)


async def test_a_branch_goes_on_in_another_process_while_one_next_to_it_waits(
    api: Api, flows: Flows, journal: Journal
) -> None:
    hanging = Hanging()
    api.on("/look", hanging, {"ok": True})
    look = {"stepId": "look", "operation": {"method": "GET", "url": "/look"}}
    wait = {"stepId": "paid", "wait_for": {"event": "paid"}}
    executor = flows([_flow({"stepId": "both", "parallel": [[wait], [look, _post("tell")]]})])
    run = await _begun(executor)
    await _break_off(executor, run, hanging.begun)
    assert await journal.find_unclaimed() == [run.id]
    run = await executor.resume(run.id)
    assert ([each.id for each in run.pending], api.counts) == (["both/0/paid"], {"/look": 2, "/tell": 1})
    assert await journal.find_unclaimed() == []
