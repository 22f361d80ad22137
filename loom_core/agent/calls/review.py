"""Which calls of an answer run: by permissions, hooks, loop guard, budget and people."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from loom_core.agent.hooks import Veto, asked_hooks
from loom_core.agent.spending import calls_left
from loom_core.errors import LoomError
from loom_core.runs.human_broker import was_refused_by_time
from loom_core.runs.run import Pending
from loom_core.tools.calls import CallResult, CallStatus, PlannedCall
from loom_core.tools.interface import ToolOutput
from loom_core.tools.permission.permissions import UnapprovedToolError

if TYPE_CHECKING:
    from loom_core.agent.hooks import Hooks
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.agent.notices import Notices
    from loom_core.agent.record import RunRecord
    from loom_core.agent.state import OpenCall
    from loom_core.runs.commands import Decided
    from loom_core.runs.human_broker import People
    from loom_core.tools.execution.pipeline import ToolPipeline

__all__ = ["CallReview", "LoopStoppedError", "ReviewedCall"]

_log = logging.getLogger(__name__)

_EDITED_SHOWN = 2000  # characters
_NOBODY = (
    "a call of %s was not made, as nobody can be asked (%s); give the agent `approve`, or have it allowed: "
    "by `permissions`. %s"
)


class LoopStoppedError(LoomError):
    """The model makes the same call over and over, and was told so."""


@dataclass(slots=True)
class ReviewedCall:
    """A call on its way.

    Attributes:
        planned: what the pipeline runs, or tells the model as it is.
        pending: what people are asked about it, if anything.
        reminder: what the loop guard says behind the result.
        note: what else the model reads behind it.
        lasting: whether a person has approved its tool for the rest of the run.
    """

    planned: PlannedCall
    pending: Pending | None = None
    reminder: str = ""
    note: str = ""
    lasting: bool = False

    @property
    def alone(self) -> bool:
        """Whether it runs after those before it, and before those after it."""
        tool = self.planned.tool
        return self.planned.result is None and tool is not None and not tool.is_concurrency_safe


class CallReview:
    """Decides of each call whether it runs, and with which arguments.

    Calls of which a crash left nobody knowing whether they were done are made again where that does no harm;
    else people decide.

    Args:
        record: is told what happens.
        pipeline: plans the calls, by permissions and schemas.
        people: are asked.
        guard: sees to it that the model does not make the same call for ever.
        hooks: have a say in each call.
        notices: what the model is told of calls that are not made.

    Attributes:
        approved: ids of the calls that people approved, now or before a crash.
    """

    def __init__(
        self,
        record: RunRecord,
        pipeline: ToolPipeline,
        people: People,
        *,
        guard: LoopGuard | None,
        hooks: Sequence[Hooks],
        notices: Notices,
    ) -> None:
        self.approved: set[str] = set()
        self._record = record
        self._pipeline = pipeline
        self._people = people
        self._guard = guard
        self._hooks = hooks
        self._notices = notices

    async def calls(self) -> list[ReviewedCall]:
        """The open calls, with all that is decided of them before people are asked.

        Raises:
            LoopStoppedError: see there.
            UnapprovedToolError: likewise.
            HookError: a hook raised something.
        """
        open_calls = self._record.state.open_calls
        request = self._record.run.request
        planned = await self._pipeline.plan([call.part for call in open_calls], allowed=request.allowed_tools)
        self._announce(planned)
        left = calls_left(request.budget, self._record.spent, granted_from=self._record.state.granted_from)
        entries: list[ReviewedCall] = []
        for call, each in zip(open_calls, planned, strict=True):
            entry = await self._entry(call, each)
            if entry.planned.result is None and not call.started:
                left -= 1
                if left < 0:
                    text = self._notices.no_calls_left.format(most=request.budget.tool_calls)
                    entry = ReviewedCall(_told(each, "denied", text))
            entries.append(entry)
        return entries

    def _announce(self, planned: Sequence[PlannedCall]) -> None:
        if not self._record.state.announced:
            self._record.calls_announced(
                [
                    {"call_id": each.call.id, "tool": each.name, "arguments": dict(each.call.arguments)}
                    for each in planned
                ]
            )

    async def _entry(self, call: OpenCall, planned: PlannedCall) -> ReviewedCall:
        """A call with everything that is decided of it before people are asked."""
        if call.started:
            return self._begun_before(planned)
        planned = await self._heard(planned)
        if planned.result is not None:
            return ReviewedCall(planned)
        reminder = ""
        if self._guard is not None:
            verdict = self._guard.before(call.part)
            if verdict.action in {"remind", "refuse", "stop"}:
                self._record.loop_detected(call.part.id, planned.tool_name, verdict)
            if verdict.action == "stop":
                raise LoopStoppedError(verdict.text, advice="Say the goal differently.")
            if verdict.action == "refuse":
                return ReviewedCall(_told(planned, "denied", verdict.text))
            reminder = verdict.text
        if planned.verdict == "allow":
            return ReviewedCall(planned, reminder=reminder)
        tool = planned.tool
        if self._people.unapproved and planned.is_unapproved and tool is not None:
            raise UnapprovedToolError(tool, said=self._people.unapproved)
        if self._nobody_decides(planned):
            advice = "" if tool is None else tool.approval_advice
            _log.warning(_NOBODY, planned.name, planned.reason, advice)
            return ReviewedCall(self._unasked(planned))
        why = self._notices.told(planned.reason)
        if tool is not None:
            why = self._people.question(tool, planned.arguments, reason=why)
        return ReviewedCall(planned, self._pending(planned, "approval", why), reminder)

    async def _heard(self, planned: PlannedCall) -> PlannedCall:
        """The call as the hooks leave it."""
        for hooks in self._hooks:
            if planned.result is not None:
                break
            say = partial(hooks.before_tool, self._record.run, planned)
            said = await asked_hooks(hooks, "before_tool", say)
            if isinstance(said, Veto):
                return _told(planned, "denied", self._notices.vetoed.format(reason=said.reason), by="a hook")
            if said is not None:
                planned = await self._planned_with(planned, said)
        return planned

    def _nobody_decides(self, planned: PlannedCall) -> bool:
        return not self._people.anybody and planned.call.id not in self._record.state.decisions

    def _unasked(self, planned: PlannedCall) -> PlannedCall:
        text = self._notices.nobody.format(why=self._notices.told(planned.reason))
        return _told(planned, "denied", text, by="nobody to ask")

    def _begun_before(self, planned: PlannedCall) -> ReviewedCall:
        """A call that had been told to run when the process died."""
        tool = planned.tool
        if planned.result is not None or tool is None:  # it is not there any more, or may not be called
            return ReviewedCall(_told(planned, "unknown", self._notices.unknown))
        if tool.annotations.repeatable:  # it was allowed, or approved, when it began
            self.approved.add(planned.call.id)
            return ReviewedCall(replace(planned, verdict="allow"))
        if self._nobody_decides(planned):
            return ReviewedCall(_told(planned, "unknown", self._notices.unknown))
        return ReviewedCall(planned, self._pending(planned, "unknown", self._notices.begun_before))

    def _pending(self, planned: PlannedCall, kind: Literal["approval", "unknown"], reason: str) -> Pending:
        state = self._record.state
        asked = state.pending.get(planned.call.id) or state.decided_about.get(planned.call.id)
        if asked is not None:
            return asked
        editable = planned.tool if kind == "approval" else None
        return Pending(
            id=planned.call.id,
            kind=kind,
            tool=planned.name,
            arguments=dict(planned.arguments),
            arguments_schema={} if editable is None else dict(editable.args_schema),
            reason=reason,
            for_run=editable is not None and (editable.keeps_approval or not editable.approval_reason),
            of_tool=planned.of_tool,
            fingerprint="" if editable is None else editable.fingerprint,
            deadline=self._people.deadline(),
        )

    async def _planned_with(self, planned: PlannedCall, arguments: Mapping[str, Any]) -> PlannedCall:
        """The call with other arguments, checked anew."""
        call = replace(planned.call, arguments=dict(arguments), unreadable="")
        (again,) = await self._pipeline.plan([call], allowed=self._record.run.request.allowed_tools)
        return again

    async def decided(self, entry: ReviewedCall) -> ReviewedCall:
        """The call when people have decided, if they have to."""
        if entry.pending is None:
            return entry
        decision = await self._people.decision(entry.pending)
        planned, by = entry.planned, decision.by or "a person"
        if decision.action == "deny":
            return ReviewedCall(self._refused(planned, entry.pending, decision))
        note = ""
        if decision.action == "edit":
            planned = await self._planned_with(planned, decision.arguments)
            shown = json.dumps(dict(decision.arguments), ensure_ascii=False)[:_EDITED_SHOWN]
            note = self._notices.edited.format(arguments=shown)
        pending = entry.pending
        lasting = (decision.scope == "run" and pending.for_run) or (pending.of_tool and not decision.keep)
        keep = decision.keep and pending.kind == "approval"
        planned = await self._pipeline.approve(
            planned, by=by, seen=pending.fingerprint, for_run=lasting, keep=keep
        )
        if planned.result is None:
            self.approved.add(planned.call.id)
        return ReviewedCall(planned, reminder=entry.reminder, note=note, lasting=lasting)

    def _refused(self, planned: PlannedCall, pending: Pending, decision: Decided) -> PlannedCall:
        if pending.kind == "unknown":
            return _told(planned, "unknown", self._notices.unknown, by=decision.by or "a person")
        if was_refused_by_time(decision):
            return _told(planned, "denied", self._notices.nobody_answered, by=decision.by or "a person")
        reason = self._notices.reason.format(text=decision.reason) if decision.reason else ""
        return _told(
            planned, "denied", self._notices.refused.format(reason=reason), by=decision.by or "a person"
        )


def _told(planned: PlannedCall, status: CallStatus, text: str, *, by: str = "") -> PlannedCall:
    """A call that does not run, with what the model is told of it."""
    output = ToolOutput(text, is_error=True)
    message = output.message(planned.call.id)
    result = CallResult(
        call_id=planned.call.id,
        tool=planned.tool_name,
        status=status,
        output=output,
        message=message,
        stages=planned.stages,
    )
    return replace(planned, verdict="deny", reason=text, result=result, by=by or planned.by)
