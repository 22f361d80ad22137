from __future__ import annotations

from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode, get_current_span

from loom_core.errors import InvalidInputError
from loom_core.llm.messages import ToolCallPart
from loom_core.observability.spans import EXECUTE_TOOL
from loom_core.tools.calls import CallResult, PlannedCall
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.function_tool import tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox


class Host:
    """Takes note of nothing."""

    can_ask = True

    async def record_start(self, planned: PlannedCall) -> None: ...

    async def record_result(self, planned: PlannedCall, result: CallResult) -> None: ...

    async def progress(
        self, planned: PlannedCall, done: float, total: float | None, message: str
    ) -> None: ...

    async def spill(self, planned: PlannedCall, text: str) -> str:
        return ""


@tool(read_only=True, open_world=False)
async def tide(port: str, password: str = "") -> str:
    """The tide at a port."""
    assert get_current_span().is_recording()
    if port == "silent":
        await anyio.sleep_forever()
    if port == "nowhere":
        raise InvalidInputError("There is no port 青岛.")
    return f"高潮 at {port}"


async def made(*, seconds: float = 5.0, permissions: str = "allow", **arguments: Any) -> None:
    pipeline = ToolPipeline(
        Toolbox([tide]),
        permissions=Permissions(otherwise=permissions),
        scheduler=Scheduler(timeout_seconds=seconds),
        run_id="run_1",
    )
    planned = await pipeline.plan([ToolCallPart("call_1", "tide", arguments)])
    await pipeline.execute(planned, host=Host())


def only(spans: list[ReadableSpan]) -> tuple[ReadableSpan, dict]:
    (span,) = spans
    attributes = dict(span.attributes or {})
    assert set(attributes) <= set(EXECUTE_TOOL.attributes)
    return span, attributes


async def test_a_call_is_a_span_that_says_how_it_ended(spans: list[ReadableSpan]):
    await made(port="青岛", password="geheim")
    span, attributes = only(spans)
    assert span.name == "execute_tool tide"
    assert attributes.pop("loom.tool.waited_ms") >= 0
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tide",
        "gen_ai.tool.call.id": "call_1",
        "loom.run.id": "run_1",
        "loom.tool.status": "success",
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("port", "status", "error"), [("nowhere", "error", "tool_error"), ("silent", "timeout", "timeout")]
)
async def test_a_call_that_fails_says_which_way(
    spans: list[ReadableSpan], port: str, status: str, error: str
):
    await made(port=port, seconds=0.05)
    span, attributes = only(spans)
    assert attributes["loom.tool.status"] == status
    assert attributes["error.type"] == error
    assert span.status.status_code is StatusCode.ERROR
    assert "青岛" not in span.to_json(indent=None)
    assert "\\u9752" not in span.to_json(indent=None)


async def test_a_call_that_does_not_run_is_no_span(spans: list[ReadableSpan]):
    await made(depth=3)
    assert spans == []


async def test_arguments_and_answer_are_told_on_request_without_secrets(
    spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOM_TRACE_CONTENT", "1")
    await made(port="青岛", password="geheim")
    _, attributes = only(spans)
    assert attributes["gen_ai.tool.call.arguments"] == '{"port": "青岛", "password": "[secret]"}'
    assert attributes["gen_ai.tool.call.result"] == "高潮 at 青岛"
