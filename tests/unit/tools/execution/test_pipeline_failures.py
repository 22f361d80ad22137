"""A tool that fails, in whatever way, costs its own call only, and the model is told what it can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import anyio
import pytest

from loom_core.errors import NotFoundError
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Tool, ToolOutput
from tests.fixtures.tool_turns import Doing, pipeline_of, ran, tool_call


async def _text(tool: Tool, **arguments: Any) -> str:
    (result,) = await ran(pipeline_of(tool), tool_call(tool.wire_name, **arguments))
    return result.message.text


async def test_what_a_tool_raises_is_told_so_that_a_model_can_act_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raising(error: BaseException) -> Tool:
        async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
            raise error

        return Doing("坏", does)

    ours = NotFoundError("没有这个文件。", advice="先列出文件。")
    assert await _text(raising(ours)) == "没有这个文件。 先列出文件。"
    assert await _text(raising(ExceptionGroup("", [ours]))) == "没有这个文件。 先列出文件。"
    assert "waited too long" in await _text(raising(TimeoutError()))
    assert not caplog.records

    told = await _text(raising(TypeError("password=hunter2")))

    assert told.startswith("`坏` failed unexpectedly: TypeError.")
    assert "hunter2" not in told
    assert "Traceback" in caplog.text

    caplog.clear()

    told = await _text(raising(ConnectionError("refused by db.internal")))

    assert "refused by" not in told
    assert "坏 failed in the run without a name: ConnectionError: refused by db.internal" in caplog.text
    assert "Traceback" not in caplog.text


async def test_what_would_end_a_program_ends_only_the_call() -> None:
    class Panic(BaseException):
        """As extensions in other languages raise it."""

    def raising(error: BaseException) -> Tool:
        async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
            raise error

        return Doing("坏", does)

    @tool(read_only=True, open_world=False)
    def leaving() -> None:
        """Leave."""
        raise SystemExit(2)

    assert "failed unexpectedly: SystemExit" in await _text(leaving)
    assert "failed unexpectedly: Panic" in await _text(raising(Panic()))
    assert "BaseExceptionGroup" in await _text(raising(BaseExceptionGroup("", [Panic(), Panic()])))
    for ours in (KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()])):
        with pytest.raises(type(ours)):
            await _text(raising(ours))


_NOTHING: Any = None


@pytest.mark.parametrize(
    "output",
    [
        None,
        "text",
        ToolOutput(_NOTHING),
        ToolOutput("x", parts=_NOTHING),
        ToolOutput("x", parts=cast("Any", ("图",))),
        ToolOutput("x", metadata=_NOTHING),
    ],
)
async def test_a_tool_that_gives_no_output_costs_its_own_call_only(output: Any) -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return output

    assert (await _text(Doing("坏", does))).startswith("`坏` failed unexpectedly: TypeError.")


async def test_a_tool_that_fails_over_its_arguments_costs_its_own_call_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Careless(Doing):
        def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
            return {"path": arguments["path"]}

    bad, good = await ran(pipeline_of(Careless("坏"), Doing("x")), tool_call("坏", "1"), tool_call("x", "2"))

    assert bad.message.text.startswith("`坏` failed unexpectedly: KeyError.")
    assert good.status == "success"
    assert "Traceback" in caplog.text


async def test_a_tool_that_cancels_itself_costs_its_own_call_only() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        raise asyncio.CancelledError

    first, second = await ran(
        pipeline_of(Doing("坏", does), Doing("x")), tool_call("坏", "1"), tool_call("x", "2")
    )

    assert first.status == "error"
    assert "cancelled itself" in first.message.text
    assert second.status == "success"


async def test_what_a_tool_says_failed_is_a_failure() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("磁盘满了", is_error=True)

    (result,) = await ran(pipeline_of(Doing("x", does)), tool_call("x"))

    assert (result.status, result.message.failed, result.message.text) == ("error", True, "磁盘满了")


async def test_a_call_that_takes_too_long_is_stopped_and_the_others_are_not() -> None:
    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = pipeline_of(Doing("慢", endless), Doing("x"), scheduler=Scheduler(timeout_seconds=0.01))
    slow, fast = await ran(pipeline, tool_call("慢", "1"), tool_call("x", "2"))

    assert (slow.status, fast.status) == ("timeout", "success")
    assert "was stopped after 0.01 seconds" in slow.message.text
    assert "Split the task" in slow.message.text
    assert "execute" in slow.stages
