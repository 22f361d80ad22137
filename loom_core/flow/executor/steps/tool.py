"""Step that calls a tool, through all six stages of the pipeline."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from loom_core.agent.calling_run import USAGE_KEY
from loom_core.agent.notices import Notices
from loom_core.flow.executor.steps.context import StepOutcome, StepResponse
from loom_core.flow.http.tool import DOUBT, FAILURE, PROBLEM, TOLD
from loom_core.llm.messages import ToolCallPart
from loom_core.runs.run import Pending, RunUsage
from loom_core.tools.depth import DEPTH_META_KEY, inherit_depth
from loom_core.tools.permission.permissions import ToolIdentity, UnapprovedToolError, identity

if TYPE_CHECKING:
    from loom_core.flow.executor.messages import FlowMessages
    from loom_core.flow.executor.questions import FlowQuestions
    from loom_core.flow.executor.recorder import FlowRecorder
    from loom_core.flow.executor.state import Frame
    from loom_core.runs.human_broker import HumanBroker
    from loom_core.tools.calls import CallResult, PlannedCall
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.interface import Question, QuestionAnswer

__all__ = ["StepStartRecorder", "StepTaskRecorder", "ToolStep", "ToolStepContext"]

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.25  # between two events of one call
_FAILED = 500


class StepStartRecorder(Protocol):
    """Callback that records the start of a step; see `StepRunner.record_start`."""

    async def __call__(
        self,
        frame: Frame,
        step_id: str,
        what: str,
        *,
        changes: bool,
        risky: bool,
        approved: ToolIdentity | bool,
        tool: str = "",
    ) -> None:
        """Return when the step may start."""
        ...


class StepTaskRecorder(Protocol):
    """Callback that records the task that a step's call has become; see `StepRunner.record_task`."""

    async def __call__(self, frame: Frame, step_id: str, task_id: str) -> None:
        """Return when it is on disk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStepContext:
    """Dependencies of tool calls.

    Attributes:
        record: recorder of the run.
        people: human-in-the-loop broker for tools' questions.
        questions: asks for approval of tool calls.
        pipeline: plans and executes calls.
        starting: records the start of a step.
        becoming: records the task that a call has become.
        standing: context of waiting for people in a call.
        wording: messages to people.
    """

    record: FlowRecorder
    people: HumanBroker
    questions: FlowQuestions
    pipeline: ToolPipeline
    starting: StepStartRecorder
    becoming: StepTaskRecorder
    standing: Callable[[], AbstractContextManager[None]]
    wording: FlowMessages


class ToolStep:
    """One tool call and its host (`CallHost` and `TaskHost`).

    Args:
        work: dependencies.
        frame: frame of the step.
        step_id: id of the step.
        key: key of its visit, which is the id of the call.
        approved: whether a person has approved this visit before.
        question: question to the user before the call.
        asks: whether to ask in any case; otherwise by permissions.
    """

    def __init__(
        self,
        work: ToolStepContext,
        frame: Frame,
        step_id: str,
        *,
        key: str,
        approved: bool,
        question: str,
        asks: bool,
    ) -> None:
        self._work = work
        self._frame = frame
        self._step_id = step_id
        self._key = key
        self._approved = approved
        self._question = question
        self._asks = asks
        self._lasting: ToolIdentity | None = None
        self._asked = 0
        self._shown = -_PROGRESS_SECONDS

    async def plan(self, tool: str, arguments: Mapping[str, Any]) -> PlannedCall:
        """Run the stages discover, validate and authorize."""
        (planned,) = await self._work.pipeline.plan([ToolCallPart(self._key, tool, dict(arguments))])
        return planned

    async def outcome(self, planned: PlannedCall) -> StepOutcome:
        """Ask for approval if required, and call the tool."""
        if planned.result is None and (self._asks or planned.verdict == "ask") and not self._approved:
            decided = self._check_refusal(planned) or await self._request_decision(planned)
            if isinstance(decided, StepOutcome):
                return decided
            planned = decided
        if planned.result is not None:
            return self._outcome(planned.result, repeatable=True)
        depth = self._work.record.run.request.depth + 1
        approved = frozenset({self._key}) if self._approved else frozenset[str]()
        with inherit_depth({DEPTH_META_KEY: depth}):
            (result,) = await self._work.pipeline.execute(
                [planned],
                host=self,
                approved=approved,
                depth=depth,
                tasks=self if self._work.record.journal.is_durable else None,
            )
        repeatable = planned.tool is not None and planned.tool.annotations.repeatable
        if isinstance(spent := result.output.metadata.get(USAGE_KEY), RunUsage):
            self._work.record.record_usage(spent)
        return self._outcome(result, repeatable=repeatable)

    def _check_refusal(self, planned: PlannedCall) -> StepOutcome | None:
        """Return the outcome of a call whose tool no operator has approved: users cannot approve it."""
        said = self._work.people.unapproved
        if planned.tool is None or not planned.is_unapproved or not said:
            return None
        error = UnapprovedToolError(planned.tool, said=said)
        _log.warning("run %s cannot continue: %s", self._work.record.run.id, error)
        return StepOutcome(status="failure", problem=str(error), said=error.said)

    async def _request_decision(self, planned: PlannedCall) -> PlannedCall | StepOutcome:
        """Request a decision, and return the approved call or the outcome of a refusal."""
        tool = planned.tool
        for_run = tool is not None and (tool.keeps_approval or not tool.approval_reason)
        notices = Notices.of(self._work.wording.language)
        decision = await self._work.questions.request_decision(
            self._key,
            "approval",
            notices.translate(planned.reason) if planned.is_unapproved else self._question,
            tool=planned.name,
            arguments=planned.arguments,
            arguments_schema=None if tool is None else tool.args_schema,
            for_run=for_run,
        )
        if decision.action == "deny":
            return StepOutcome(
                status="declined", problem=decision.reason or f"{decision.by or 'A person'} said no."
            )
        if decision.action == "edit":
            planned = await self.plan(planned.call.name, decision.arguments)
        self._approved = True
        lasting = decision.scope == "run" and for_run
        if lasting and tool is not None:
            self._lasting = identity(tool)
        return await self._work.pipeline.approve(
            planned, by=decision.by or "a person", seen="", for_run=lasting, keep=decision.keep
        )

    @property
    def can_ask(self) -> bool:
        """Whether the user can be asked; see `CallHost`."""
        return True

    async def record_start(self, planned: PlannedCall) -> None:
        """Record the start of the call; see `CallHost`."""
        repeatable = planned.tool is not None and planned.tool.annotations.repeatable
        await self._work.starting(
            self._frame,
            self._step_id,
            planned.name,
            changes=planned.tool is None or not planned.tool.annotations.read_only,
            risky=not repeatable,
            tool=planned.call.name,
            approved=self._lasting or self._approved,
        )

    def task_of(self, planned: PlannedCall) -> str:
        """Return the task that the call had become; see `TaskHost`."""
        step = self._frame.steps.get(self._step_id)
        return "" if step is None else step.task_id

    async def record_task(self, planned: PlannedCall, task_id: str) -> None:
        """Record the task; see `TaskHost`."""
        await self._work.becoming(self._frame, self._step_id, task_id)

    async def record_result(self, planned: PlannedCall, result: CallResult) -> None:
        """Do nothing: the state machine records the result; see `CallHost`."""

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        """Record progress, at most four times a second; see `CallHost`."""
        now = monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            self._work.record.record_progress(planned.call.id, done, total, message)

    async def ask(self, planned: PlannedCall, question: Question) -> QuestionAnswer:
        """Ask the user; see `CallHost`."""
        self._asked += 1
        where = f" ({question.url})" if question.url else ""
        is_worded = bool(question.tool and self._work.people.unapproved)  # questions to customers, by caller
        origin = f"{question.origin}: " if question.origin and not is_worded else ""
        pending = Pending(
            id=f"{self._key}.{self._asked}",
            kind="approval" if question.tool else "question",
            tool=question.tool or planned.name,
            arguments=dict(question.arguments if question.tool else planned.arguments),
            arguments_schema=dict(question.arguments_schema),
            reason=f"{origin}{question.text}{where}",
            schema=dict(question.schema),
            deadline=self._work.people.deadline(),
        )
        with self._work.standing():
            return await self._work.people.request_input(pending)

    def _outcome(self, result: CallResult, *, repeatable: bool) -> StepOutcome:
        output = result.output
        body: Any = output.structured
        if body is None:
            body = _read(output.text)
        if result.status == "success":
            return StepOutcome(response=StepResponse(body=body), outputs={"result": body})
        doubt = output.metadata.get(DOUBT)
        lost = result.status in {"timeout", "unknown"} or doubt == "lost"
        return StepOutcome(
            status="unknown" if lost and not repeatable else "failure",
            response=StepResponse(_FAILED, body=body),
            problem=str(output.metadata.get(PROBLEM) or output.text),
            said=self._message(result, unsure=lost and not repeatable),
            maybe_done=lost or doubt is not None,
        )

    def _message(self, result: CallResult, *, unsure: bool) -> str:
        """Return the user's message for a failed call."""
        about, wording = result.output.metadata, self._work.wording
        failure = about.get(FAILURE) or ("timeout" if result.status == "timeout" else "other")
        return wording.part_of(about.get(TOLD, "")) or wording.describe_failed_request(failure, unsure=unsure)

    async def spill(self, planned: PlannedCall, text: str) -> str:
        """Store a large text; see `CallHost`."""
        return await self._work.record.save_blob(text.encode("utf-8", "replace"), "text/plain; charset=utf-8")


def _read(text: str) -> object:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text
