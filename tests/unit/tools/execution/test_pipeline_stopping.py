"""Calls of a turn that is stopped, or ended by its host: each of them has a result."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loom_core.errors import StoreError
from loom_core.tools.calls import PlannedCall
from loom_core.tools.interface import CallContext, Question, ToolOutput
from tests.fixtures.tool_turns import CHANGES, Doing, Host, pipeline_of, ran, tool_call


async def test_a_stopped_run_waits_until_what_is_spilled_is_kept() -> None:
    class Slow(Host):
        async def spill(self, planned: PlannedCall, text: str) -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            return await super().spill(planned, text)

    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("长" * 500)

    host = Slow()
    with anyio.CancelScope() as scope:
        await ran(pipeline_of(Doing("x", does), output_tokens=50), tool_call("x"), host=host)

    assert host.results["call_1"].status == "success"
    assert host.results["call_1"].blob


async def test_when_a_run_is_stopped_every_call_has_a_result() -> None:
    begun = anyio.Event()
    host = Host()

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        begun.set()
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = pipeline_of(Doing("读", endless), Doing("x"), Doing("写", endless, annotations=CHANGES))
    calls = [
        tool_call("nope", "0"),
        tool_call("x", "1"),
        tool_call("读", "2"),
        tool_call("写", "3"),
        tool_call("x", "4"),
    ]
    planned = await pipeline.plan(calls)

    returned = False

    async def execute() -> None:
        nonlocal returned
        await pipeline.execute(planned, host=host)
        returned = True

    async with anyio.create_task_group() as group:
        group.start_soon(execute)
        await begun.wait()
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert not returned, "the cancellation goes on"
    assert {id_: result.status for id_, result in host.results.items()} == {
        "0": "error", "1": "success", "2": "aborted", "3": "aborted", "4": "aborted",
    }  # fmt: skip
    assert host.results["2"].message.text == "`读` was stopped while it ran, as the run was stopped."
    assert host.results["3"].message.text == "`写` was not run: the run was stopped before."
    assert sorted(host.told) == sorted(
        ["starting 1", "starting 2", *(f"finished {number}" for number in range(5))]
    )


async def test_a_call_that_may_have_changed_something_says_so_when_it_is_stopped() -> None:
    host = Host()

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        scope.cancel()
        await anyio.sleep_forever()
        return ToolOutput("")

    with anyio.CancelScope() as scope:
        await ran(pipeline_of(Doing("写", endless, annotations=CHANGES)), tool_call("写"), host=host)

    assert scope.cancelled_caught
    assert host.results["call_1"].message.text.endswith("Whether it took effect is not known.")


async def test_a_turn_that_is_stopped_before_it_begins_does_nothing() -> None:
    host = Host()
    pipeline = pipeline_of(Doing("x"))
    planned = await pipeline.plan([tool_call("x", "1"), tool_call("x", "2")])

    with anyio.CancelScope() as scope:
        scope.cancel()
        await pipeline.execute(planned, host=host)

    assert scope.cancelled_caught
    assert host.told == ["finished 1", "finished 2"]


@pytest.mark.parametrize("when", ["starting", "finished", "progress", "ask"])
async def test_what_a_host_raises_ends_the_turn(when: str, caplog: pytest.LogCaptureFixture) -> None:
    async def does(_arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        assert context.progress is not None
        assert context.ask is not None
        with suppress(StoreError):  # a tool may swallow what it does not know
            await context.progress(1, None, "")
            await context.ask(Question("?"))
        return ToolOutput("好")

    host = Host()
    host.fails[when] = StoreError("磁盘满了。")
    calls = [tool_call("x", str(number)) for number in range(3)]

    with pytest.raises(StoreError, match="磁盘满了"):
        await ran(pipeline_of(Doing("x", does)), *calls, host=host)
    with pytest.raises(StoreError, match="磁盘满了"):
        await ran(pipeline_of(Doing("x", does)), *calls[:1], host=host)

    if when != "finished":
        assert {result.status for result in host.results.values()} <= {"aborted"}
