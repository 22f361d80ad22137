"""Steps side by side, flows within flows, and steps that call tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.requests import Request

from loom_core.errors import InvalidInputError
from loom_core.flow.executor import FlowExecutor, FlowLimits
from loom_core.flow.executor.definition import compute_digests
from loom_core.flow.executor.recorder import FlowRecorder
from loom_core.flow.executor.state import Frame
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.journal import Journal
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, OutputFile, Question, ToolOutput

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

pytestmark = pytest.mark.slow

Flows = Callable[..., FlowExecutor]


def _post(step_id: str, **more: Any) -> dict[str, Any]:
    return {"stepId": step_id, "operation": f"POST /{step_id}", **more}


async def test_branches_run_side_by_side_and_their_outputs_are_there_afterwards(
    api: Api, flows: Flows, journal: Journal
) -> None:
    both, begun = anyio.Event(), list[str]()

    async def together(request: Request) -> Any:
        begun.append(request.url.path)
        if len(begun) == 2:
            both.set()
        with anyio.fail_after(30):
            await both.wait()
        return {"from": request.url.path}

    api.on("/hotel", together)
    api.on("/train", together)
    outputs = {"where": "$response.body#/from"}
    flow = {
        "flow_id": "trip",
        "steps": [
            {
                "stepId": "both",
                "parallel": [
                    [_post("hotel", outputs=outputs), _post("pay")],
                    [_post("train", outputs=outputs)],
                ],
            },
            _post(
                "tell",
                parameters={"a": "{$steps.hotel.outputs.where}", "b": "{$steps.train.outputs.where}"},
            ),
        ],
    }
    run = await flows([flow]).execute("trip")
    assert run.status == "completed", run.problem
    assert api.asked[-1].body == {"a": "/hotel", "b": "/train"}
    branches = [event.payload for event in await journal.events(run.id) if event.type == "branch"]
    assert [each["status"] for each in branches] == ["start", "start", "success", "success"]


async def test_a_branch_that_fails_lets_the_others_end(api: Api, flows: Flows) -> None:
    failed = anyio.Event()

    async def slow(request: Request) -> Any:
        with anyio.fail_after(30):
            await failed.wait()
        return {"ok": True}

    async def fail(request: Request) -> Any:
        failed.set()
        return 422

    api.on("/hotel", slow)
    api.on("/train", fail)
    steps = [
        {
            "stepId": "both",
            "parallel": [[_post("hotel"), _post("pay")], [_post("train"), _post("seat")]],
            "onFailure": [{"type": "goto", "stepId": "cancel"}],
        },
        _post("tell"),
        _post("cancel"),
    ]
    run = await flows([{"flow_id": "trip", "steps": steps}]).execute("trip")
    assert run.status == "completed"
    assert api.counts == {"/hotel": 1, "/pay": 1, "/train": 1, "/cancel": 1}


async def test_a_failed_branch_is_retried_and_the_others_are_not(api: Api, flows: Flows) -> None:
    api.on("/train", 422, {"ok": True})
    steps = [{"stepId": "both", "parallel": [[_post("hotel")], [_post("train"), _post("seat")]]}]
    executor = flows([{"flow_id": "trip", "steps": steps}])
    run = await executor.execute("trip")
    assert run.status == "failed"
    assert "both/1/train" in run.problem
    run = await executor.retry(run.id)
    assert run.status == "completed"
    assert api.counts == {"/hotel": 1, "/train": 2, "/seat": 1}


async def test_a_run_goes_on_from_a_step_of_a_branch(api: Api, flows: Flows) -> None:
    api.on("/tell", 422, {"ok": True})
    steps = [
        {"stepId": "both", "parallel": [[_post("hotel")], [_post("train"), _post("seat")]]},
        _post("tell"),
    ]
    executor = flows([{"flow_id": "trip", "steps": steps}])
    run = await executor.execute("trip")
    run = await executor.retry(run.id, "both/1/seat")
    assert run.status == "completed", run.problem
    assert api.counts == {"/hotel": 1, "/train": 1, "/seat": 2, "/tell": 2}


async def test_an_action_retries_only_what_has_failed_in_a_step_of_branches(api: Api, flows: Flows) -> None:
    api.on("/train", 422, {"ok": True})
    steps = [
        {
            "stepId": "both",
            "parallel": [[_post("hotel")], [_post("train"), _post("seat")]],
            "onFailure": [{"type": "retry", "retryAfter": 0}],
        }
    ]
    run = await flows([{"flow_id": "trip", "steps": steps}]).execute("trip")
    assert run.status == "completed", run.problem
    assert api.counts == {"/hotel": 1, "/train": 2, "/seat": 1}


async def test_a_crash_between_the_starts_of_two_branches_loses_none(
    api: Api, flows: Flows, journal: Journal
) -> None:
    steps = [{"stepId": "both", "parallel": [[_post("hotel")], [_post("train")]]}]
    executor = flows([{"flow_id": "trip", "steps": steps}])
    run = await journal.create(executor.build_request("trip"))
    log = await journal.claim(run.id)
    assert log is not None
    both = executor.parts.file.find_flow("trip").steps
    shared: dict[str, Any] = {"flow_id": "trip", "scope": "", "inputs": {}}
    async with log:
        record = FlowRecorder(log)
        digests = compute_digests(both)
        root = Frame(path="", parent=None, step="", key="", digests=digests, at="both", **shared)
        record.record_flow_start(root, name="trip", message="", config=executor.parts.version)
        record.record_step_start(root, "both", "")
        digests = compute_digests(both[0].parallel[0])
        where: dict[str, Any] = {"path": "both/0/", "parent": "", "step": "both", "key": "both/0/"}
        record.record_branch_start(Frame(digests=digests, at="hotel", **where, **shared))
        await record.commit()
    run = await executor.resume(run.id)
    assert run.status == "completed", run.problem
    assert api.counts == {"/hotel": 1, "/train": 1}


PAY: dict[str, Any] = {
    "flow_id": "pay",
    "input_schema": {
        "type": "object",
        "properties": {"sum": {"type": "number"}, "card": {"type": "string"}},
        "required": ["sum", "card"],
    },
    "steps": [_post("charge", outputs={"receipt": "$response.body#/receipt"})],
    "outputs": {"receipt": "$steps.charge.outputs.receipt"},
}


async def test_a_flow_is_a_step_of_another_and_part_of_the_same_run(
    api: Api, flows: Flows, journal: Journal
) -> None:
    api.on("/charge", {"receipt": "R-1"})
    order = {
        "flow_id": "order",
        "steps": [
            {"stepId": "pay", "workflowId": "pay", "parameters": {"sum": 12.5, "card": "1234"}},
            _post("ship", parameters={"paid": "{$steps.pay.outputs.receipt}"}),
        ],
    }
    run = await flows([order, PAY]).execute("order")
    assert run.status == "completed"
    assert [each.body for each in api.asked] == [{"sum": 12.5, "card": "1234"}, {"paid": "R-1"}]
    assert [each.key.partition(":")[2] for each in api.asked] == ["pay/charge", "ship"]
    assert len(await journal.runs()) == 1


async def test_a_flow_within_a_flow_asks_for_what_it_lacks(api: Api, flows: Flows) -> None:
    api.on("/charge", {"receipt": "R-1"})
    order = {
        "flow_id": "order",
        "steps": [{"stepId": "pay", "workflowId": "pay", "parameters": {"sum": 3}}],
    }
    executor = flows([order, PAY])
    run = await executor.execute("order")
    (pending,) = run.pending
    assert list(pending.schema["properties"]) == ["card"]
    run = await executor.send_command(
        run.id, InputResponse(id=pending.id, action="accept", content={"card": "1"})
    )
    assert run.status == "completed"
    assert api.asked[0].body == {"sum": 3, "card": "1"}


async def test_a_failure_in_an_inner_flow_is_that_of_its_step(api: Api, flows: Flows) -> None:
    api.on("/charge", 402, {"receipt": "R-2"})
    parameters = {"sum": 3, "card": "1"}
    order = {"flow_id": "order", "steps": [{"stepId": "pay", "workflowId": "pay", "parameters": parameters}]}
    executor = flows([order, PAY])
    run = await executor.execute("order")
    assert run.status == "failed"
    assert "pay/charge" in run.problem
    run = await executor.retry(run.id, "pay/charge")
    assert (run.status, run.structured) == ("completed", {"receipt": "R-2"})


@pytest.mark.hostile("expressions and configurations")
async def test_flows_are_not_nested_without_end(flows: Flows) -> None:
    nested = [
        {"flow_id": f"f{number}", "steps": [{"stepId": "inner", "workflowId": f"f{number + 1}"}]}
        for number in range(4)
    ]
    run = await flows([*nested, {"flow_id": "f4"}], limits=FlowLimits(depth=3)).execute("f0")
    assert run.status == "failed"
    assert "nested too deeply" in run.problem


@tool(name="send_mail")
async def send_mail(to: str, text: str = "你好") -> dict[str, str]:
    """Send a mail."""
    return {"sent": f"{text} → {to}"}


@tool(name="look_up", read_only=True, open_world=False)
async def look_up(to: str) -> str:
    """Look someone up."""
    return f"{to}@example.org"


MAIL: dict[str, Any] = {
    "flow_id": "mail",
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}},
    "steps": [
        {"stepId": "find", "tool": "look_up"},
        {
            "stepId": "send",
            "tool": "send_mail",
            "parameters": {"to": "{$steps.find.outputs.result}"},
            "outputs": {"told": "$response.body#/sent"},
        },
    ],
    "outputs": {"told": "$steps.send.outputs.told"},
}


async def test_a_tool_is_called_when_a_person_has_approved_it(flows: Flows) -> None:
    executor = flows([MAIL], tools=[send_mail, look_up])
    run = await executor.execute("mail", parameters={"to": "wang"})
    (pending,) = run.pending
    assert (pending.kind, pending.tool, pending.for_run) == ("approval", "send_mail", True)
    assert pending.arguments["to"] == "wang@example.org"
    run = await executor.send_command(
        run.id, ApprovalDecision(id=pending.id, action="edit", arguments={"to": "li"})
    )
    assert run.structured == {"told": "你好 → li"}


async def test_a_step_gets_the_text_of_a_file_that_a_tool_returns(flows: Flows) -> None:
    @tool(name="rules", read_only=True, open_world=False)
    async def rules() -> OutputFile:
        """Return the rules."""
        return OutputFile("每满一年多一天。".encode("gb18030"), "rules.txt")

    flow = {"flow_id": "leave", "steps": [{"stepId": "read", "tool": "rules"}]}
    run = await flows([flow], tools=[rules]).execute("leave")
    assert run.structured == "[text of rules.txt]\n每满一年多一天。"


async def test_arguments_that_a_tool_does_not_take_use_no_decision_up(flows: Flows, journal: Journal) -> None:
    executor = flows([MAIL], tools=[send_mail, look_up])
    run = await executor.execute("mail", parameters={"to": "wang"})
    with pytest.raises(InvalidInputError, match="to"):
        await executor.send_command(
            run.id, ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"an": "li"})
        )
    run = await journal.get(run.id)
    assert run.status == "input_required"
    asked = [event for event in await journal.events(run.id) if event.type == "approval_required"]
    assert [event.payload["pending"]["arguments_schema"] for event in asked] == [{}]
    run = await executor.send_command(
        run.id, ApprovalDecision(id=run.pending[0].id, action="edit", arguments={"to": "李"})
    )
    assert run.structured == {"told": "你好 → 李"}


async def test_a_tool_that_may_not_be_called_is_a_failed_step(flows: Flows) -> None:
    executor = flows([MAIL], tools=[send_mail, look_up], permissions="deny")
    run = await executor.execute("mail", parameters={"to": "wang"})
    assert run.status == "failed"
    executor = flows([MAIL], tools=[send_mail, look_up])
    run = await executor.execute("mail", parameters={"to": "wang"})
    run = await executor.send_command(
        run.id, ApprovalDecision(id=run.pending[0].id, action="deny", reason="lieber nicht")
    )
    assert run.status == "aborted"
    assert "lieber nicht" in run.problem


async def test_a_tool_may_ask_while_the_time_of_its_step_stands_still(flows: Flows) -> None:
    @tool(name="ask_back")
    async def ask_back(context: CallContext) -> str:
        """Ask."""
        assert context.ask is not None
        schema = {"type": "object", "properties": {"pin": {"type": "string"}}}
        answer = await context.ask(Question("PIN?", schema))
        return str(answer.content["pin"])

    async def approve(pending: Any) -> Any:
        if pending.kind == "approval":
            return True
        await anyio.sleep(1.2)
        return InputResponse(id=pending.id, action="accept", content={"pin": "1234"})

    flow = {"flow_id": "pin", "steps": [{"stepId": "ask", "tool": "ask_back", "timeout_seconds": 1}]}
    run = await flows([flow], tools=[ask_back], approve=approve).execute("pin")
    assert (run.status, run.structured) == ("completed", "1234")


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_tool_that_takes_too_long_is_a_failure_or_unknown(flows: Flows, repeatable: bool) -> None:
    @tool(name="hang", idempotent=repeatable)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    flow = {"flow_id": "hang", "steps": [{"stepId": "hang", "tool": "hang", "timeout_seconds": 0.1}]}
    executor = flows([flow], tools=[hang], permissions="allow")
    run = await executor.execute("hang")
    assert run.status == "failed"
    result = [each for each in await executor.journal.events(run.id) if each.type == "step_result"]
    assert result[-1].payload["status"] == ("failure" if repeatable else "unknown")


async def test_what_a_tool_says_went_wrong_can_be_judged(api: Api, flows: Flows) -> None:
    @tool(name="shop")
    async def shop() -> ToolOutput:
        """Shop."""
        return ToolOutput("sold out", is_error=True)

    goto = {"type": "goto", "stepId": "tell", "criteria": ["$response.body == 'sold out'"]}
    flow = {
        "flow_id": "shop",
        "steps": [{"stepId": "buy", "tool": "shop", "onFailure": [goto]}, _post("tell")],
    }
    run = await flows([flow], tools=[shop], permissions="allow").execute("shop")
    assert run.status == "completed"
    assert api.counts == {"/tell": 1}


async def test_after_branches_that_took_too_long_a_question_does_not_hold_the_process(
    api: Api, flows: Flows
) -> None:
    async def hang(_: Request) -> Any:
        await anyio.sleep_forever()

    api.on("/slow", hang)
    slow = {"operation": {"method": "GET", "url": "/slow"}}
    both = {
        "stepId": "both",
        "parallel": [[{"stepId": name, **slow}] for name in ("a", "b", "c")],
        "timeout_seconds": 0.05,
        "onFailure": [{"type": "goto", "stepId": "ask"}],
    }
    ask = {"stepId": "ask", "ask": {"question": "Who?"}}
    with anyio.fail_after(30):
        run = await flows([{"flow_id": "f", "steps": [both, ask]}]).execute("f")
    assert [each.reason for each in run.pending] == ["Who?"]


async def test_a_tool_whose_server_is_not_there_is_a_failed_step(api: Api, flows: Flows) -> None:
    ask = {"stepId": "ask", "tool": "shop:stock", "onFailure": [{"type": "goto", "stepId": "tell"}]}
    run = await flows([{"flow_id": "f", "steps": [ask, _post("tell")]}]).execute("f")
    assert (run.status, api.counts) == ("completed", {"/tell": 1})
    ask.pop("onFailure")
    run = await flows([{"flow_id": "f", "steps": [ask]}]).execute("f")
    assert "There is no tool 'shop:stock'" in run.problem
