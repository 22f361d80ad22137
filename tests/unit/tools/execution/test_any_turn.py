"""Whatever the calls of a turn do, whenever it is stopped: effects in order, and a result for every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import NotFoundError
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.interface import CallContext, ToolOutput
from tests.fixtures.tool_turns import CHANGES, HARMLESS, Doing, Host, pipeline_of, tool_call

_TURNS = st.lists(
    st.tuples(
        st.sampled_from(["safe", "unsafe", "missing"]),
        st.sampled_from(["ends", "fails", "raises", "hangs"]),
        st.integers(0, 3),  # checkpoints
    ),
    max_size=9,
)


class _Turn:
    """Calls of one turn: some hang, some fail, and those that change something do it one after the other."""

    def __init__(self, plan: list[tuple[str, str, int]], each: int) -> None:
        self.scheduler = Scheduler(max_concurrency=each, timeout_seconds=0.002)
        self.host = Host()
        self.problems: list[str] = []
        self.calls = [
            tool_call(f"{kind}_{how}", str(number), n=number) for number, (kind, how, _) in enumerate(plan)
        ]
        self._plan = plan
        self._each = each
        self._running: set[int] = set()
        self._effects: list[int] = []
        tools = [
            Doing(f"{kind}_{how}", self._do, annotations=does, needs_seconds=0 if how == "hangs" else 60)
            for kind, does in (("safe", HARMLESS), ("unsafe", CHANGES))
            for how in ("ends", "fails", "raises", "hangs")
        ]
        self._pipeline = pipeline_of(*tools, scheduler=self.scheduler)

    async def run(self, *, cancelled_after: int | None) -> None:
        planned = await self._pipeline.plan(self.calls)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                if cancelled_after is not None:
                    group.start_soon(self._cancel, group.cancel_scope, cancelled_after)
                results = await self._pipeline.execute(planned, host=self.host)
                assert [result.call_id for result in results] == [call.id for call in self.calls]
                group.cancel_scope.cancel()

    async def _cancel(self, scope: anyio.CancelScope, after: int) -> None:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async def _do(self, arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        number: int = arguments["n"]
        kind, how, length = self._plan[number]
        self._running.add(number)
        if len(self._running) > self._each or (kind == "unsafe" and self._running != {number}):
            self.problems.append(f"{self._running} at once")
        if any(other > number for other in self._effects):
            self.problems.append(f"{number} after {self._effects}")
        try:
            for _ in range(length):
                await anyio.lowlevel.checkpoint()
            if how == "hangs":
                await anyio.sleep_forever()
            if how == "raises":
                raise NotFoundError("没有。")
            return ToolOutput("", is_error=how == "fails")
        finally:
            self._running.discard(number)
            if kind == "unsafe":
                self._effects.append(number)


@pytest.mark.slow
@settings(max_examples=60)
@given(plan=_TURNS, each=st.integers(1, 3), cancelled_after=st.one_of(st.none(), st.integers(0, 12)))
def test_in_any_turn_effects_come_in_order_and_every_call_has_one_result(
    plan: list[tuple[str, str, int]], each: int, cancelled_after: int | None
) -> None:
    turn = _Turn(plan, each)

    anyio.run(lambda: turn.run(cancelled_after=cancelled_after))

    assert not turn.problems
    assert sorted(told for told in turn.host.told if told.startswith("finished")) == sorted(
        f"finished {call.id}" for call in turn.calls
    )
    snapshot = turn.scheduler.snapshot()
    assert (snapshot.running, snapshot.waiting) == (0, 0)
    expected = {"ends": "success", "fails": "error", "raises": "error", "hangs": "timeout"}
    for call, (kind, how, _) in zip(turn.calls, plan, strict=True):
        ended = "error" if kind == "missing" else expected[how]
        assert turn.host.results[call.id].status in (
            {ended} if cancelled_after is None else {ended, "aborted"}
        )
