"""A model's tool call on its way through the pipeline, its result, and the host that the pipeline calls."""

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
    "Verdict",
]

Stage: TypeAlias = Literal["discover", "validate", "authorize", "check_cancel", "execute", "format"]
"""In this order. Waiting for a turn counts as `check_cancel`."""

CallStatus: TypeAlias = Literal["success", "error", "denied", "timeout", "aborted", "unknown"]
"""`unknown`: it had begun when the process died, and nobody knows whether it was done. The pipeline itself
never says that."""

UNKNOWN_TOOL = "unknown"
"""The name in logs and metrics of a tool that does not exist."""

NO_OUTPUT = "(The tool has ended and gave no output.)"
"""The text that the model reads where a tool gave none."""

Verdict: TypeAlias = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call after Discover, Validate and Authorize: nothing has been done.

    Attributes:
        call: what the model wrote.
        tool: what it names; None where there is none.
        arguments: checked, with defaults and repairs.
        verdict: whether it may run, or a person has to be asked.
        reason: why it is denied or asked about, for people.
        result: what the model is told where it does not run (unknown tool, wrong arguments, denied); else
            None.
        stages: seconds that each stage took so far.
        by: who decided: empty for the rules, else the person who was asked or what refused it, for the audit.
        of_tool: whether only the tool has to be approved: the rules allow the call.
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
        """The tool as people call it; what the model wrote where there is none."""
        return self.call.name if self.tool is None else self.tool.name

    @property
    def is_unapproved(self) -> bool:
        """Whether it is asked about because nobody has approved its tool, as it is now."""
        tool = self.tool
        return (
            self.verdict == "ask" and tool is not None and tool.keeps_approval and bool(tool.approval_reason)
        )

    @property
    def tool_name(self) -> str:
        """The same for logs and numbers: `unknown` where there is none, as a model may write anything."""
        return UNKNOWN_TOOL if self.tool is None else self.tool.name

    def refuse(
        self, output: ToolOutput, *, status: CallStatus = "error", reason: str = "", by: str = ""
    ) -> PlannedCall:
        """Return the call as one that does not run.

        Args:
            output: what the model is told instead of a result.
            status: how the call counts as ended.
            reason: why, for people; by default the reason that the plan has, else the output's text.
            by: who refused it, for the audit; by default who is in the plan.
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
    """What came of a call.

    Attributes:
        call_id: `ToolCallPart.id`.
        tool: as people call it; `unknown` where there is none.
        status: how it ended.
        output: what the tool answered, whole.
        message: what the model reads: plain, and shortened where it is too long.
        stages: seconds that each stage took.
        blob: address of the whole text where it was too long to show; else empty.
    """

    call_id: str
    tool: str
    status: CallStatus
    output: ToolOutput
    message: ToolMessage
    stages: Mapping[Stage, float]
    blob: str = ""


class CallHost(Protocol):
    """The run that a call belongs to, as the pipeline sees it: the one interface for calls upward.

    The host keeps the journal, reaches people, and stores what is too long to show. The pipeline awaits every
    method. What one of them raises ends the whole turn: running calls are cancelled, and `execute` raises the
    error.
    """

    @property
    def can_ask(self) -> bool:
        """Whether the host has a person to ask; else tools are told so (`CallContext.ask`)."""
        ...

    async def record_start(self, planned: PlannedCall) -> None:
        """Record that the call runs: it does when this returns."""
        ...

    async def record_result(self, planned: PlannedCall, result: CallResult) -> None:
        """Record the result of the call.

        Called once for every call, as they end, also for those that did not run or were aborted. What it does
        before it first waits is done in any case; then a cancellation may come.
        """
        ...

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        """Take how far the tool is."""
        ...

    async def ask(self, planned: PlannedCall, question: Question) -> QuestionAnswer:
        """Ask a person for the tool. Meanwhile its time stands still, and others have its slot."""
        ...

    async def spill(self, planned: PlannedCall, text: str) -> str:
        """Keep what is too long to show; return its address (`loom://runs/…/blobs/1`), or empty."""
        ...
