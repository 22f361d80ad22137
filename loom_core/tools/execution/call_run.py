"""Execution of one call: the stages CheckCancel, Execute and Format."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from loom_core.errors import LoomError, unwrap_group
from loom_core.llm.messages import ImagePart
from loom_core.observability.families import TOOL_CALLS, TOOL_SECONDS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.spans import EXECUTE_TOOL
from loom_core.observability.tracing import (
    content_json,
    record_failure,
    records_content,
    redact_content,
    span,
)
from loom_core.redaction import Redaction
from loom_core.tokens import estimate_tokens
from loom_core.tools.auditing.audit import AuditEntry, AuditKind, AuditLog
from loom_core.tools.calls import NO_OUTPUT, CallHost, CallResult, CallStatus, PlannedCall, Stage, TaskHost
from loom_core.tools.execution import outcomes
from loom_core.tools.execution.retries import CallRetry, RetryHost
from loom_core.tools.execution.scheduler import Scheduler, Slot
from loom_core.tools.interface import CallContext, OutputFile, Question, QuestionAnswer, Tool, ToolOutput
from loom_core.tools.permission.permissions import PermissionDecision, Permissions, identity
from loom_core.tools.plain_text import strip_control
from loom_core.tools.redaction import redact_arguments
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = [
    "CLEANUP_SECONDS",
    "CallEnvironment",
    "CallRun",
    "ReadFiles",
    "abandon_call",
    "format_output",
]

_log = logging.getLogger(__name__)

_MOST_PROBLEM = 300  # characters of the reason for a retry
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|[。！？]|$)", re.MULTILINE)

CLEANUP_SECONDS = 10.0
"""Timeout for what remains to be done for a call when everything else is stopped."""


ReadFiles: TypeAlias = Callable[[ToolOutput], Awaitable[ToolOutput]]
"""Adds what a model can read of the files of an output to its text and its images."""


@dataclass(frozen=True, slots=True, eq=False)
class CallEnvironment:
    """Environment that the calls of a run share; see `ToolPipeline`."""

    toolbox: Toolbox
    _: KW_ONLY
    permissions: Permissions
    scheduler: Scheduler = field(default_factory=Scheduler)
    output_tokens: int = 6000
    audit: AuditLog | None = None
    run_id: str = ""
    source: str = ""
    caller: str = ""
    priority: int = 0
    data: Mapping[str, Any] | None = None
    read_files: ReadFiles | None = None

    def entry(self, planned: PlannedCall, kind: AuditKind) -> AuditEntry:
        """Return an audit entry about a call, without decision and outcome."""
        return AuditEntry(
            kind=kind,
            run=self.run_id,
            call=planned.call.id,
            tool=planned.name,
            arguments=planned.arguments,
            caller=self.caller,
            caller_id=self.source,
        )

    def decision_entry(
        self, planned: PlannedCall, decision: PermissionDecision, *, approved: bool = False
    ) -> AuditEntry:
        """Return the audit entry of a decision."""
        entry = self.entry(planned, "decision")
        if approved and decision.action != "deny":
            return replace(entry, decision="allow", by=planned.by or "a person")
        rule = "" if decision.rule is None else decision.rule.summary
        return replace(entry, decision=decision.action, by="rules", rule=rule, reason=decision.reason)


class CallRun:
    """One call of a turn, from its plan to its result.

    Args:
        planned: the planned call.
        host: the run that the call belongs to.
        environment: its environment.
        approved: whether a person has approved it.
        context: context of the run's calls, with the number of agents above.
        retrying: host of its retries; None for a single attempt.
        tasks: host of the task that it may become; None if no run keeps it.

    Attributes:
        result: its result; None before its end.
    """

    def __init__(
        self,
        planned: PlannedCall,
        host: CallHost,
        environment: CallEnvironment,
        *,
        approved: bool,
        context: CallContext,
        retrying: RetryHost | None = None,
        tasks: TaskHost | None = None,
    ) -> None:
        self.result: CallResult | None = None
        self._planned = planned
        self._host = host
        self._in = environment
        self._approved = approved
        self._context = context
        self._retrying = retrying
        self._tasks = tasks
        self._stages: dict[Stage, float] = dict(planned.stages)
        self._has_begun = False
        self._problem: Exception | None = None

    @property
    def is_decided(self) -> bool:
        """Whether it was refused already in the plan."""
        return self._planned.result is not None

    @property
    def is_concurrency_safe(self) -> bool:
        """Whether it may run concurrently with others."""
        return self._planned.tool is not None and self._planned.tool.is_concurrency_safe

    async def run(self) -> None:
        """Wait for a slot, run the call if it still may, and report its result.

        Raises:
            Exception: an error of the host.
        """
        planned, tool = self._planned, self._planned.tool
        if tool is None or planned.result is not None:
            await self.end_as_planned()
            return
        with call_span(planned, run_id=self._in.run_id) as record_end:
            status, output = await self._run_attempts(tool)
            record_end(status, output, self._stages.get("check_cancel", 0.0))
        await self._end(status, output)

    async def end_as_planned(self) -> None:
        """Report that it does not run."""
        if self._planned.result is not None and self.result is None:
            self.result = self._planned.result
            self._count(self.result.status)
            if self._planned.by and self._in.audit is not None:  # the plan recorded the rules' decisions
                refused = self._in.entry(self._planned, "decision")
                self._in.audit.note(replace(refused, decision="deny", by=self._planned.by))
            await self._host.record_result(self._planned, self.result)

    async def abort(self) -> None:
        """Report that it was stopped, if it has no result; call this in a shielded scope."""
        if self.result is None:
            await self._end("aborted", outcomes.explain_abort(self._planned, begun=self._has_begun))

    async def _run_attempts(self, tool: Tool) -> tuple[CallStatus, ToolOutput]:
        """Run the call, and repeat it as the retry policy says; between two attempts it holds no slot."""
        made = 0 if self._retrying is None else self._retrying.failed_attempts(self._planned)
        while True:
            status, output = await self._run_in_slot(tool)
            made += 1
            retry = self._next_attempt(tool, status, output, made=made)
            task_id = "" if self._tasks is None else self._tasks.task_of(self._planned)
            if status == "timeout" and (task_id or retry is None):  # an agent's run goes on with the retry
                context = CallContext(run_id=self._in.run_id, call_id=self._planned.call.id, task_id=task_id)
                left = await abandon_call(self._in.toolbox, tool.wire_name, context)
                output = replace(output, metadata={**output.metadata, **left})
            if self._retrying is None or retry is None:
                return status, outcomes.with_attempts(output, made)
            _log.info("%s: attempt %d follows in %.1f s", tool.name, retry.attempt, retry.wait)
            self._note_end(status)
            self._has_begun = False
            await self._retrying.wait_for_retry(self._planned, retry)

    def _next_attempt(
        self, tool: Tool, status: CallStatus, output: ToolOutput, *, made: int
    ) -> CallRetry | None:
        if self._retrying is None:
            return None
        policy = self._retrying.retries
        wait = policy.wait_after(output.failure, tool, made=made)
        if wait is None or wait >= self._retrying.seconds_left:
            return None
        attempts = 1 + policy.limit_of(tool)
        problem = _problem(output)
        return CallRetry(status=status, problem=problem, attempt=made + 1, attempts=attempts, wait=wait)

    async def _run_in_slot(self, tool: Tool) -> tuple[CallStatus, ToolOutput]:
        begun = perf_counter()
        slot = self._in.scheduler.slot(
            self._in.run_id,
            depth=self._context.depth,
            priority=self._in.priority,
            needs_seconds=self._in.scheduler.timeout_of(tool),
        )
        status: CallStatus = "timeout"
        output: ToolOutput | None = None
        async with slot:
            await checkpoint_if_cancelled()
            refusal = await self._refusal(tool)
            self._add_time("check_cancel", begun)
            if refusal is not None:
                status, output = refusal
            else:
                await self._host.record_start(self._planned)
                self._has_begun = True
                begun = perf_counter()
                try:
                    status, output = await self._call_tool(slot)
                finally:
                    self._add_time("execute", begun)
        if self._problem is not None:
            raise self._problem
        return status, output or outcomes.explain_timeout(self._planned.name, slot.seconds)

    def _add_time(self, stage: Stage, begun: float) -> None:
        """Add the time of a stage to that of earlier attempts."""
        self._stages[stage] = self._stages.get(stage, 0.0) + perf_counter() - begun

    async def _refusal(self, planned_tool: Tool) -> tuple[CallStatus, ToolOutput] | None:
        """Return why it does not run after all: things may have changed since the plan."""
        planned = self._planned
        try:
            tool = self._in.toolbox.current(planned_tool)
        except LoomError as error:
            return "error", ToolOutput(str(error), is_error=True)
        if tool is not planned_tool:
            if identity(tool) != identity(planned_tool):
                return "error", outcomes.explain_change(tool.name)
            planned = self._planned = replace(planned, tool=tool)
        decision = self._in.permissions.decide(tool, planned.arguments, source=self._in.source)
        entries: list[AuditEntry] = []
        if self._approved or decision.action != planned.verdict:
            entries.append(self._in.decision_entry(planned, decision, approved=self._approved))
        refusal: tuple[CallStatus, ToolOutput] | None = None
        if decision.action == "deny":
            refusal = "denied", outcomes.explain_denial(tool.name, decision.reason)
        elif decision.action == "ask" and not self._approved:
            refusal = "denied", outcomes.explain_missing_approval(tool.name, decision.reason)
        if self._in.audit is None:
            return refusal
        if refusal is not None or tool.annotations.read_only:
            self._in.audit.note(*entries)
            return refusal
        try:
            await self._in.audit.write(*entries, self._in.entry(planned, "start"))
        except LoomError as error:
            return "error", outcomes.explain_unrecordable(tool.name, str(error))
        return None

    async def _call_tool(self, slot: Slot) -> tuple[CallStatus, ToolOutput]:
        planned, tool = self._planned, self._planned.tool
        assert tool is not None

        async def progress(done: float, total: float | None, message: str) -> None:
            with self._capture_host_errors():
                await self._host.progress(planned, done, total, message)

        async def ask(question: Question) -> QuestionAnswer:
            async with slot.suspend():
                with self._capture_host_errors():
                    return await self._host.ask(planned, question)

        tasks = self._tasks

        async def keep_task(task_id: str) -> None:
            assert tasks is not None
            with self._capture_host_errors():
                await tasks.record_task(planned, task_id)

        context = replace(
            self._context,
            progress=progress,
            ask=ask if self._host.can_ask else None,
            run_id=self._in.run_id,
            call_id=planned.call.id,
            keep_task=None if tasks is None else keep_task,
            task_id="" if tasks is None else tasks.task_of(planned),
        )
        try:
            output = _check_output(await tool.call(planned.arguments, context=context))
            if output.files and self._in.read_files is not None:
                output = await self._in.read_files(output)
        except anyio.get_cancelled_exc_class():
            if _is_cancelled():
                raise
            return "error", outcomes.explain_self_cancellation(tool.name)
        except BaseException as error:  # also if a tool calls `sys.exit`: that ends only its call
            if _ends_the_program(error):
                raise
            repeatable = tool.annotations.repeatable
            status, output = outcomes.explain_failure(tool.name, error, repeatable=repeatable)
            if self._problem is None:
                self._log_failure(tool, error, output)
            return status, output
        return ("error" if output.is_error else "success"), output

    def _log_failure(self, tool: Tool, error: BaseException, output: ToolOutput) -> None:
        """Log an exception that the model does not read in full; with its traceback if it is unexpected."""
        error = unwrap_group(error) if isinstance(error, Exception) else error
        if isinstance(error, LoomError | TimeoutError):
            return
        run = self._in.run_id or "without a name"
        if output.failure is None:
            _log.exception("%s failed in the run %s", tool.name, run)
        else:
            _log.warning("%s failed in the run %s: %s: %s", tool.name, run, type(error).__name__, error)

    @contextmanager
    def _capture_host_errors(self) -> Generator[None]:
        """Remember errors of the host: the tool may convert them."""
        try:
            yield
        except Exception as error:
            self._problem = self._problem or error
            raise

    async def _end(self, status: CallStatus, output: ToolOutput) -> None:
        begun = perf_counter()
        formed = FormattedOutput(output)
        if status != "aborted":
            formed = await format_output(output, most_tokens=self._in.output_tokens, keep=self._keep)
        self._stages["format"] = perf_counter() - begun
        planned = self._planned
        self.result = CallResult(
            call_id=planned.call.id,
            tool=planned.tool_name,
            status=status,
            output=replace(output, warnings=formed.output.warnings),
            message=formed.output.message(planned.call.id),
            stages=self._stages,
            blob=formed.blob,
        )
        self._count(status)
        self._note_end(status)
        await self._host.record_result(planned, self.result)

    def _note_end(self, status: CallStatus) -> None:
        """Audit the end of an attempt that may have changed something."""
        tool = self._planned.tool
        changes = tool is not None and not tool.annotations.read_only
        if self._has_begun and changes and self._in.audit is not None:
            ended = self._in.entry(self._planned, "end")
            seconds = self._stages.get("execute", 0.0)
            self._in.audit.note(replace(ended, outcome=status, seconds=seconds))

    def _count(self, status: CallStatus) -> None:
        name = self._planned.tool_name
        process_metrics.add(TOOL_CALLS, name, status)
        if self._has_begun:
            process_metrics.observe(TOOL_SECONDS, self._stages.get("execute", 0.0), name)

    async def _keep(self, text: str) -> str:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP_SECONDS):
            return await self._host.spill(self._planned, text)
        return ""


async def abandon_call(toolbox: Toolbox, name: str, context: CallContext) -> Mapping[str, Any]:
    """Stop the remaining work of a started call, as far as that succeeds in time; see `Tool.abandon`.

    Returns:
        Metadata for the call's output.
    """
    try:
        with anyio.move_on_after(CLEANUP_SECONDS):
            return await toolbox.find(name).abandon(context=context) or {}
    except Exception as error:  # noqa: BLE001 - whatever a tool raises, the call or its run must end
        _log.warning("work for the call %s may still be running: %s", context.call_id, error)
    return {}


def _problem(output: ToolOutput) -> str:
    """Return the first sentence of a failed output, redacted, for people; the rest advises the model."""
    text = Redaction.now().text(strip_control(output.text[: 10 * _MOST_PROBLEM])).strip()
    found = _SENTENCE.match(text)
    return found[0][:_MOST_PROBLEM] if found else ""


def _check_output(output: object) -> ToolOutput:
    """Check a tool's output, as third parties write tools."""
    if not isinstance(output, ToolOutput):
        raise TypeError(f"a tool returned {type(output).__name__}, not a ToolOutput")
    if not isinstance(cast("object", output.text), str):
        raise TypeError("a tool returned an output whose text is not a string")
    if not isinstance(cast("object", output.metadata), Mapping):
        raise TypeError("a tool returned an output whose metadata is not a mapping")
    if not all(isinstance(each, str) for each in cast("tuple[object, ...]", output.warnings)):
        raise TypeError("a tool returned an output with warnings that are not strings")
    if not all(isinstance(part, ImagePart) for part in cast("tuple[object, ...]", output.parts)):
        raise TypeError("a tool returned an output with parts that are not images")
    if not all(isinstance(file, OutputFile) for file in cast("tuple[object, ...]", output.files)):
        raise TypeError("a tool returned an output with files that are not an `OutputFile`")
    return output


def _ends_the_program(error: BaseException) -> bool:
    """Return whether an error must end the program, not only the call."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(_ends_the_program, group.exceptions))
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def _is_cancelled() -> bool:
    """Return whether a cancellation comes from outside of the tool."""
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


@contextmanager
def call_span(
    planned: PlannedCall, *, run_id: str
) -> Generator[Callable[[CallStatus, ToolOutput, float], None]]:
    """Start the span of a call that may run.

    Args:
        planned: the call.
        run_id: the run that it belongs to.

    Yields:
        A function that records the end of the call: its status, its output, and the seconds before its start.
    """
    attributes = {
        "gen_ai.operation.name": EXECUTE_TOOL.name,
        "gen_ai.tool.name": planned.name,
        "gen_ai.tool.call.id": planned.call.id,
        "loom.run.id": run_id or None,
    }
    with span(EXECUTE_TOOL, attributes) as started:
        if started.is_recording() and records_content():
            told = content_json(redact_arguments(planned.arguments))
            started.set_attribute("gen_ai.tool.call.arguments", told)

        def record_end(status: CallStatus, output: ToolOutput, waited: float) -> None:
            if not started.is_recording():
                return
            started.set_attribute("loom.tool.status", status)
            started.set_attribute("loom.tool.waited_ms", 1000 * waited)
            if status in {"error", "timeout"}:
                record_failure(started, "timeout" if status == "timeout" else "tool_error")
            if records_content():
                started.set_attribute("gen_ai.tool.call.result", redact_content(output.text))

        yield record_end


_HEAD = 0.7  # share of the shown text; the rest is the end, where results and errors are
_LINE = 200  # characters within which a cut moves to the end of a line
_TOKEN = 4  # characters of a token at most
_PIECE = 200_000  # characters that are processed at once

Keep: TypeAlias = Callable[[str], Awaitable[str]]
"""Store a text and return its address; empty if that failed."""


@dataclass(frozen=True, slots=True)
class FormattedOutput:
    """An output in the form for models.

    Attributes:
        output: the output with the shown text.
        blob: address of the complete text; empty if all is shown, or it was not stored.
    """

    output: ToolOutput
    blob: str = ""


async def format_output(output: ToolOutput, *, most_tokens: int, keep: Keep) -> FormattedOutput:
    """Format an output for models: strip control characters, redact secrets, truncate the middle.

    Secrets are redacted (`loom_core.redaction`), as the text goes to the model's vendor and to the journal. A
    secret shown as `[secret]` is still where the tool found it.

    Args:
        output: the tool's output.
        most_tokens: approximate limit of the text in tokens, without the note on the missing part.
        keep: stores the complete text of a truncated output.
    """
    hidden = Redaction.now()
    text = await _plain(output.text, hidden)
    if output.structured is not None:
        output = replace(output, structured=cast("JsonValue", hidden.value(output.structured)))
    if output.warnings:
        warnings = tuple(hidden.text(strip_control(each)) for each in output.warnings)
        output = replace(output, warnings=warnings)
    if not text.strip() and not output.parts:
        return FormattedOutput(replace(output, text=NO_OUTPUT))
    if len(text) <= most_tokens or (len(text) <= most_tokens * _TOKEN and _tokens(text) <= most_tokens):
        return FormattedOutput(output if text == output.text else replace(output, text=text))
    head = _beginning(text, int(most_tokens * _HEAD))
    tail = _ending(text, most_tokens - int(most_tokens * _HEAD))
    blob = await keep(text)
    missing = text[len(head) : len(text) - len(tail)]
    where = f"the whole is at {blob}" if blob else "it was not kept: ask the tool for less at once"
    size = f"{len(missing):,} characters (about {_tokens(missing):,} tokens)"
    note = f"[{size} are left out here; {where}]"
    return FormattedOutput(replace(output, text=f"{head.rstrip()}\n\n{note}\n\n{tail.lstrip()}"), blob)


async def _plain(text: str, hidden: Redaction) -> str:
    """Strip and redact a text; a very long one in pieces, to not block other tasks."""
    if len(text) <= _PIECE:
        return hidden.text(strip_control(text))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _PIECE) + 1 or at + _PIECE
        pieces.append(hidden.text(strip_control(text[at:end])))
        at = end
        await cancel_shielded_checkpoint()
    return "".join(pieces)


def _tokens(text: str) -> int:
    """Count tokens; for a very long text extrapolate from its beginning."""
    if len(text) <= _PIECE:
        return estimate_tokens(text)
    return estimate_tokens(text[:_PIECE]) * len(text) // _PIECE


def _beginning(text: str, tokens: int) -> str:
    kept = text[: _prefix_length(text[: tokens * _TOKEN], tokens)]
    end = kept.rfind("\n", max(0, len(kept) - _LINE))
    return kept[: end + 1] if end > 0 else kept


def _ending(text: str, tokens: int) -> str:
    size = _prefix_length(text[-tokens * _TOKEN :][::-1], tokens)
    kept = text[len(text) - size :]
    start = kept.find("\n", 0, _LINE)
    return kept[start + 1 :] if 0 <= start < len(kept) - 1 else kept


def _prefix_length(text: str, tokens: int) -> int:
    """Return the length of the longest prefix with at most this many tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= tokens else (low, middle - 1)
    return low
