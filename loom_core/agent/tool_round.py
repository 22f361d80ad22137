"""Tool round: review the tool calls of one answer, run them in the model's order, and record the results."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import anyio

from loom_core.agent.calling_run import USAGE_KEY
from loom_core.agent.hooks import HookError, Veto, call_hook
from loom_core.agent.loop_guard import with_reminder
from loom_core.agent.spending import remaining_calls
from loom_core.errors import LoomError
from loom_core.llm.messages import TextPart
from loom_core.runs.commands import is_denied_by_timeout
from loom_core.runs.run import Pending, RunUsage
from loom_core.tools.calls import CallResult, CallStatus, PlannedCall
from loom_core.tools.depth import DEPTH_META_KEY, inherit_depth
from loom_core.tools.interface import ToolOutput
from loom_core.tools.permission.permissions import UnapprovedToolError, identity

if TYPE_CHECKING:
    from loom_core.agent.hooks import Hooks
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.agent.notices import Notices
    from loom_core.agent.recorder import AgentRunRecorder, OpenCall
    from loom_core.runs.commands import ApprovalDecision
    from loom_core.runs.executor import HumanBroker
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.execution.retries import CallRetry, ToolRetries
    from loom_core.tools.interface import Question, QuestionAnswer, Tool

__all__ = ["CallReview", "LoopStoppedError", "ToolRound"]

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.25  # between two events of one call
_EDITED_SHOWN = 2000  # characters
_NO_APPROVER = (
    "a call of %s was not made, as it needs an approval and no person can be asked (%s); give the agent "
    "`approve`, or allow the call by `permissions`. %s"
)


class LoopStoppedError(LoomError):
    """The model repeats the same call, despite a reminder."""


class ToolRound:
    """Tool round: gives every call of the last answer a result, and hosts the running calls.

    It is their `CallHost`, `RetryHost` and `TaskHost`.

    All calls are planned, and all approvals requested, before any call runs; the calls before the first one
    that needs a decision run meanwhile.
    """

    def __init__(self, review: CallReview, *, gate: Callable[[], Awaitable[None]], deps: object) -> None:
        """Create the tool round.

        Args:
            review: decides about the calls.
            gate: waits while the run is paused.
            deps: the program's dependencies, for the tools.
        """
        self.retries = review.retries
        self._review = review
        self._record = review.record
        self._people = review.people
        self._gate = gate
        self._deps = deps
        self._running: dict[str, ReviewedCall] = {}
        self._shown: dict[str, float] = {}
        self._questions = 0
        self._unrepeatable: set[str] = set()  # ids of the running calls that must not be repeated
        self._quiet = anyio.Event()
        self._leaving = False

    async def run(self) -> None:
        """Run the tool round; see the class.

        Raises:
            LoopStoppedError: see there; the calls that had not started have no result.
            HookError: a hook raised an error.
            StoreError: the journal cannot be written.
        """
        await self._run_in_order(await self._review.review())

    async def detach(self) -> None:
        """Start no further call, and wait until no call is running that must not be repeated."""
        self._leaving = True
        while self._unrepeatable:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def _run_in_order(self, entries: Sequence[ReviewedCall]) -> None:
        """Run the calls in order; concurrently if the tools allow it and no decision is pending."""
        decisions = self._record.state.decisions
        for entry in entries:
            if entry.pending is not None and entry.pending.id not in decisions:
                self._people.ask(entry.pending)
        waiting = deque(entries)
        while waiting:
            batch = [await self._review.resolve(waiting.popleft())]
            while waiting and not batch[-1].alone:
                pending = waiting[0].pending
                if pending is not None and pending.id not in decisions:
                    break
                following = await self._review.resolve(waiting.popleft())
                if following.alone:
                    waiting.appendleft(following)
                    break
                batch.append(following)
            await self._run_batch(batch)

    async def _run_batch(self, batch: Sequence[ReviewedCall]) -> None:
        await self._gate()
        self._running = {entry.planned.call.id: entry for entry in batch}
        depth = self._record.run.request.depth + 1
        with inherit_depth({DEPTH_META_KEY: depth}):
            await self._review.pipeline.execute(
                [entry.planned for entry in batch],
                host=self,
                approved=frozenset(self._review.approved),
                retrying=self,
                tasks=self if self._record.journal.is_durable else None,
                context=self._record.context(self._deps),
            )

    @property
    def can_ask(self) -> bool:
        """See `CallHost`."""
        return self._people.has_approver

    async def record_start(self, planned: PlannedCall) -> None:
        """See `CallHost`. If the call must not be repeated, the event is also flushed to the disk."""
        if self._leaving:
            await anyio.sleep_forever()
        tool, lasting = planned.tool, self._running[planned.call.id].lasting
        approved = identity(tool) if tool is not None and lasting else None
        self._record.record_call_start(planned.call, planned.name, approved=approved)
        repeatable = tool is not None and tool.annotations.repeatable
        if not repeatable:
            self._unrepeatable.add(planned.call.id)
        await self._record.commit(durable=not repeatable)

    async def record_result(self, planned: PlannedCall, result: CallResult) -> None:
        """See `CallHost`. An aborted call gets its result from the agent loop, which knows the reason."""
        try:
            await self._record_result(planned, result)
        finally:
            self._note_quiet(result.call_id)

    def _note_quiet(self, call_id: str) -> None:
        self._unrepeatable.discard(call_id)
        if not self._unrepeatable:
            self._quiet.set()

    def task_of(self, planned: PlannedCall) -> str:
        """See `TaskHost`."""
        return self._record.state.calls[planned.call.id].task_id

    async def record_task(self, planned: PlannedCall, task_id: str) -> None:
        """See `TaskHost`. The process may be left then: the call goes on without it."""
        self._record.record_call_task(planned.call.id, planned.name, task_id)
        await self._record.commit(durable=True)
        self._note_quiet(planned.call.id)

    @property
    def seconds_left(self) -> float:
        """See `RetryHost`."""
        return self._record.stopwatch.seconds_left

    def failed_attempts(self, planned: PlannedCall) -> int:
        """See `RetryHost`."""
        return self._record.state.calls[planned.call.id].failed_attempts

    async def wait_for_retry(self, planned: PlannedCall, retry: CallRetry) -> None:
        """See `RetryHost`; a paused run starts no attempt."""
        self._record.record_call_retry(planned.call.id, planned.name, retry)
        self._note_quiet(planned.call.id)
        await self._record.commit()
        await anyio.sleep(retry.wait)
        await self._gate()

    async def _record_result(self, planned: PlannedCall, result: CallResult) -> None:
        if result.status == "aborted":
            return
        entry, result = self._running[result.call_id], await self._review_result(planned, result)
        message = result.message
        if entry.note:
            message = replace(message, parts=(*message.parts, TextPart(f"\n\n{entry.note}")))
        if self._review.guard is not None:
            tool = planned.tool
            changes = tool is not None and not tool.annotations.read_only
            self._review.guard.after(planned.call, message.text, failed=message.failed, changes=changes)
        if entry.reminder:
            message = with_reminder(message, entry.reminder)
        spent = result.output.metadata.get(USAGE_KEY)
        self._record.record_call_end(result, message, spent=spent if isinstance(spent, RunUsage) else None)
        for hooks in self._review.hooks:
            await call_hook(hooks, "after_tool", hooks.after_tool, self._record.run, planned, result)

    async def _review_result(self, planned: PlannedCall, result: CallResult) -> CallResult:
        """Let the hooks change or veto a result; if one raises or is cancelled, record it as withheld."""
        for hooks in self._review.hooks:
            run = self._record.run
            try:
                said = await call_hook(hooks, "before_result", hooks.before_result, run, planned, result)
            except BaseException as error:
                reason = error.message if isinstance(error, HookError) else "it was not reviewed."
                withheld = self._review.notices.withheld.format(reason=reason)
                self._record.record_call_end(_with_text(result, withheld))
                raise
            if isinstance(said, Veto):
                said = self._review.notices.withheld.format(reason=said.reason)
            if said is not None:
                result = _with_text(result, said)
        return result

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        """See `CallHost`; at most four events per second for each call."""
        now = monotonic()
        if now - self._shown.get(planned.call.id, -_PROGRESS_SECONDS) >= _PROGRESS_SECONDS:
            self._shown[planned.call.id] = now
            self._record.record_progress(planned.call.id, done, total, message)

    async def ask(self, planned: PlannedCall, question: Question) -> QuestionAnswer:
        """See `CallHost`."""
        self._questions += 1
        where = f" ({question.url})" if question.url else ""
        origin = f"{question.origin}: " if question.origin else ""
        about_call = bool(question.tool)
        pending = Pending(
            id=f"{planned.call.id}.{self._questions}",
            kind="unknown" if question.in_doubt else "approval" if about_call else "question",
            tool=question.tool or planned.name,
            arguments=dict(question.arguments if about_call else planned.arguments),
            arguments_schema=dict(question.arguments_schema),
            reason=f"{origin}{question.text}{where}",
            schema=dict(question.schema),
            deadline=self._people.deadline(),
        )
        return await self._people.request_input(pending)

    async def spill(self, planned: PlannedCall, text: str) -> str:
        """See `CallHost`."""
        return await self._record.save_blob(text.encode("utf-8", "replace"), "text/plain; charset=utf-8")


@dataclass(slots=True)
class ReviewedCall:
    """A reviewed call.

    Attributes:
        planned: the planned call, or its result if it does not run.
        pending: the request to people about it, if any.
        reminder: reminder of the loop guard, to append to the result.
        note: another note for the model, to append to the result.
        lasting: whether a person has approved its tool for the rest of the run.
    """

    planned: PlannedCall
    pending: Pending | None = None
    reminder: str = ""
    note: str = ""
    lasting: bool = False

    @property
    def alone(self) -> bool:
        """Whether the call must not run concurrently with others."""
        tool = self.planned.tool
        return self.planned.result is None and tool is not None and not tool.is_concurrency_safe


@dataclass(slots=True, kw_only=True)
class CallReview:
    """Review of calls: decides for each call whether it runs, and with which arguments.

    A call whose outcome is unknown after a crash is repeated if that is harmless; else people decide.

    Attributes:
        record: records the events.
        pipeline: plans and runs the calls, by permissions and schemas.
        people: asks people.
        guard: the loop guard.
        hooks: the program's hooks.
        notices: messages to the model about calls that are not made.
        retries: the retry policy.
        approved: ids of the calls that people approved, now or before a crash.
    """

    record: AgentRunRecorder
    pipeline: ToolPipeline
    people: HumanBroker
    guard: LoopGuard | None
    hooks: Sequence[Hooks]
    notices: Notices
    retries: ToolRetries
    approved: set[str] = field(default_factory=set[str])

    async def review(self) -> list[ReviewedCall]:
        """Review the open calls, up to the point where people have to be asked.

        Raises:
            LoopStoppedError: see there.
            UnapprovedToolError: see there.
            HookError: a hook raised an error.
        """
        open_calls = self.record.state.open_calls
        request = self.record.run.request
        planned = await self.pipeline.plan([call.part for call in open_calls], allowed=request.allowed_tools)
        self._announce(planned)
        left = remaining_calls(request.budget, self.record.spent, granted_from=self.record.state.granted_from)
        entries: list[ReviewedCall] = []
        for call, each in zip(open_calls, planned, strict=True):
            entry = await self._review_call(call, each)
            if entry.planned.result is None and not call.started:
                left -= 1
                if left < 0:
                    text = self.notices.no_calls_left.format(most=request.budget.tool_calls)
                    entry = ReviewedCall(_refuse(each, "denied", text))
            entries.append(entry)
        return entries

    def _announce(self, planned: Sequence[PlannedCall]) -> None:
        if not self.record.state.announced:
            self.record.record_calls(
                [
                    {"call_id": each.call.id, "tool": each.name, "arguments": dict(each.call.arguments)}
                    for each in planned
                ]
            )

    async def _review_call(self, call: OpenCall, planned: PlannedCall) -> ReviewedCall:
        """Review one call, up to the point where people have to be asked."""
        if call.started:
            return self._review_interrupted(planned, in_doubt=call.running and not call.task_id)
        planned = await self._apply_hooks(planned)
        if planned.result is not None:
            return ReviewedCall(planned)
        if self._has_refused_too_often(planned):
            text = self.notices.no_retries_left.format(tool=planned.call.name)
            return ReviewedCall(_refuse(planned, "denied", text))
        reminder = ""
        if self.guard is not None:
            verdict = self.guard.before(call.part)
            if verdict.action in {"remind", "refuse", "stop"}:
                self.record.record_loop(call.part.id, planned.tool_name, verdict)
            if verdict.action == "stop":
                raise LoopStoppedError(verdict.text, advice="Rephrase the goal.")
            if verdict.action == "refuse":
                return ReviewedCall(_refuse(planned, "denied", verdict.text))
            reminder = verdict.text
        if planned.verdict == "allow":
            return ReviewedCall(planned, reminder=reminder)
        tool = planned.tool
        if self.people.unapproved and planned.is_unapproved and tool is not None:
            raise UnapprovedToolError(tool, said=self.people.unapproved)
        if tool is not None and self._lacks_approver(planned):
            _log.warning(_NO_APPROVER, planned.name, planned.reason, tool.approval_advice)
            return ReviewedCall(self._deny_without_approver(planned, tool))
        why = self.notices.translate(planned.reason)
        if tool is not None:
            why = self.people.phrase_question(tool, planned.arguments, reason=why)
        return ReviewedCall(planned, self._pending(planned, "approval", why), reminder)

    async def _apply_hooks(self, planned: PlannedCall) -> PlannedCall:
        for hooks in self.hooks:
            if planned.result is not None:
                break
            said = await call_hook(hooks, "before_tool", hooks.before_tool, self.record.run, planned)
            if isinstance(said, Veto):
                return _refuse(planned, "denied", self.notices.vetoed.format(reason=said.reason), by="a hook")
            if said is not None:
                planned = await self._replan(planned, said)
        return planned

    def _has_refused_too_often(self, planned: PlannedCall) -> bool:
        """Whether the tool has asked for other arguments more often in a row than it may."""
        times = self.record.state.refused_arguments[planned.call.name]
        return planned.tool is not None and times > self.retries.limit_of(planned.tool)

    def _lacks_approver(self, planned: PlannedCall) -> bool:
        return not self.people.has_approver and planned.call.id not in self.record.state.decisions

    def _deny_without_approver(self, planned: PlannedCall, tool: Tool) -> PlannedCall:
        allowed = self.record.run.request.allowed_tools
        others = self.pipeline.read_only_alternatives(tool, allowed=allowed)
        notices = self.notices
        text = notices.no_approver.format(
            why=notices.translate(planned.reason),
            instead=notices.instead.format(tools=", ".join(others)) if others else "",
            how=f" {tool.approval_advice}".rstrip(),
        )
        return _refuse(planned, "denied", text, by="no one to ask")

    def _review_interrupted(self, planned: PlannedCall, *, in_doubt: bool) -> ReviewedCall:
        """Review a call that had started when the process died; `in_doubt` as of `OpenCall.running`."""
        tool = planned.tool
        if planned.result is not None or tool is None:  # the tool is gone, or must not be called
            return ReviewedCall(_refuse(planned, "unknown", self.notices.unknown))
        if tool.annotations.repeatable or not in_doubt:  # it was allowed, or approved, when it started
            self.approved.add(planned.call.id)
            return ReviewedCall(replace(planned, verdict="allow"))
        if self._lacks_approver(planned):
            return ReviewedCall(_refuse(planned, "unknown", self.notices.unknown))
        return ReviewedCall(planned, self._pending(planned, "unknown", self.notices.begun_before))

    def _pending(self, planned: PlannedCall, kind: Literal["approval", "unknown"], reason: str) -> Pending:
        state = self.record.state
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
            deadline=self.people.deadline(),
        )

    async def _replan(self, planned: PlannedCall, arguments: Mapping[str, Any]) -> PlannedCall:
        call = replace(planned.call, arguments=dict(arguments), unreadable="")
        (again,) = await self.pipeline.plan([call], allowed=self.record.run.request.allowed_tools)
        return again

    async def resolve(self, entry: ReviewedCall) -> ReviewedCall:
        """Wait for the decision of people about a call, if needed, and apply it."""
        if entry.pending is None:
            return entry
        decision = await self.people.wait_for_decision(entry.pending)
        planned, by = entry.planned, decision.by or "a person"
        if decision.action == "deny":
            return ReviewedCall(self._deny(planned, entry.pending, decision))
        note = ""
        if decision.action == "edit":
            edited = decision.arguments
            if planned.tool is not None:
                edited = self.pipeline.chosen_arguments(planned.tool, edited)
            planned = await self._replan(planned, decision.arguments)
            shown = json.dumps(dict(edited), ensure_ascii=False)[:_EDITED_SHOWN]
            note = self.notices.edited.format(arguments=shown)
        pending = entry.pending
        lasting = (decision.scope == "run" and pending.for_run) or (pending.of_tool and not decision.keep)
        keep = decision.keep and pending.kind == "approval"
        planned = await self.pipeline.approve(
            planned, by=by, seen=pending.fingerprint, for_run=lasting, keep=keep
        )
        if planned.result is None:
            self.approved.add(planned.call.id)
        return ReviewedCall(planned, reminder=entry.reminder, note=note, lasting=lasting)

    def _deny(self, planned: PlannedCall, pending: Pending, decision: ApprovalDecision) -> PlannedCall:
        if pending.kind == "unknown":
            return _refuse(planned, "unknown", self.notices.unknown, by=decision.by or "a person")
        if is_denied_by_timeout(decision):
            return _refuse(planned, "denied", self.notices.approval_timed_out, by=decision.by or "a person")
        reason = self.notices.reason.format(text=decision.reason) if decision.reason else ""
        return _refuse(
            planned, "denied", self.notices.refused.format(reason=reason), by=decision.by or "a person"
        )


def _with_text(result: CallResult, text: str) -> CallResult:
    """Return a result with another text in place of text, warnings and structured data; images stay."""
    output = replace(result.output, text=text, structured=None, warnings=())
    return replace(result, output=output, message=output.message(result.call_id), blob="")


def _refuse(planned: PlannedCall, status: CallStatus, text: str, *, by: str = "") -> PlannedCall:
    """Return the call as one that does not run, with a message to the model."""
    return planned.refuse(ToolOutput(text, is_error=True), status=status, reason=text, by=by)
