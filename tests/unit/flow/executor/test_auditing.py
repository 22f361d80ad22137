"""What a flow does that matters is on the audit: decisions of people, and requests with an effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core.flow.executor import FlowExecutor
from loom_core.observability.log_fields import logging_with
from loom_core.runs.commands import Abort, ApprovalDecision, Resume, Retry
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.auditing.file import read_entries

if TYPE_CHECKING:
    from tests.unit.flow.executor.conftest import Api

Flows = Callable[..., FlowExecutor]

ORDER: dict[str, Any] = {
    "flow_id": "订货",
    "input_schema": {
        "type": "object",
        "properties": {"item": {"type": "string"}, "password": {"type": "string"}},
    },
    "confirm": "always",
    "steps": [
        {"stepId": "look", "operation": "GET /look"},
        {"stepId": "buy", "operation": {"method": "POST", "url": "/buy?page=1"}},
        {"stepId": "cancel", "operation": {"method": "DELETE", "url": "/cancel"}},
    ],
}


async def test_requests_with_an_effect_are_on_file_before_they_are_sent_and_decisions_with_who_made_them(
    tmp_path: Path, api: Api, flows: Flows
) -> None:
    path = tmp_path / "audit.jsonl"
    executor = flows([ORDER], audit=AuditLog(path, server="loom-flow-server"))
    run = await executor.execute("订货", "订茶", {"item": "茶", "password": "p4ssword"})
    await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve", by="王芳"))

    assert [each.path for each in api.asked] == ["/look", "/buy", "/cancel"]
    decision, *requests = read_entries(path)
    assert (decision["kind"], decision["decision"], decision["by"], decision["tool"]) == (
        "decision", "allow", "王芳", "订货",
    )  # fmt: skip
    assert decision["run"] == run.id
    told = [(each["kind"], each["tool"], each.get("outcome", "")) for each in requests]
    assert told == [
        ("start", "POST /buy", ""),
        ("end", "POST /buy", "success"),
        ("start", "DELETE /cancel", ""),
        ("end", "DELETE /cancel", "success"),
    ]
    assert {each["server"] for each in requests} == {"loom-flow-server"}
    assert "p4ssword" not in path.read_text(encoding="utf-8")


async def test_who_says_no_is_on_file_and_nothing_is_sent(tmp_path: Path, api: Api, flows: Flows) -> None:
    path = tmp_path / "audit.jsonl"
    executor = flows([ORDER], audit=AuditLog(path))
    run = await executor.execute("订货", "订茶", {"item": "茶"})
    await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="deny", by="王芳"))

    assert api.asked == []
    assert [(each["decision"], each["by"]) for each in read_entries(path)] == [("deny", "王芳")]


async def test_whose_run_it_is_is_on_file_by_name_and_id(tmp_path: Path, api: Api, flows: Flows) -> None:
    path = tmp_path / "audit.jsonl"
    executor = flows([ORDER], audit=AuditLog(path))
    with logging_with({"caller": "爱丽丝"}):
        run = await executor.execute("订货", "订茶", {"item": "茶"}, caller="token:3f2a9c")
    await executor.send_command(run.id, ApprovalDecision(id=run.pending[0].id, action="approve", by="王芳"))

    told = {(each["kind"], each["caller"], each["caller_id"]) for each in read_entries(path)}
    assert told == {(kind, "爱丽丝", "token:3f2a9c") for kind in ("decision", "start", "end")}


async def test_what_cannot_be_put_on_file_is_not_sent(tmp_path: Path, api: Api, flows: Flows) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    executor = flows([ORDER | {"confirm": "never"}], audit=AuditLog(tmp_path / "audit.jsonl"))

    run = await executor.execute("订货", "订茶", {"item": "茶"})

    assert run.status == "failed"
    assert "POST /buy was not sent, because the audit log could not be written" in run.problem
    assert [each.path for each in api.asked] == ["/look"]
    assert "audit" not in run.output


async def test_a_request_that_cannot_be_made_has_its_end_on_file(
    tmp_path: Path, api: Api, flows: Flows
) -> None:
    path = tmp_path / "audit.jsonl"
    buy = {"stepId": "buy", "operation": {"method": "POST", "url": "/buy/{$inputs.item}"}}
    executor = flows([ORDER | {"confirm": "never", "steps": [buy]}], audit=AuditLog(path))

    run = await executor.execute("订货", "订茶", {"item": ".."})

    assert run.status == "failed"
    assert api.asked == []
    told = [(each["kind"], each.get("outcome", "")) for each in read_entries(path)]
    assert told == [("start", ""), ("end", "failure")]


async def test_who_calls_a_run_off_or_has_it_go_on_is_on_file(tmp_path: Path, api: Api, flows: Flows) -> None:
    path = tmp_path / "audit.jsonl"
    executor = flows([ORDER], audit=AuditLog(path))
    run = await executor.execute("订货", "订茶", {"item": "茶"})
    await executor.send_command(run.id, Abort(reason="算了", by="王芳"))
    api.on("/buy", 409, {"ok": True})
    await executor.send_command(run.id, Resume(by="李雷"))
    waiting = await executor.journal.get(run.id)
    failed = await executor.send_command(
        run.id, ApprovalDecision(id=waiting.pending[0].id, action="approve", by="王芳")
    )
    assert failed.status == "failed"
    done = await executor.send_command(run.id, Retry(step="buy", by="韩梅梅"))
    assert done.status == "completed"

    entries = list(read_entries(path))
    orders = [entry for entry in entries if entry["kind"] == "order"]
    assert [
        (each["outcome"], each["by"], each["tool"], each["run"], each.get("call", "")) for each in orders
    ] == [
        ("aborted", "王芳", "订货", run.id, ""),
        ("resumed", "李雷", "订货", run.id, ""),
        ("retried", "韩梅梅", "订货", run.id, "buy"),
    ]
    assert [each["kind"] for each in entries].count("decision") == 1
