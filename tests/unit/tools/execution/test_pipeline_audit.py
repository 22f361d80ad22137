"""Records of calls: decisions and effects on the audit, outcomes in the metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import NotFoundError
from loom_core.observability.families import TOOL_CALLS, TOOL_SECONDS
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.auditing.file import verify
from loom_core.tools.interface import CallContext, ToolOutput
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule
from tests.fixtures.tool_turns import CHANGES, Doing, Host, pipeline_of, ran, tool_call


def _audited(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_the_audit_has_every_decision_and_every_call_that_may_change_something(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    permissions = Permissions([PermissionRule(action="deny", tool="删")])
    pipeline = pipeline_of(
        Doing("读"),
        Doing("写", annotations=CHANGES),
        Doing("删"),
        permissions=permissions,
        audit=AuditLog(path),
        run_id="run_1",
        source="token:3f2a9c",
        caller="爱丽丝",
    )
    planned = await pipeline.plan(
        [tool_call("读", "1"), tool_call("写", "2", token="t"), tool_call("删", "3"), tool_call("?", "4")]
    )
    assert [line["decision"] for line in _audited(path)] == ["allow", "ask", "deny"]

    planned[1] = replace(planned[1], by="小李")
    await pipeline.execute(planned, host=Host(), approved=frozenset({"2"}))

    later = _audited(path)[3:]
    assert [(line["kind"], line["call"]) for line in later] == [
        ("decision", "2"),
        ("start", "2"),
        ("end", "2"),
    ]
    assert (later[0]["decision"], later[0]["by"], later[0]["run"]) == ("allow", "小李", "run_1")
    assert {(line["caller"], line["caller_id"]) for line in _audited(path)} == {("爱丽丝", "token:3f2a9c")}
    assert {"rule", "reason"}.isdisjoint(later[0])
    assert later[1]["arguments"] == {"token": "[secret]"}
    assert later[2]["outcome"] == "success"
    assert verify(path).problem == ""


async def test_the_audit_says_why_a_call_is_asked_about_and_names_no_rule_that_did_not_decide(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    permissions = Permissions([PermissionRule(action="allow", tool="*")])
    pipeline = pipeline_of(
        Doing("新", reason="没有人批准过。"), permissions=permissions, audit=AuditLog(path)
    )

    (planned,) = await pipeline.plan([tool_call("新", "1")])
    permissions.rules = (PermissionRule(action="deny", tool="新"),)
    await pipeline.execute([replace(planned, by="小李")], host=Host(), approved=frozenset({"1"}))

    told = [[line.get(name, "") for name in ("decision", "by", "rule", "reason")] for line in _audited(path)]
    assert told == [
        ["ask", "rules", "", "没有人批准过。"],
        ["deny", "rules", "deny 新", "A rule says so: deny 新."],
    ]


async def test_without_an_audit_only_what_reads_is_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = pipeline_of(Doing("读"), Doing("写", annotations=CHANGES), audit=AuditLog(tmp_path))

    read, written = await ran(pipeline, tool_call("读", "1"), tool_call("写", "2"))

    assert (read.status, written.status) == ("success", "error")
    assert "Only tools that read are run until this works again" in written.message.text
    assert "cannot be written" in caplog.text


async def test_the_end_of_a_call_that_was_stopped_is_on_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        scope.cancel()
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = pipeline_of(Doing("写", endless, annotations=CHANGES), audit=AuditLog(path))
    with anyio.CancelScope() as scope:
        await ran(pipeline, tool_call("写"))

    assert [line.get("outcome") for line in _audited(path)] == [None, None, "aborted"]


async def test_calls_are_counted_by_how_they_ended_and_only_those_that_ran_are_timed(counted: Any) -> None:
    async def fails(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        raise NotFoundError("There is nothing.")

    permissions = Permissions([PermissionRule(action="deny", tool="删除")], otherwise="allow")
    tools = [Doing("文件:读取"), Doing("fails", fails), Doing("删除")]
    await ran(
        pipeline_of(*tools, permissions=permissions),
        tool_call("文件__读取", "1"),
        tool_call("文件__读取", "2"),
        tool_call("fails", "3"),
        tool_call("删除", "4"),
        tool_call("a_name_that_the_model_has_made_up", "5"),
    )
    assert counted.samples(TOOL_CALLS) == {
        ("文件:读取", "success"): 2,
        ("fails", "error"): 1,
        ("删除", "denied"): 1,
        ("unknown", "error"): 1,
    }
    assert counted.samples(TOOL_SECONDS) == {("文件:读取",): 2, ("fails",): 1}


async def test_a_call_that_is_stopped_is_counted_as_that(counted: Any) -> None:
    async def waits(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.CancelScope() as scope:
        await ran(pipeline_of(Doing("waits", waits)), tool_call("waits"))
    assert counted.samples(TOOL_CALLS) == {("waits", "aborted"): 1}
