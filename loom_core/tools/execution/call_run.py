"""The last three stages of one call: it is run if it still may, and told to the model."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import LoomError, unwrapped
from loom_core.llm.messages import ImagePart
from loom_core.observability.content import content_json, hidden, records_content
from loom_core.observability.families import TOOL_CALLS, TOOL_SECONDS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import EXECUTE_TOOL
from loom_core.observability.tracing import failed, span
from loom_core.tools.auditing.audit import AuditEntry, AuditLog
from loom_core.tools.calls import CallResult, CallStatus, CallWatcher, PlannedCall, Stage
from loom_core.tools.execution import outcomes
from loom_core.tools.execution.output_text import Shown, shown
from loom_core.tools.execution.scheduler import Place, Scheduler
from loom_core.tools.interface import Answer, CallContext, Question, Tool, ToolOutput
from loom_core.tools.permission.permissions import Decision, Permissions, identity
from loom_core.tools.redaction import redacted_arguments
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["LAST_WORDS_SECONDS", "CallRun", "CallSpan", "Surroundings", "call_span", "decision_entry"]

_log = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 10.0
"""So long may it take to record a result when everything else is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the calls of a run have in common; see `ToolPipeline`."""

    toolbox: Toolbox
    permissions: Permissions
    scheduler: Scheduler
    audit: AuditLog | None
    output_tokens: int
    run_id: str
    source: str
    caller: str
    priority: int


def decision_entry(
    planned: PlannedCall, decision: Decision, surroundings: Surroundings, *, approved: bool = False
) -> AuditEntry:
    """What the audit says of a decision."""
    by_person = approved and decision.action != "deny"
    return AuditEntry(
        kind="decision",
        run=surroundings.run_id,
        call=planned.call.id,
        tool=planned.name,
        arguments=planned.arguments,
        decision="allow" if by_person else decision.action,
        by=(planned.by or "a person") if by_person else "rules",
        rule="" if decision.rule is None or by_person else decision.rule.told,
        reason="" if by_person else decision.reason,
        caller=surroundings.caller,
        caller_id=surroundings.source,
    )


def refused_entry(planned: PlannedCall, surroundings: Surroundings) -> AuditEntry:
    """What the audit says of a call that somebody has refused."""
    return AuditEntry(
        kind="decision",
        run=surroundings.run_id,
        call=planned.call.id,
        tool=planned.name,
        arguments=planned.arguments,
        decision="deny",
        by=planned.by,
        caller=surroundings.caller,
        caller_id=surroundings.source,
    )


class CallRun:
    """One call of a turn, from its plan to its result.

    Args:
        planned: what was planned.
        watcher: told of every step.
        surroundings: what it runs in.
        approved: whether a person has approved it.
        depth: how many agents stand above.
        can_ask: whether the watcher has a person to ask.

    Attributes:
        result: what came of it; None until then.
    """

    def __init__(
        self,
        planned: PlannedCall,
        watcher: CallWatcher,
        surroundings: Surroundings,
        *,
        approved: bool,
        depth: int,
        can_ask: bool,
    ) -> None:
        self.result: CallResult | None = None
        self._planned = planned
        self._watcher = watcher
        self._in = surroundings
        self._approved = approved
        self._depth = depth
        self._can_ask = can_ask
        self._stages: dict[Stage, float] = dict(planned.stages)
        self._has_begun = False
        self._problem: Exception | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it was clear from the plan that it does not run."""
        return self._planned.result is not None

    @property
    def is_safe(self) -> bool:
        """Whether it may run beside others."""
        return self._planned.tool is not None and self._planned.tool.is_concurrency_safe

    async def run(self) -> None:
        """Wait for a place, run it if it still may, and tell what came of it.

        Raises:
            Exception: what the watcher raised.
        """
        planned, tool = self._planned, self._planned.tool
        if tool is None or planned.result is not None:
            await self.end_as_planned()
            return
        with call_span(planned, run_id=self._in.run_id) as told:
            status, output = await self._run_in_place(tool)
            told.ended(status, output, waited=self._stages.get("check_cancel", 0.0))
        await self._end(status, output)

    async def end_as_planned(self) -> None:
        """Tell that it does not run."""
        if self._planned.result is not None and self.result is None:
            self.result = self._planned.result
            self._count(self.result.status)
            if self._planned.by and self._in.audit is not None:  # what the rules say was noted with the plan
                self._in.audit.note(refused_entry(self._planned, self._in))
            await self._watcher.finished(self._planned, self.result)

    async def abort(self) -> None:
        """Tell that it was stopped, if it has no result; its place in time must be shielded."""
        if self.result is None:
            await self._end("aborted", outcomes.aborted(self._planned, begun=self._has_begun))

    async def _run_in_place(self, tool: Tool) -> tuple[CallStatus, ToolOutput]:
        begun = perf_counter()
        place = self._in.scheduler.place(
            self._in.run_id, depth=self._depth, priority=self._in.priority, needs_seconds=tool.needs_seconds
        )
        status: CallStatus = "timeout"
        output: ToolOutput | None = None
        async with place:
            await checkpoint_if_cancelled()
            refusal = await self._refusal(tool)
            self._stages["check_cancel"] = perf_counter() - begun
            if refusal is not None:
                status, output = refusal
            else:
                await self._watcher.starting(self._planned)
                self._has_begun = True
                begun = perf_counter()
                try:
                    status, output = await self._called(place)
                finally:
                    self._stages["execute"] = perf_counter() - begun
        if self._problem is not None:
            raise self._problem
        return status, output or outcomes.timed_out(self._planned.name, place.seconds)

    async def _refusal(self, planned_tool: Tool) -> tuple[CallStatus, ToolOutput] | None:
        """Why it does not run after all: things may have changed since it was planned."""
        planned = self._planned
        try:
            tool = self._in.toolbox.current(planned_tool)
        except LoomError as error:
            return "error", ToolOutput(str(error), is_error=True)
        if tool is not planned_tool:
            if identity(tool) != identity(planned_tool):
                return "error", outcomes.changed(tool.name)
            planned = self._planned = replace(planned, tool=tool)
        decision = self._in.permissions.decide(tool, planned.arguments, source=self._in.source)
        entries: list[AuditEntry] = []
        if self._approved or decision.action != planned.verdict:
            entries.append(decision_entry(planned, decision, self._in, approved=self._approved))
        refusal: tuple[CallStatus, ToolOutput] | None = None
        if decision.action == "deny":
            refusal = "denied", outcomes.denied(tool.name, decision.reason)
        elif decision.action == "ask" and not self._approved:
            refusal = "denied", outcomes.not_approved(tool.name, decision.reason)
        if self._in.audit is None:
            return refusal
        if refusal is not None or tool.annotations.read_only:
            self._in.audit.note(*entries)
            return refusal
        try:
            await self._in.audit.write(*entries, self._entry("start"))
        except LoomError as error:
            return "error", outcomes.unrecorded(tool.name, str(error))
        return None

    def _entry(self, kind: Literal["start", "end"], *, outcome: CallStatus | None = None) -> AuditEntry:
        planned = self._planned
        return AuditEntry(
            kind=kind,
            run=self._in.run_id,
            call=planned.call.id,
            tool=planned.name,
            arguments=planned.arguments,
            outcome=outcome or "",
            seconds=self._stages.get("execute", 0.0),
            caller=self._in.caller,
            caller_id=self._in.source,
        )

    async def _called(self, place: Place) -> tuple[CallStatus, ToolOutput]:
        planned, tool = self._planned, self._planned.tool
        assert tool is not None

        async def progress(done: float, total: float | None, message: str) -> None:
            with self._watched():
                await self._watcher.progress(planned, done, total, message)

        async def ask(question: Question) -> Answer:
            async with place.away():
                with self._watched():
                    return await self._watcher.ask(planned, question)

        context = CallContext(
            progress=progress,
            ask=ask if self._can_ask else None,
            depth=self._depth,
            run_id=self._in.run_id,
            call_id=planned.call.id,
        )
        try:
            output = _checked(await tool.call(planned.arguments, context=context))
        except anyio.get_cancelled_exc_class():
            if _is_cancelled():
                raise
            return "error", outcomes.cancelled_inside(tool.name)
        except BaseException as error:  # of a tool that calls `sys.exit`, too: it ends its own call only
            if _ends_the_program(error):
                raise
            known = isinstance(error, Exception) and isinstance(unwrapped(error), LoomError | TimeoutError)
            if self._problem is None and not known:
                _log.exception("%s failed in the run %s", tool.name, self._in.run_id or "without a name")
            return outcomes.failed(tool.name, error)
        return ("error" if output.is_error else "success"), output

    @contextmanager
    def _watched(self) -> Generator[None]:
        """Keep what a watcher raises: the tool may make something else of it."""
        try:
            yield
        except Exception as error:
            self._problem = self._problem or error
            raise

    async def _end(self, status: CallStatus, output: ToolOutput) -> None:
        begun = perf_counter()
        formed = Shown(output)
        if status != "aborted":
            formed = await shown(output, most_tokens=self._in.output_tokens, keep=self._keep)
        self._stages["format"] = perf_counter() - begun
        planned = self._planned
        self.result = CallResult(
            call_id=planned.call.id,
            tool=planned.tool_name,
            status=status,
            output=output,
            message=formed.output.message(planned.call.id),
            stages=self._stages,
            blob=formed.blob,
        )
        self._count(status)
        changes = planned.tool is not None and not planned.tool.annotations.read_only
        if self._has_begun and changes and self._in.audit is not None:
            self._in.audit.note(self._entry("end", outcome=status))
        await self._watcher.finished(planned, self.result)

    def _count(self, status: CallStatus) -> None:
        name = self._planned.tool_name
        process_metrics.add(TOOL_CALLS, name, status)
        if self._has_begun:
            process_metrics.observe(TOOL_SECONDS, self._stages.get("execute", 0.0), name)

    async def _keep(self, text: str) -> str:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LAST_WORDS_SECONDS):
            return await self._watcher.spill(self._planned, text)
        return ""


def _checked(output: object) -> ToolOutput:
    """What a tool gave, if it is an output: tools are made by anybody.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(output, ToolOutput):
        raise TypeError(f"a tool gave {type(output).__name__}, which is no ToolOutput")
    if not isinstance(cast("object", output.text), str):
        raise TypeError("a tool gave an output whose text is none")
    if not isinstance(cast("object", output.metadata), Mapping):
        raise TypeError("a tool gave an output whose metadata are no mapping")
    if not all(isinstance(part, ImagePart) for part in cast("tuple[object, ...]", output.parts)):
        raise TypeError("a tool gave an output with parts that are no images")
    return output


def _ends_the_program(error: BaseException) -> bool:
    """Whether an error is about more than the call."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(_ends_the_program, group.exceptions))
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def _is_cancelled() -> bool:
    """Whether a cancellation comes from outside of the tool."""
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


class CallSpan:
    """What the span of a call is told."""

    def __init__(self, started: Span) -> None:
        self._span = started

    def ended(self, status: CallStatus, output: ToolOutput, *, waited: float) -> None:
        """What came of it.

        Args:
            status: how it ended.
            output: what the tool answered.
            waited: seconds before it began.
        """
        if not self._span.is_recording():
            return
        self._span.set_attribute("loom.tool.status", status)
        self._span.set_attribute("loom.tool.waited_ms", 1000 * waited)
        if status in {"error", "timeout"}:
            failed(self._span, "timeout" if status == "timeout" else "tool_error")
        if records_content():
            self._span.set_attribute("gen_ai.tool.call.result", hidden(output.text))


@contextmanager
def call_span(planned: PlannedCall, *, run_id: str) -> Generator[CallSpan]:
    """The span of a call that may run.

    Args:
        planned: the call.
        run_id: whose it is.
    """
    attributes = {
        "gen_ai.operation.name": EXECUTE_TOOL.name,
        "gen_ai.tool.name": planned.name,
        "gen_ai.tool.call.id": planned.call.id,
        "loom.run.id": run_id or None,
    }
    with span(EXECUTE_TOOL, attributes) as started:
        if started.is_recording() and records_content():
            told = content_json(redacted_arguments(planned.arguments))
            started.set_attribute("gen_ai.tool.call.arguments", told)
        yield CallSpan(started)
