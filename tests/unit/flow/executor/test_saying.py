"""Steps whose text users read word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.flow.executor import FlowExecutor
from loom_core.flow.executor.recorder import restore_state
from loom_core.runs.commands import Abort, ApprovalDecision, InputResponse
from loom_core.runs.journal import Journal
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Question

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]

_ORDER: dict[str, Any] = {"stepId": "order", "operation": "POST /order"}
_SAY: dict[str, Any] = {"stepId": "way", "say": "Your order {$steps.order.outputs.result#/id} is on its way."}
_SURE: dict[str, Any] = {"stepId": "sure", "confirm": "Anything else?", "onFailure": [{"type": "end"}]}


def _flow(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"flow_id": "f", "steps": list(steps), **more}


async def test_a_text_is_read_at_the_end_of_the_run_before_the_response(api: Api, flows: Flows) -> None:
    api.on("/order", {"id": 7})
    run = await flows([_flow(_ORDER, _SAY, response="Bye.")]).execute("f")
    assert run.output == "Your order 7 is on its way.\n\nBye."


async def test_a_flow_without_a_response_says_no_more_than_its_texts(api: Api, flows: Flows) -> None:
    api.on("/order", {"id": 7})
    run = await flows([_flow(_ORDER, _SAY)]).execute("f")
    assert (run.output, run.structured) == ("Your order 7 is on its way.", {"id": 7})


async def test_the_next_question_begins_with_the_text_which_is_read_once(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/order", {"id": 7})
    executor = flows([_flow(_ORDER, _SAY, {"stepId": "and", "say": "Thank you."}, _SURE)])
    run = await executor.execute("f")
    (pending,) = run.pending
    assert pending.reason == "Your order 7 is on its way.\n\nThank you.\n\nAnything else?"
    run = await executor.send_command(run.id, ApprovalDecision(id=pending.id, action="approve"))
    assert (run.status, run.output) == ("completed", "true")


async def test_a_question_that_is_repeated_does_not_repeat_the_text(flows: Flows) -> None:
    ask = {"stepId": "days", "ask": {"question": "How many?", "schema": {"type": "integer"}}}
    executor = flows([_flow({"stepId": "hello", "say": "Hello!"}, ask)])
    run = await executor.execute("f")
    assert run.pending[0].reason == "Hello!\n\nHow many?"
    answer = InputResponse(id=run.pending[0].id, action="accept", content={"answer": "many"})
    run = await executor.send_command(run.id, answer)
    assert run.pending[0].reason.startswith("How many?")


async def test_the_function_that_approves_gets_the_text_too(flows: Flows) -> None:
    asked = list[str]()

    async def approve(pending: Any) -> bool:
        asked.append(pending.reason)
        return True

    run = await flows([_flow({"stepId": "hello", "say": "Hello!"}, _SURE)], approve=approve).execute("f")
    assert (run.status, asked) == ("completed", ["Hello!\n\nAnything else?"])


async def test_the_question_of_a_tool_begins_with_the_text_and_a_crash_does_not_repeat_it(
    flows: Flows, journal: Journal
) -> None:
    @tool(name="ask_back", read_only=True)
    async def ask_back(context: CallContext) -> str:
        """Ask."""
        assert context.ask is not None
        schema = {"type": "object", "properties": {"pin": {"type": "string"}}}
        return str((await context.ask(Question("PIN?", schema))).content["pin"])

    asked = list[str]()

    async def approve(pending: Any) -> InputResponse:
        asked.append(pending.reason)
        return InputResponse(id=pending.id, action="accept", content={"pin": "1"})

    flow = _flow({"stepId": "hello", "say": "Hello!"}, {"stepId": "pin", "tool": "ask_back"}, response="Bye.")
    executor = flows([flow], tools=[ask_back], permissions="allow", approve=approve)
    run = await executor.execute("f")
    assert (run.output, asked) == ("Bye.", ["Hello!\n\nPIN?"])
    log = await journal.claim(run.id)
    assert log is not None
    async with log:
        types = [step.event.type for step in log.steps]
        until = types.index("approval_required")
        assert restore_state(log.steps[:until]).unread == ["Hello!"]
        assert restore_state(log.steps[: until + 1]).unread == []


async def test_a_failed_run_says_it_first_and_what_was_read_is_not_said_at_an_abort(
    api: Api, flows: Flows
) -> None:
    api.on("/pay", 422)
    executor = flows(
        [_flow({"stepId": "hello", "say": "你好！ / Hello!"}, {"stepId": "pay", "operation": "/pay"})]
    )
    run = await executor.execute("f")
    assert (run.status, run.output.partition("\n\n")[0]) == ("failed", "Hello!")
    run = await executor.retry(run.id)
    assert "Hello!" not in run.output
    executor = flows([_flow({"stepId": "hello", "say": "Hello!"}, _SURE)])
    run = await executor.execute("f")
    run = await executor.send_command(run.id, Abort(by="me"))
    assert (run.status, "Hello!" in run.output) == ("aborted", False)  # the question had said it


async def test_texts_of_branches_and_inner_flows_are_read_too(flows: Flows) -> None:
    inner = {"flow_id": "inner", "steps": [{"stepId": "in", "say": "inside"}]}
    both = {
        "stepId": "both",
        "parallel": [[{"stepId": "a", "say": "left"}], [{"stepId": "c", "workflowId": "inner"}]],
    }
    run = await flows([_flow(both), inner]).execute("f")
    assert sorted(run.output.split("\n\n")) == ["inside", "left"]


async def test_a_text_may_be_reworded_while_a_run_waits(flows: Flows, journal: Journal) -> None:
    run = await flows([_flow({"stepId": "hello", "say": "Helo!"}, _SURE)]).execute("f")
    executor = flows([_flow({"stepId": "hello", "say": "Hello!"}, _SURE)])
    run = await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
    assert run.status == "completed"


@pytest.mark.parametrize(
    "step", [{"wait_for": {"event": "paid", "text": "Please wait."}}, {"handover": "A colleague answers."}]
)
async def test_a_wait_and_a_handover_begin_with_the_text(flows: Flows, step: dict[str, Any]) -> None:
    run = await flows([_flow({"stepId": "hello", "say": "Hello!"}, {"stepId": "out", **step})]).execute("f")
    assert run.pending[0].reason.startswith("Hello!\n\n")
    assert run.pending[0].reason.endswith((".", "!"))
