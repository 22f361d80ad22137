"""System tools of a flow file go through the six stages like all tools."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from loom_core.errors import ConfigError
from loom_core.flow.config import FlowFile, SystemToolConfig
from loom_core.flow.http import ConfigToolLoader, EndpointCaller
from loom_core.flow.http.tool import PROBLEM
from loom_core.llm.messages import ToolCallPart
from loom_core.tools.calls import CallResult, PlannedCall
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.interface import CallContext, Question, QuestionAnswer, Tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox

DAYS = {
    "type": "object",
    "properties": {"days": {"type": "integer", "minimum": 1}, "half": {"type": "boolean", "default": False}},
    "required": ["days"],
}


def system_tool(url: str, *, method: str = "POST", **written: Any) -> SystemToolConfig:
    request = {"url": url, "method": method, **written.pop("endpoint", {})}
    return SystemToolConfig.model_validate(
        {
            "name": "submit_leave",
            "description": "提交请假",
            "parameters": DAYS,
            "endpoint": request,
            **written,
        }
    )


def loader(config: SystemToolConfig, caller: EndpointCaller, **named: Any) -> ConfigToolLoader:
    return ConfigToolLoader(FlowFile(system_tools=[config], context={"tenantId": "t0"}), caller, **named)


def the_tool(config: SystemToolConfig, caller: EndpointCaller, **named: Any) -> Tool:
    (tool,) = loader(config, caller, **named).load()
    return tool


class Host:
    """Hears nothing and says nothing."""

    can_ask = True

    async def record_start(self, planned: PlannedCall) -> None: ...
    async def record_result(self, planned: PlannedCall, result: CallResult) -> None: ...
    async def progress(
        self, planned: PlannedCall, done: float, total: float | None, message: str
    ) -> None: ...
    async def ask(self, planned: PlannedCall, question: Question) -> QuestionAnswer:
        return QuestionAnswer("decline")

    async def spill(self, planned: PlannedCall, text: str) -> str:
        return ""


def pipeline(tool: Tool, *rules: Any) -> ToolPipeline:
    return ToolPipeline(Toolbox([tool]), permissions=Permissions(rules), run_id="run-7")


def called(arguments: Mapping[str, Any], id_: str = "call-1") -> list[ToolCallPart]:
    return [ToolCallPart(id_, "submit_leave", arguments)]


async def test_what_changes_something_is_asked_about_and_then_made_with_the_key_of_the_call(
    caller, api
) -> None:
    tool = the_tool(system_tool(api.on("/leave", {"id": "L-1", "状态": "已提交"})), caller)
    running = pipeline(tool)
    planned = await running.plan(called({"days": "3"}))
    assert planned[0].verdict == "ask"
    assert planned[0].arguments == {"days": 3, "half": False}
    assert api.asked == []
    (result,) = await running.execute(planned, host=Host(), approved=frozenset({"call-1"}))
    assert result.status == "success"
    assert json.loads(result.message.text) == {"id": "L-1", "状态": "已提交"}
    assert result.output.structured == {"id": "L-1", "状态": "已提交"}
    assert result.output.metadata["attempts"] == 1
    (asked,) = api.asked
    assert json.loads(asked.body) == {"days": 3, "half": False}
    assert asked.headers["idempotency-key"] == "run-7:call-1"


async def test_what_only_reads_is_not_asked_about(caller, api) -> None:
    tool = the_tool(system_tool(api.on("/leave", [1]), method="GET"), caller)
    running = pipeline(tool)
    planned = await running.plan(called({"days": 3}))
    assert planned[0].verdict == "allow"
    (result,) = await running.execute(planned, host=Host())
    assert result.message.text == "[1]"
    assert api.asked[0].target == "/leave?days=3&half=false"


@pytest.mark.parametrize(
    ("method", "written", "verdict"),
    [("GET", {}, "allow"), ("GET", {"read_only": False}, "ask"), ("GET", {"confirm": True}, "ask"),
     ("POST", {}, "ask"), ("POST", {"read_only": True}, "allow"), ("POST", {"confirm": False}, "allow"),
     ("POST", {"read_only": True, "confirm": True}, "ask"), ("DELETE", {}, "ask")],
)  # fmt: skip
async def test_the_file_says_what_is_asked_about(method: str, written, verdict: str, caller, api) -> None:
    config = system_tool(api.url("/leave"), method=method, **written)
    tool = the_tool(config, caller)
    (planned,) = await pipeline(tool, *loader(config, caller).rules()).plan(called({"days": 1}))
    assert planned.verdict == verdict


def test_a_tool_says_what_calling_it_may_do(caller) -> None:
    reads = the_tool(system_tool("https://a.example/", method="GET"), caller).annotations
    assert (reads.read_only, reads.destructive, reads.idempotent, reads.open_world) == (
        True, False, True, False,
    )  # fmt: skip
    writes = the_tool(system_tool("https://a.example/"), caller)
    assert not writes.annotations.repeatable
    assert not writes.is_concurrency_safe
    again = the_tool(system_tool("https://a.example/", endpoint={"idempotent": True}), caller)
    assert again.annotations.repeatable


async def test_arguments_that_the_file_does_not_name_are_not_sent(caller, api) -> None:
    tool = the_tool(system_tool(api.url("/leave")), caller)
    for arguments in ({}, {"days": 0}, {"days": 1, "tenantId": "other"}, {"days": "viele"}):
        (planned,) = await pipeline(tool).plan(called(arguments))
        assert planned.result is not None
        assert "Invalid arguments for `submit_leave`" in planned.result.message.text
        assert (await tool.call(arguments)).is_error
    assert api.asked == []


async def test_variables_are_those_of_the_run_and_no_model_writes_them(caller, api) -> None:
    url = api.on("/leave", 204)
    config = system_tool(url, endpoint={"body": {"who": "{$context.tenantId}", "days": "{$inputs.days}"}})

    def variables(context: CallContext) -> Mapping[str, Any]:
        return {"tenantId": "t-of-" + context.run_id} if context.run_id else {}

    tool = the_tool(config, caller, variables=variables)
    await tool.call({"days": 1}, context=CallContext(run_id="r1", call_id="c1"))
    await tool.call({"days": 1})
    assert [json.loads(asked.body)["who"] for asked in api.asked] == ["t-of-r1", "t0"]


async def test_a_failure_is_told_in_the_words_of_the_api(caller, api) -> None:
    tool = the_tool(system_tool(api.on("/leave", (409, {"code": 17, "msg": "余额不足"}))), caller)
    output = await tool.call({"days": 1})
    assert output.is_error
    assert output.text == "The system answered with 409 Conflict: 余额不足"
    assert output.metadata[PROBLEM] == f"{api.url('/leave')} answered with 409 Conflict: 余额不足"
    assert output.metadata["status"] == 409
    page = the_tool(system_tool(api.server.answers("/page", b"<html>", status=404)), caller)
    assert (await page.call({"days": 1})).text.endswith("answered with 404 Not Found.")


async def test_the_file_says_what_success_the_result_and_a_failure_are(caller, api) -> None:
    judged = {
        "successCriteria": ["$statusCode == 200 && $response.body#/code == 0"],
        "result": "$response.body#/data",
        "failure": "没办成：{$response.body#/msg}",
    }
    url = api.on("/leave", {"code": 0, "data": "ok"}, {"code": 5, "msg": "忙"}, {"code": 0})
    tool = the_tool(system_tool(url, endpoint=judged), caller)
    good, bad, empty = [await tool.call({"days": 1}) for _ in range(3)]
    assert (good.text, good.is_error) == ("ok", False)
    assert (bad.text, bad.is_error) == ("没办成：忙", True)
    assert empty.text == "Done (200); the answer is empty."


async def test_it_is_said_when_no_one_knows_whether_it_took_effect(caller, api) -> None:
    def hang_up(asked, connection: socket.socket) -> None:
        raise OSError("closed")

    url = api.on("/leave", hang_up)
    output = await the_tool(system_tool(url), caller).call({"days": 1})
    assert output.is_error
    assert "It is not known whether it took effect" in output.text
    output = await the_tool(system_tool(url, method="GET"), caller).call({"days": 1})
    assert output.is_error
    assert "Whether it took effect" not in output.text
    assert len(api.asked) == 4


def test_only_enabled_tools_are_loaded_and_wrong_schemas_refused(caller) -> None:
    off = system_tool("https://a.example/", enabled=False)
    assert loader(off, caller).load() == []
    wrong = system_tool("https://a.example/", parameters={"type": "array"})
    with pytest.raises(ConfigError, match="'submit_leave' is invalid: its schema is of type 'array'"):
        loader(wrong, caller).load()
