"""Run executor: start or resume a run, apply commands, pause and end it.

Also: the recorder of its events, and the human-in-the-loop broker, which asks people and waits for commands
or for the program's `approve` function.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from loom_core.errors import ConfigError, LoomError, StoreError, unwrap_group
from loom_core.observability.log_fields import logging_with
from loom_core.observability.propagation import extract_context, trace_id_of
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.observability.tracing import AttributeValue, record_failure, span
from loom_core.runs.commands import (
    NO_ONE_IN_TIME,
    Abort,
    ApprovalDecision,
    InputResponse,
    OperatorMessage,
    Pause,
    Reply,
    Resume,
    Retry,
    deny_by_timeout,
    revives,
)
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import TRACE, caller_name
from loom_core.runs.stopwatch import Stopwatch
from loom_core.tools.interface import QuestionAnswer

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from opentelemetry.context import Context

    from loom_core.observability.log_fields import ContextField
    from loom_core.observability.spans import SpanForm
    from loom_core.runs.commands import ApproveFunction, Command, HumanInputPolicy
    from loom_core.runs.events import EventType
    from loom_core.runs.journal import Journal, RunLog
    from loom_core.runs.run import Pending, Run, RunStatus, RunUsage
    from loom_core.tools.interface import Tool

__all__ = ["HumanBroker", "RecordOutcome", "RecordedState", "RunExecutor", "RunRecorder", "run_span"]

_log = logging.getLogger(__name__)


class RecordedState(Protocol):
    """State of a run, as far as human input is concerned; only journaled events change it."""

    @property
    def pending(self) -> dict[str, Pending]:
        """Unanswered requests to people, by id."""
        ...

    @property
    def decisions(self) -> Mapping[str, ApprovalDecision]:
        """Their decisions, by id."""
        ...

    @property
    def calls(self) -> Container[str]:
        """Ids of the calls whose decisions are stored; other requests are about calls inside a call."""
        ...

    def add_pending(self, pending: Pending) -> None:
        """Add a pending request to people."""
        ...

    def apply_decision(self, decision: ApprovalDecision) -> None:
        """Apply their decision."""
        ...


_State = TypeVar("_State", bound=RecordedState)


class RunRecorder(ABC, Generic[_State]):
    """Recorder of the events of one run: each method adds an event and applies it to `state`.

    Events are committed by the next `commit`, or earlier in the background.

    Attributes:
        state: the state that the run resumes from.
        stopwatch: counts the run's working time.
    """

    def __init__(self, log: RunLog, state: _State) -> None:
        self.state = state
        self.stopwatch = Stopwatch(log.run.spent.seconds)
        self._log = log
        self._spent = log.run.spent
        self._paused = log.run.status == "paused"

    @property
    def run(self) -> Run:
        """The run in its current state."""
        return self._log.run

    @property
    def journal(self) -> Journal:
        """The journal that has the run."""
        return self._log.journal

    @property
    @abstractmethod
    def spent(self) -> RunUsage:
        """Budget spent so far."""

    @property
    @abstractmethod
    def granted_from(self) -> RunUsage:
        """Budget spent when the current budget was granted."""

    @property
    def paused(self) -> bool:
        """Whether the run is paused: nothing new may start."""
        return self._paused

    @abstractmethod
    def record_message(self, text: str) -> None:
        """Record a message of the user."""

    @abstractmethod
    def record_answer(self, answered: InputResponse) -> None:
        """Record the answer to a question of a tool."""

    @abstractmethod
    def record_resume(self, by: str) -> None:
        """Record that the run resumes: after a pause, or after its end."""

    async def commit(self, *, durable: bool = False) -> None:
        """Wait until all events are in the file; see `RunLog.commit`."""
        await self._log.commit(durable=durable)

    async def save_blob(self, content: bytes, media_type: str) -> str:
        """Save data that is too large for an event; return its address."""
        number = await self._log.save_blob(content, media_type)
        return f"loom://runs/{self.run.id}/blobs/{number}"

    def record_progress(self, id_: str, done: float, total: float | None, message: str) -> None:
        """Record the progress of a call."""
        self._log.add("tool_progress", {"call_id": id_, "done": done, "total": total, "message": message})

    def record_request(self, pending: Pending) -> None:
        """Record a request to people."""
        self.state.add_pending(pending)
        shown, state = self._to_event_form(pending), self._state_of_request(pending)
        self._add("approval_required", {"pending": asdict(shown)}, state, **self._waiting_changes())

    def record_decision(self, decision: ApprovalDecision) -> None:
        """Record a decision of people."""
        self.state.apply_decision(decision)
        payload = {"call_id": decision.id, "action": decision.action, "by": decision.by}
        payload |= {"reason": decision.reason, "scope": decision.scope}
        self._add("approval_decided", payload, asdict(decision), **self._waiting_changes())

    def close_question(self, id_: str, *, action: str, by: str, reason: str = "") -> None:
        """Record that a question is closed: it was answered, or no tool waits for the answer any more."""
        self.state.pending.pop(id_, None)
        payload = {"call_id": id_, "action": action, "by": by, "reason": reason, "scope": "once"}
        self._add("approval_decided", payload, None, **self._waiting_changes())

    def record_operator_message(self, said: OperatorMessage) -> None:
        """Record a message of an operator, who has the conversation now; after its end, only the message."""
        payload = {"call_id": said.id, "by": said.by, "text": said.text}
        before = self.state.pending.get(said.id)
        if before is None:
            self._add("operator_message", payload, None)
            return
        taken = before.taken(said.by, replied=bool(said.text))
        self.state.add_pending(taken)
        self._add("operator_message", payload, asdict(taken), **self._waiting_changes())

    def record_pause(self, by: str) -> None:
        """Record that the run is paused: nothing new starts until it is resumed."""
        self._paused = True
        self._add("paused", {"by": by}, None, **self._waiting_changes(), spent=self.spent)

    def record_failure(self, error: LoomError, *, failure: str, output: str) -> None:
        """Record that the run failed."""
        payload = {"message": error.message, "advice": error.advice, "failure": failure}
        self._end("error", payload, "failed", output=output, problem=str(error))

    def _state_of_request(self, pending: Pending) -> dict[str, Any] | None:
        """Return what a crash leaves of a request: nothing of a tool's question, which it asks again."""
        return asdict(pending) if pending.id in self.state.calls else None

    def _to_event_form(self, pending: Pending) -> Pending:
        """Return the request to people in the form of its event."""
        return replace(pending, arguments_schema={})  # it may be long, and says nothing about the call

    def _end(self, type_: EventType, payload: dict[str, Any], status: RunStatus, **changes: object) -> None:
        """Record the end of the run, whatever its state says."""
        self.stopwatch.stop()
        self._paused = False
        self._add(type_, payload, None, status=status, pending=(), spent=self.spent, **changes)

    def _waiting_changes(self) -> dict[str, object]:
        """Return the pending questions and the resulting status; the clock stops while the run waits."""
        pending = tuple(self.state.pending.values())
        status: RunStatus = "paused" if self._paused else "input_required" if pending else "working"
        if status == "working":
            self.stopwatch.start()
        else:
            self.stopwatch.stop()
        return {"status": status, "pending": pending}

    def _add(self, type_: EventType, payload: dict[str, Any], state: object, **changes: object) -> None:
        self._log.add(type_, payload, state=state, **changes)


class HumanBroker:
    """Human-in-the-loop broker of one run."""

    def __init__(self, record: RunRecorder[Any], asking: HumanInputPolicy, group: TaskGroup) -> None:
        self._record = record
        self._asking = asking
        self._group = group
        self._answers: dict[str, QuestionAnswer] = {}
        self._said: dict[str, anyio.Event] = {}

    @property
    def has_approver(self) -> bool:
        """Whether there is a person to ask."""
        return self._asking.has_approver

    @property
    def unapproved(self) -> str:
        """Note for people about tools that no operator has approved; see `HumanInputPolicy`."""
        return self._asking.unapproved

    def deadline(self) -> float | None:
        """Return the deadline of a request that is made now."""
        return self._asking.deadline()

    def phrase_question(self, tool: Tool, arguments: Mapping[str, Any], *, reason: str) -> str:
        """Return the question about a call; `reason` says why, for operators."""
        confirmation = self._asking.confirmation
        return reason if confirmation is None else confirmation(tool, arguments)

    def ask(self, pending: Pending) -> None:
        """Send a request, and do not wait. A request from before a crash is not shown to people again."""
        self._said[pending.id] = anyio.Event()
        if pending.id not in self._record.state.pending:
            self._record.record_request(pending)
        if self._asking.approve is not None and pending.for_user:
            recorded = self._record.state.pending[pending.id]
            self._group.start_soon(self._call_approver, self._asking.approve, recorded)

    def apply_response(self, said: ApprovalDecision | InputResponse) -> None:
        """Apply a decision or an answer. Ignore it if nothing waits for it, or it was decided before."""
        pending = self._record.state.pending.get(said.id)
        if pending is None or pending.takes_answer != isinstance(said, InputResponse):
            return
        if isinstance(said, InputResponse):
            self._answers[said.id] = QuestionAnswer(said.action, said.content)
            self._record.record_answer(said)
        elif said.id in self._record.state.calls:
            self._record.record_decision(said)
            self._decide_others(pending, said)
        else:  # a call inside a call
            self._answers[said.id] = _to_answer(said)
            self._record.close_question(said.id, action=said.action, by=said.by, reason=said.reason)
        if said.id in self._said:
            self._said[said.id].set()

    def update_deadlines(self) -> None:
        """Wake what waits for operators: a message has changed their deadlines."""
        for pending in self._record.state.pending.values():
            if pending.kind == "operator" and pending.id in self._said:
                self._said[pending.id].set()

    def _decide_others(self, decided: Pending, said: ApprovalDecision) -> None:
        """Approve the other pending calls that the decision covers: same tool, same fingerprint."""
        if said.action == "deny":
            return
        for other in list(self._record.state.pending.values()):
            same = (other.tool, other.fingerprint) == (decided.tool, decided.fingerprint)
            all_of_it = said.scope == "run" and decided.for_run and other.for_run
            if same and (all_of_it or (decided.of_tool and other.of_tool)):
                self._record.record_decision(replace(said, id=other.id, action="approve", arguments={}))
                if other.id in self._said:
                    self._said[other.id].set()

    async def wait_for_decision(self, pending: Pending) -> ApprovalDecision:
        """Wait for the decision about a call; after the deadline, return a denial."""
        decisions = self._record.state.decisions
        if pending.id not in decisions:
            await self.wait_for_response(pending)
        if pending.id not in decisions:
            self._record.record_decision(deny_by_timeout(pending.id))
        return decisions[pending.id]

    async def request_input(self, pending: Pending) -> QuestionAnswer:
        """Ask the question of a tool, and wait for the answer."""
        if not self.has_approver:
            return QuestionAnswer("cancel")
        self.ask(pending)
        try:
            await self.wait_for_response(pending)
        finally:
            if pending.id not in self._answers:
                late = pending.deadline is not None and time() >= pending.deadline
                self._record.close_question(pending.id, action="cancel", by=NO_ONE_IN_TIME if late else "")
        return self._answers.get(pending.id, QuestionAnswer("cancel"))

    async def wait_for_response(self, pending: Pending) -> None:
        """Wait for the response to a request, or for its deadline."""
        left = None if pending.deadline is None else max(pending.deadline - time(), 0.0)
        with anyio.move_on_after(left):
            await self._said[pending.id].wait()

    async def _call_approver(self, approve: ApproveFunction, pending: Pending) -> None:
        asked = approve(pending)
        if not inspect.isawaitable(asked):  # pyright: ignore[reportUnnecessaryComparison]
            raise ConfigError("`approve` is not `async`.", advice="Define it with `async def`.")
        said = await asked
        if isinstance(said, bool):
            said = _to_response(pending, yes=said)
        if not isinstance(said, ApprovalDecision | InputResponse):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"`approve` has returned {said!r}.",
                advice="Let it return True, False, or an `ApprovalDecision` or `InputResponse` with the id "
                "of the request.",
            )
        self.apply_response(said)


def _to_answer(decision: ApprovalDecision) -> QuestionAnswer:
    """Convert a decision about a call to the answer for the tool that asked; see `QuestionAnswer`."""
    if decision.action == "deny":
        return QuestionAnswer("decline", {"reason": decision.reason})
    kept = {} if decision.keep else {"keep": False}
    return QuestionAnswer(
        "accept", {"arguments": decision.arguments, **kept} if decision.action == "edit" else kept
    )


def _to_response(pending: Pending, *, yes: bool) -> ApprovalDecision | InputResponse:
    if pending.takes_answer:
        answer: Literal["accept", "decline"] = "accept" if yes else "decline"
        return InputResponse(id=pending.id, action=answer)
    return ApprovalDecision(id=pending.id, action="approve" if yes else "deny")


_R = TypeVar("_R", bound=RunRecorder[Any])


class RunExecutor(ABC, Generic[_R]):
    """Run executor: executes one run whose log this process holds; see `Executor`.

    The next action always follows from the journaled events, so a run resumes after a crash where it
    stopped. A pause lets running work finish and starts nothing new; the run does not end either. An abort
    cancels running work; in a flow, work with outside effects gets a moment to finish. A run that can be
    parked is released while it waits for people.

    Args:
        log: the log of the claimed run.
        record: the recorder of its events.
        asking: the policy for human input.

    Attributes:
        span_form: the kind of span in traces.
    """

    span_form: ClassVar[SpanForm]

    def __init__(self, log: RunLog, record: _R, *, asking: HumanInputPolicy) -> None:
        self._log = log
        self._record = record
        self._asking = asking
        self._people: HumanBroker | None = None
        self._work = anyio.CancelScope()
        self._resumed = anyio.Event()
        self._abort: Abort | None = None
        self._leaving = False
        self._parked = False

    async def execute(self) -> Run:
        """Execute the run until it ends or is parked; return its state then.

        The run's own errors are in `Run.problem`.

        Raises:
            StoreError: the journal cannot be written; the run stays as it is there.
            Exception: a component raised an exception other than `LoomError`; the run has failed with it.
        """
        run = self._record.run
        known: dict[ContextField, str] = {
            "caller": caller_name(run),
            "conversation": run.request.session_id,
            "run_id": run.id,
        }
        with logging_with(known, fresh=True), run_span(self.span_form, self._record.run) as told:
            while await self._execute_once():  # also applies commands that came just as the run ended
                await self._record.commit()
            told(self._record.run)
        return self._record.run

    async def detach(self) -> None:
        """Start nothing new, and wait until no call is running that must not be repeated, in child runs too.

        The caller can then cancel the execution, and no call needs a decision afterwards.
        """
        self._leaving = True
        await self._wait_for_calls()

    @abstractmethod
    async def _advance(self, people: HumanBroker, group: TaskGroup) -> None:
        """Execute step by step, from the start to the end. An abort or the end of the time cancels this."""

    @abstractmethod
    async def _fail(self, error: LoomError) -> None:
        """Record that the run failed."""

    @abstractmethod
    async def _end_aborted(self, abort: Abort) -> None:
        """Record that the run was aborted."""

    @abstractmethod
    def _revive(self, order: Command) -> None:
        """Resume the run after its end."""

    @abstractmethod
    def _timeout_error(self) -> LoomError:
        """Return the error for a run that exceeded its time limit."""

    @abstractmethod
    async def _wait_for_calls(self) -> None:
        """Wait until no call is running that must not be repeated, in child runs too."""

    async def _execute_once(self) -> bool:
        """Execute until the run ends; return whether there was anything to do."""
        goes_on = True
        try:
            async with anyio.create_task_group() as group:
                self._people = HumanBroker(self._record, self._asking, group)
                goes_on = await self._start_or_resume()
                if goes_on:
                    group.start_soon(self._listen)
                    await self._run_to_end(group, self._people)
                group.cancel_scope.cancel()
        except Exception as raised:  # noqa: BLE001 - whatever it is, the run must record that it failed
            error = unwrap_group(raised)
            if isinstance(error, StoreError):
                raise error from None
            if isinstance(error, LoomError):
                await self._fail(error)
            else:
                _log.error("run %s failed unexpectedly", self._record.run.id, exc_info=error)
                said = f"The run failed unexpectedly: {type(error).__name__}."
                await self._fail(LoomError(said, advice="See the log for details."))
                await self._record.commit()
                raise error from None
        return goes_on

    async def _start_or_resume(self) -> bool:
        """Start the run, or resume it with the commands that came since; return whether there is work."""
        run, record = self._record.run, self._record
        self._work = anyio.CancelScope()
        orders = self._log.take_commands()
        if self._parked and not orders:
            return False
        self._parked = False
        ended = run.status in FINAL_STATUSES
        if ended:
            self._abort = None
        elif self._abort is not None:  # it came just as the run was parked
            self._work.cancel()
        reviving = next((order for order in orders if revives(order, run.status)), None)
        if ended and not self._is_revived_by(reviving):
            return False
        if run.status == "working":
            record.stopwatch.start()
        self._limit_time()
        asked: Mapping[str, Pending] = record.state.pending
        for pending in run.pending:
            if pending.id not in asked:  # the tool that asked does not exist any more
                record.close_question(pending.id, action="cancel", by="restart")
        if ended and reviving is not None:
            self._revive(reviving)
            self._limit_time()
        for order in orders:
            self._apply_command(order)
        await record.commit()
        return True

    def _is_revived_by(self, reviving: Command | None) -> bool:
        """Whether a command revives the ended run."""
        return reviving is not None

    def _limit_time(self) -> None:
        seconds = self._record.run.request.budget.seconds
        if seconds is not None:
            self._record.stopwatch.set_limit(self._record.granted_from.seconds + seconds)

    async def _listen(self) -> None:
        while True:
            await self._log.wait_for_command()
            if self._record.run.status in FINAL_STATUSES:  # it just ended: leave the command for a resume
                return
            self._apply_commands()
            await self._record.commit()
            if self._abort is not None:  # likewise
                return

    def _apply_commands(self) -> None:
        for order in self._log.take_commands():
            self._parked = False
            self._apply_command(order)

    def _park(self) -> None:
        """Park the run, as everything in it waits for people: their commands cause it to be resumed.

        If the program has an `approve` function, its answer is awaited here instead.
        """
        if self._asking.approve is None:
            self._parked = True
            self._work.cancel()

    def _apply_command(self, order: Command) -> None:
        record = self._record
        match order:
            case ApprovalDecision() | InputResponse():
                if self._people is not None:
                    self._people.apply_response(order)
            case Reply():
                record.record_message(order.text)
                self._update_deadlines()
            case OperatorMessage():
                record.record_operator_message(order)
                self._update_deadlines()
            case Pause():
                if not record.paused:
                    self._resumed = anyio.Event()
                    record.record_pause(order.by)
            case Resume() | Retry():
                if record.paused:
                    record.record_resume(order.by)
                    self._resumed.set()
            case Abort():
                self._abort = order
                self._stop()

    def _update_deadlines(self) -> None:
        if self._people is not None:
            self._people.update_deadlines()

    def _stop(self) -> None:
        """Cancel running work, as the run is aborted."""
        self._work.cancel()

    async def _wait_while_paused(self) -> None:
        """Wait until the run is not paused."""
        while self._record.paused:
            await self._resumed.wait()
        if self._leaving:
            await anyio.sleep_forever()

    async def _run_to_end(self, group: TaskGroup, people: HumanBroker) -> None:
        with self._work:
            self._record.stopwatch.cancel_at_limit(self._work)
            await checkpoint_if_cancelled()  # it may have been aborted before it was executed
            await self._advance(people, group)
        if self._record.run.status in FINAL_STATUSES:
            return
        if self._abort is not None:
            await self._end_aborted(self._abort)
        elif self._work.cancelled_caught and self._record.stopwatch.is_expired:
            raise self._timeout_error()


RecordOutcome: TypeAlias = "Callable[[Run], None]"
"""Records the outcome of a run in its span."""


@contextmanager
def run_span(form: SpanForm, run: Run) -> Generator[RecordOutcome]:
    """Open the span of a run while it is executed here.

    Its parent is the request or the call that caused the execution. A run that is resumed without one, such
    as after a crash, belongs to the trace of its original request; a run that another trace resumes, such as
    an approval's, is linked to the original trace.

    Args:
        form: `INVOKE_AGENT` or `INVOKE_WORKFLOW`.
        run: the run.
    """
    asked = extract_context(run.request.metadata.get(TRACE))
    current = trace_id_of()
    parent = asked if not current else None
    links: Sequence[Context] = [asked] if asked is not None and current not in {0, trace_id_of(asked)} else ()
    name = "gen_ai.agent.name" if form is INVOKE_AGENT else "gen_ai.workflow.name"
    attributes: dict[str, AttributeValue | None] = {
        "gen_ai.operation.name": form.name,
        name: run.request.profile,
        "gen_ai.conversation.id": run.request.session_id,
        "loom.run.id": run.id,
        "loom.run.depth": run.request.depth,
    }
    with span(form, attributes, parent=parent, links=links) as started:

        def record_outcome(ended: Run) -> None:
            if not started.is_recording():
                return
            spent = ended.spent
            said: dict[str, AttributeValue] = {
                "loom.run.status": ended.status,
                "loom.run.tool_calls": spent.tool_calls,
            }
            if form is INVOKE_AGENT:
                said["loom.run.iterations"] = spent.iterations
                said["gen_ai.usage.input_tokens"] = spent.usage.input_tokens
                said["gen_ai.usage.output_tokens"] = spent.usage.output_tokens
                if spent.usage.cost is not None:
                    said["loom.usage.cost"] = spent.usage.cost
            started.set_attributes(said)
            if ended.status == "failed":
                record_failure(started, "run_failed")

        yield record_outcome
