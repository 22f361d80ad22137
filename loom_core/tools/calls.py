"""Tool calls in the pipeline: the planned call, its result, and the call host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.tools.interface import Question, QuestionAnswer, Tool, ToolOutput

__all__ = [
    "NO_OUTPUT",
    "UNKNOWN_TOOL",
    "CallHost",
    "CallResult",
    "CallStatus",
    "PlannedCall",
    "Stage",
    "TaskHost",
    "Verdict",
]

Stage: TypeAlias = Literal["discover", "validate", "authorize", "check_cancel", "execute", "format"]
"""Stages of the pipeline, in order. Waiting for a slot counts as `check_cancel`."""

CallStatus: TypeAlias = Literal["success", "error", "denied", "timeout", "aborted", "unknown"]
"""`unknown`: the process died during the call, so its outcome is not known. The pipeline itself never sets
this."""

UNKNOWN_TOOL = "unknown"
"""Name of a non-existent tool in logs and metrics."""

NO_OUTPUT = "(The tool has ended and gave no output.)"
"""The model reads this text if a tool returned none."""

Verdict: TypeAlias = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call after Discover, Validate and Authorize; it has not run.

    Attributes:
        call: the model's call.
        tool: the tool; None if it does not exist.
        arguments: validated arguments, with defaults and repairs.
        verdict: whether it may run, or needs approval.
        reason: why it is denied or needs approval, for people.
        result: the model's result if the call does not run (unknown tool, invalid arguments, denied); else
            None.
        stages: duration of each stage so far, in seconds.
        by: who decided: empty for the rules, else the person or the component that refused it, for the audit.
        of_tool: whether only the tool needs approval: the rules allow the call.
    """

    call: ToolCallPart
    tool: Tool | None
    arguments: Mapping[str, Any]
    verdict: Verdict
    reason: str = ""
    result: CallResult | None = None
    stages: Mapping[Stage, float] = field(default_factory=dict[Stage, float])
    by: str = ""
    of_tool: bool = False

    @property
    def name(self) -> str:
        """Display name of the tool; the model's text if it does not exist."""
        return self.call.name if self.tool is None else self.tool.name

    @property
    def is_unapproved(self) -> bool:
        """Whether it needs approval because the current version of its tool is not approved."""
        tool = self.tool
        return (
            self.verdict == "ask" and tool is not None and tool.keeps_approval and bool(tool.approval_reason)
        )

    @property
    def tool_name(self) -> str:
        """Name for logs and metrics: `unknown` if there is no tool, as a model may write anything."""
        return UNKNOWN_TOOL if self.tool is None else self.tool.name

    def refuse(
        self, output: ToolOutput, *, status: CallStatus = "error", reason: str = "", by: str = ""
    ) -> PlannedCall:
        """Return a refused copy of the call.

        Args:
            output: the model's result.
            status: status of the call.
            reason: why, for people; by default the plan's reason, else the output's text.
            by: who refused it, for the audit; by default as in the plan.
        """
        result = CallResult(
            call_id=self.call.id,
            tool=self.tool_name,
            status=status,
            output=output,
            message=output.message(self.call.id),
            stages=self.stages,
        )
        reason = reason or self.reason or output.text
        return replace(self, verdict="deny", reason=reason, result=result, by=by or self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """Result of a call.

    Attributes:
        call_id: `ToolCallPart.id`.
        tool: display name of the tool; `unknown` if there is none.
        status: how it ended.
        output: the tool's complete output.
        message: the message for the model: plain, and truncated if it is too long.
        stages: duration of each stage, in seconds.
        blob: address of the complete text if it was too long to show; else empty.
    """

    call_id: str
    tool: str
    status: CallStatus
    output: ToolOutput
    message: ToolMessage
    stages: Mapping[Stage, float]
    blob: str = ""


class CallHost(Protocol):
    """Host of tool calls: the pipeline's interface to the run.

    The host keeps the journal, asks people, and stores outputs that are too long to show. The pipeline awaits
    every method. An error of one of them ends the whole turn: running calls are cancelled, and `execute`
    raises the error.
    """

    @property
    def can_ask(self) -> bool:
        """Whether the host can ask a person; else `CallContext.ask` is None."""
        ...

    async def record_start(self, planned: PlannedCall) -> None:
        """Record the start of the call, before it runs."""
        ...

    async def record_result(self, planned: PlannedCall, result: CallResult) -> None:
        """Record the result of the call.

        Called once for every call, in order of their ends, also for calls that did not run or were aborted.
        It cannot be cancelled before its first await.
        """
        ...

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        """Report the progress of the tool."""
        ...

    async def ask(self, planned: PlannedCall, question: Question) -> QuestionAnswer:
        """Ask a person a tool's question; the tool's timeout pauses, and its slot is free for others."""
        ...

    async def spill(self, planned: PlannedCall, text: str) -> str:
        """Store a text that is too long to show; return its address (`loom://runs/…/blobs/1`), or ""."""
        ...


class TaskHost(Protocol):
    """Host of calls that another server continues as tasks: it records them, so that they survive a crash."""

    def task_of(self, planned: PlannedCall) -> str:
        """Return the id of the task that the call had become before a crash; empty for none."""
        ...

    async def record_task(self, planned: PlannedCall, task_id: str) -> None:
        """Record the task; it is on disk when this returns."""
        ...
