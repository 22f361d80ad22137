"""A run that is called off in the middle of something says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.requests import Request

from loom_core.flow.executor import FlowExecutor, FlowLimits
from loom_core.runs.commands import Abort, ApprovalDecision, Resume
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

Flows = Callable[..., FlowExecutor]


class Slow:
    """Begins, and answers when it is let go."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()

    async def __call__(self, request: Request) -> Any:
        self.begun.set()
        with anyio.move_on_after(10):
            await self.go.wait()
        return {"id": 1}


def _flow(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"flow_id": "f", "name": "付款单", "steps": list(steps)}


_PAY = {"stepId": "pay", "description": "付款", "operation": "POST /pay"}
_TELL = {"stepId": "tell", "operation": "POST /tell"}


async def _called_off(executor: FlowExecutor, slow: Slow, *, answers: bool) -> Run:
    """Call a run off while something is under way in it."""
    run = await executor.journal.create(executor.build_request("f", "我要付款"))
    async with anyio.create_task_group() as group:
        group.start_soon(executor.resume, run.id)
        with anyio.fail_after(30):
            await slow.begun.wait()
            await executor.journal.send_commands(run.id, Abort(by="小王"))
            await executor.journal.wait_until_applied(run.id, seconds=1.0)
            if answers:
                slow.go.set()
            while run.status != "aborted":
                run = await executor.journal.wait_until_idle(run.id, after=run.last_seq, seconds=5)
    slow.go.set()
    return run


@pytest.mark.parametrize("idempotent", [True, False])
async def test_what_is_under_way_is_let_end_and_told(
    api: Api, flows: Flows, journal: Journal, idempotent: bool
) -> None:
    slow = Slow()
    api.on("/pay", slow)
    executor = flows([_flow({**_PAY, "idempotent": idempotent}, _TELL)])
    run = await _called_off(executor, slow, answers=True)
    assert run.output.splitlines()[1:] == ["在此之前已经办好：付款。"]
    assert api.counts == {"/pay": 1}
    results = [event.payload for event in await journal.events(run.id) if event.type == "step_result"]
    assert [(each["step_id"], each["status"]) for each in results] == [("pay", "success")]
    run = await executor.send_command(run.id, Resume())
    assert run.status == "completed"
    assert api.counts == {"/pay": 1, "/tell": 1}


async def test_what_does_not_end_in_time_is_unknown_and_told(api: Api, flows: Flows) -> None:
    slow = Slow()
    api.on("/pay", slow, {"id": 1})
    executor = flows([_flow(_PAY)], limits=FlowLimits(settle_seconds=0.05))
    run = await _called_off(executor, slow, answers=False)
    assert run.output == "“付款单”已取消。\n在此之前已经发出、但不知道是否办好：付款。请先核实。"
    run = await executor.send_command(run.id, Resume())
    assert [each.kind for each in run.pending] == ["unknown"]
    run = await executor.send_command(run.id, ApprovalDecision(id="pay", action="approve"))
    assert run.status == "completed"
    assert len({each.key for each in api.asked}) == 1


async def test_reading_is_cancelled_at_once_and_nothing_is_told(api: Api, flows: Flows) -> None:
    slow = Slow()
    api.on("/look", slow)
    executor = flows([_flow({"stepId": "look", "operation": "GET /look"})])
    run = await _called_off(executor, slow, answers=False)
    assert run.output.endswith("已取消。")


async def test_what_was_done_long_before_is_told_in_the_users_language(api: Api, flows: Flows) -> None:
    executor = flows([_flow(_PAY, _TELL, {"stepId": "ask", "ask": "Which one?"})])
    run = await executor.execute("f", "pay it please")
    run = await executor.send_command(run.id, Abort())
    assert run.status == "aborted"
    assert run.output == "“付款单” is cancelled.\nAlready done: 付款, #2."


async def test_a_branch_that_is_under_way_is_let_end_too(api: Api, flows: Flows) -> None:
    slow = Slow()
    api.on("/pay", slow)
    both = {"stepId": "both", "parallel": [[_PAY, _TELL], [{"stepId": "look", "operation": "GET /look"}]]}
    executor = flows([_flow(both)])
    run = await _called_off(executor, slow, answers=True)
    assert run.output.splitlines()[1:] == ["在此之前已经办好：付款。"]
    assert "/tell" not in api.counts


async def test_a_run_that_was_done_when_it_was_called_off_says_so(api: Api, flows: Flows) -> None:
    slow = Slow()
    api.on("/pay", slow)
    executor = flows([{"flow_id": "f", "name": "付款单", "endpoint": "POST /pay", "response": "好"}])
    run = await _called_off(executor, slow, answers=True)
    assert run.output == "来不及取消了：“付款单”已经办好。"
    run = await executor.send_command(run.id, Resume())
    assert (run.status, run.output) == ("completed", "好")
    assert api.counts == {"/pay": 1}
