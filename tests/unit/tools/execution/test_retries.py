"""A call that fails for a reason that passes is repeated; what may have been done is never done twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.calls import PlannedCall
from loom_core.tools.execution.retries import CallRetry, ToolRetries
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolFailure, ToolOutput, ToolRetry
from tests.fixtures.tool_turns import CHANGES, HARMLESS, Doing, Host, Retrying, pipeline_of, ran, tool_call

_IDEMPOTENT = ToolAnnotations(idempotent=True, open_world=False)
_BUSY = ToolFailure("unavailable")
_TEXT = "对方忙。请稍后再试。"  # the second sentence is for the model
_REFUSED = ToolFailure("unavailable", nothing_done=True)


class _Failing:
    """Fails so many times, then succeeds; counts its calls."""

    def __init__(self, failure: ToolFailure | Exception, times: int = 100) -> None:
        self.calls = 0
        self._failure = failure
        self._times = times

    async def __call__(self, _arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        self.calls += 1
        if self.calls > self._times:
            return ToolOutput("好")
        if isinstance(self._failure, Exception):
            raise self._failure
        return ToolOutput(_TEXT, is_error=True, failure=self._failure)


async def test_a_call_is_repeated_until_it_succeeds_after_growing_waits() -> None:
    does, host, retrying = _Failing(_BUSY, 2), Host(), Retrying(base=0.5)

    (result,) = await ran(pipeline_of(Doing("x", does)), tool_call("x"), host=host, retrying=retrying)

    assert (result.status, result.message.text, does.calls) == ("success", "好", 3)
    assert retrying.told == [
        CallRetry(status="error", problem="对方忙。", attempt=2, attempts=3, wait=0.5),
        CallRetry(status="error", problem="对方忙。", attempt=3, attempts=3, wait=1.0),
    ]
    assert host.told == ["starting call_1"] * 3 + ["finished call_1"]


@pytest.mark.parametrize(
    ("annotations", "failure", "calls"),
    [
        (HARMLESS, _BUSY, 3),
        (HARMLESS, ToolFailure("timeout"), 3),
        (HARMLESS, TimeoutError(), 3),
        (HARMLESS, ConnectionResetError(), 3),
        (_IDEMPOTENT, ToolFailure("connection"), 3),
        (CHANGES, _BUSY, 1),
        (CHANGES, TimeoutError(), 1),
        (CHANGES, ConnectionRefusedError(), 1),  # it may have done something before
        (CHANGES, _REFUSED, 3),
        (HARMLESS, ToolFailure("unauthorized", nothing_done=True), 1),
        (HARMLESS, ToolRetry("请给出日期。"), 1),
        (HARMLESS, ValueError(), 1),
        (HARMLESS, ToolFailure("unavailable", retry_after=61.0), 1),
    ],
)
async def test_what_passes_is_repeated_if_that_is_harmless(
    annotations: ToolAnnotations, failure: ToolFailure | Exception, calls: int
) -> None:
    does = _Failing(failure)

    (result,) = await ran(
        pipeline_of(Doing("x", does, annotations=annotations)), tool_call("x"), retrying=Retrying()
    )

    assert does.calls == calls
    assert ("It was tried 3 times." in result.message.text) == (calls == 3)
    assert result.status in {"error", "timeout"}


async def test_a_service_says_how_long_to_wait() -> None:
    retrying = Retrying(base=1.0)
    does = _Failing(ToolFailure("unavailable", retry_after=7.0), 1)

    await ran(pipeline_of(Doing("x", does)), tool_call("x"), retrying=retrying)

    assert [each.wait for each in retrying.told] == [8.0]


async def test_each_attempt_has_the_whole_time_of_its_tool_and_a_wait_has_no_slot() -> None:
    scheduler = Scheduler(timeout_seconds=0.02)

    class Waiting(Retrying):
        async def wait_for_retry(self, planned: PlannedCall, retry: CallRetry) -> None:
            assert scheduler.snapshot().running == 0
            await super().wait_for_retry(planned, retry)

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        await anyio.sleep_forever()
        return ToolOutput("")

    retrying = Waiting()
    (result,) = await ran(
        pipeline_of(Doing("慢", endless), scheduler=scheduler), tool_call("慢"), retrying=retrying
    )

    assert [each.status for each in retrying.told] == ["timeout", "timeout"]
    assert result.status == "timeout"
    assert result.message.text.endswith("It was tried 3 times.")
    assert scheduler.snapshot().timed_out == 3
    assert result.stages["execute"] >= 0.05, "of all attempts"


@tool(read_only=True, open_world=False, retries=1)
async def own_number() -> str:
    """Fail."""
    raise TimeoutError


@tool(read_only=True, open_world=False)
async def no_number() -> str:
    """Fail."""
    raise TimeoutError


@pytest.mark.parametrize(
    ("used", "policy", "retries"),
    [
        (own_number, {}, 1),
        (own_number, {"tools": {"own_*": 4, "*": 0}}, 4),
        (no_number, {"tools": {"own_*": 4}}, 2),
        (no_number, {"retries": 0}, 0),
    ],
)
async def test_a_tool_may_have_another_number_of_retries(
    used: Tool, policy: dict[str, Any], retries: int
) -> None:
    retrying = Retrying(**policy)

    await ran(pipeline_of(used), tool_call(used.name), retrying=retrying)

    assert len(retrying.told) == retries


async def test_attempts_that_failed_before_a_crash_count() -> None:
    does = _Failing(_BUSY)

    await ran(pipeline_of(Doing("x", does)), tool_call("x"), retrying=Retrying(failed=2))

    assert does.calls == 1


async def test_a_run_that_is_stopped_during_a_wait_says_that_the_call_did_nothing(tmp_path: Path) -> None:
    class Stopping(Retrying):
        async def wait_for_retry(self, planned: PlannedCall, retry: CallRetry) -> None:
            scope.cancel()
            await anyio.sleep_forever()

    host, audit = Host(), AuditLog(tmp_path / "audit.jsonl")
    pipeline = pipeline_of(Doing("写", _Failing(_REFUSED), annotations=CHANGES), audit=audit)
    with anyio.CancelScope() as scope:
        await ran(pipeline, tool_call("写"), host=host, retrying=Stopping())

    assert scope.cancelled_caught
    assert host.results["call_1"].message.text == "`写` was not run: the run was stopped before."


async def test_every_attempt_of_a_tool_that_changes_something_is_audited(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    does = _Failing(_REFUSED, 1)

    await ran(
        pipeline_of(Doing("写", does, annotations=CHANGES), audit=audit), tool_call("写"), retrying=Retrying()
    )

    kinds = [line.split('"kind":"')[1].split('"')[0] for line in _lines(tmp_path / "audit.jsonl")]
    assert kinds == ["decision", "start", "end", "start", "end"]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").replace('": "', '":"').splitlines()


@pytest.mark.parametrize("given", [{"retries": -1}, {"base": -1.0}, {"tools": {"x": -1}}])
def test_numbers_are_not_negative(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="cannot be negative"):
        ToolRetries(**given)


def test_patterns_are_checked_before_any_call() -> None:
    with pytest.raises(ConfigError, match="regular expression"):
        ToolRetries(tools={"re:(": 1})


@pytest.mark.parametrize("retries", [-1, 1.5, "2", True])
def test_a_tool_has_a_whole_number_of_retries(retries: Any) -> None:
    with pytest.raises(ValueError, match="not a whole number from 0"):
        tool(no_number.function, retries=retries)
