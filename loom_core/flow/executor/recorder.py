"""Recorder of a flow's events, each with its changes to run and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from loom_core.agent.notices import Notices
from loom_core.agent.spending import add_call_usage
from loom_core.flow.executor.state import FlowState, Frame, NextStep
from loom_core.flow.responses.phrases import language_of_run
from loom_core.redaction import redact_log_text, without_secrets
from loom_core.runs.commands import InputResponse
from loom_core.runs.executor import RunRecorder
from loom_core.runs.journal.rows.runs import FINAL_STATUSES
from loom_core.runs.run import Pending, RunStatus, RunUsage
from loom_core.tools.permission.permissions import ToolIdentity
from loom_core.tools.redaction import redact_arguments

if TYPE_CHECKING:
    from loom_core.flow.executor.definition import Digests
    from loom_core.flow.executor.state import StepStatus
    from loom_core.runs.events import EventType
    from loom_core.runs.journal import RunLog, Step

__all__ = ["FlowRecorder", "restore_state"]


class FlowRecorder(RunRecorder[FlowState]):
    """Recorder of the events of one flow's run; each method adds an event and applies it to `state`.

    Attributes:
        state: state of the flow.
    """

    def __init__(self, log: RunLog) -> None:
        super().__init__(log, restore_state(log.steps))

    @property
    def spent(self) -> RunUsage:
        """Usage so far."""
        return replace(self._spent, seconds=self.stopwatch.seconds)

    @property
    def granted_from(self) -> RunUsage:
        """Usage when the time limit was last granted."""
        return RunUsage(seconds=self.state.granted_from)

    def record_route(self, route: Mapping[str, Any]) -> None:
        """Record how the flow was chosen, before it starts."""
        self._log.add("route", dict(route))

    def record_flow_start(self, frame: Frame, *, name: str, message: str, config: str) -> None:
        """Record that a flow starts: that of the run, or a nested one."""
        shown = redact_arguments(frame.inputs, whole=True)
        payload = {"flow_id": frame.flow_id, "name": name, "message": message, "inputs": shown}
        payload |= {"step_id": frame.path.removesuffix("/"), "config": config}
        self._record_frame("flow_start", payload, frame)

    def record_branch_start(self, frame: Frame) -> None:
        """Record that a list of steps inside a step starts, such as a parallel branch."""
        payload = {"step_id": _owner(frame), "branch": frame.number, "status": "start"}
        self._record_frame("branch", payload, frame)

    def _record_frame(self, type_: EventType, payload: dict[str, Any], frame: Frame) -> None:
        self._record(type_, payload, frame.to_json())
        self.state.frames[frame.path] = frame  # the caller goes on with it

    def record_branch_end(self, frame: Frame) -> None:
        """Record that a list of steps inside a step has ended."""
        self._log.add("branch", {"step_id": _owner(frame), "branch": frame.number, "status": frame.ended})

    def record_flow_change(self, config: str, digests: Mapping[str, Digests]) -> None:
        """Record that the configuration has changed, and that the completed steps fit it."""
        self._record("flow_changed", {"config": config}, {"digests": digests})

    def record_inputs(
        self,
        frame: Frame,
        inputs: Mapping[str, Any],
        *,
        answered: str = "",
        decided: str = "",
        back_to: str = "",
    ) -> None:
        """Record inputs that were given or corrected during the run.

        Args:
            frame: frame of their flow.
            inputs: by name.
            answered: the question that they answer; it may be asked again.
            decided: the decision that it came with, likewise.
            back_to: the step to which the flow is rewound; empty if it is not.
        """
        kept = {"path": frame.scope, "inputs": dict(inputs), "answered": answered, "decided": decided}
        payload = {"step_id": frame.path.removesuffix("/"), "names": list(inputs)}
        if back_to:
            kept["back_to"] = payload["back_to"] = back_to
        self._record("inputs", payload, kept)

    def record_step_start(
        self,
        frame: Frame,
        step_id: str,
        what: str,
        *,
        changes: bool = False,
        risky: bool = False,
        approved: ToolIdentity | bool = False,
        tool: str = "",
    ) -> None:
        """Record that a step starts; commit it before the step does anything.

        `what` is its action: `POST https://…`, a tool's name, a question; `changes` and `risky` are those of
        `StepState`; `approved` is the tool if a person has approved it for the rest of the run.
        """
        whole = asdict(approved) if isinstance(approved, ToolIdentity) else approved
        kept = {"path": frame.path, "step": step_id, "changes": changes, "risky": risky, "approved": whole}
        kept["tool"] = tool
        self.state.apply("step_start", {}, kept)
        key, attempt = self.state.key_of(frame, step_id), frame.steps[step_id].attempt
        payload = {"step_id": frame.path + step_id, "key": key, "attempt": attempt, "what": what}
        self._add("step_start", payload, kept)

    def record_step_task(self, frame: Frame, step_id: str, task_id: str) -> None:
        """Record that another server continues the tool call of a step as a task, whose id stays hidden."""
        kept = {"path": frame.path, "step": step_id, "task": task_id}
        self.state.apply("tool_task", {}, kept)
        payload = {"call_id": self.state.key_of(frame, step_id), "tool": frame.steps[step_id].tool}
        self._add("tool_task", payload, kept)

    def record_usage(self, spent: RunUsage) -> None:
        """Count a call or other usage; it is written with the step's result."""
        calls = self._spent.tool_calls + spent.tool_calls
        self._spent = replace(add_call_usage(self._spent, spent), tool_calls=calls)

    def record_step_end(
        self,
        frame: Frame,
        step_id: str,
        *,
        status: StepStatus,
        outputs: Mapping[str, Any],
        problem: str,
        following: NextStep,
        seconds: float,
        said: str = "",
        told: str = "",
        maybe_done: bool = False,
    ) -> None:
        """Record the result of a step.

        The problem may quote a server that echoes a request, so secrets are redacted.
        """
        problem = problem and redact_log_text(problem)
        said = said and without_secrets(said)
        was_pending = self.state.key_of(frame, step_id) in self.state.pending
        payload: dict[str, Any] = {
            "step_id": frame.path + step_id,
            "status": status,
            "outputs": dict(outputs),
            "seconds": round(seconds, 6),
            "problem": problem,
            "next": asdict(following),
        }
        kept = {"path": frame.path, "step": step_id, "maybe_done": maybe_done, "said": said}
        if told:
            kept["told"] = told
        self.state.apply("step_result", payload, kept)
        changes = self._waiting_changes() if was_pending else {}
        self._add("step_result", payload, kept, **changes, spent=self.spent)

    def record_request(self, pending: Pending) -> None:
        """Record a request to people, which begins with the texts of `say` steps that they have not read."""
        super().record_request(replace(pending, reason=self.state.tell(pending.reason)))

    def _state_of_request(self, pending: Pending) -> dict[str, Any]:
        return super()._state_of_request(pending) or {}  # what the user has read is read after a crash, too

    def record_message(self, text: str) -> None:
        """Record a message of the user; an operator who has the conversation has limited time to answer."""
        taken = next((each for each in self.state.pending.values() if each.taken_by), None)
        kept: dict[str, Any] = {}
        if taken is not None and taken.deadline is None:
            kept = asdict(taken.taken(taken.taken_by, replied=False))
        self.state.apply("message_received", {"text": text}, kept)
        self._add("message_received", {"text": text}, kept, **self._waiting_changes())

    def record_answer(self, answered: InputResponse) -> None:
        """Record the answer to a question of the flow or of a tool."""
        if answered.id not in self.state.calls:
            self.close_question(answered.id, action=answered.action, by=answered.by)
            return
        payload, kept = _answer_payload(answered), asdict(answered)
        self.state.apply("approval_decided", payload, kept)
        self._add("approval_decided", payload, kept, **self._waiting_changes())

    def record_resume(self, by: str) -> None:
        """Record that the run resumes, after a pause or its end."""
        payload = {"by": by, "from_status": self.run.status}
        self._paused = False
        if self.run.status in FINAL_STATUSES:
            self._record_resume(payload, {"seconds": self.stopwatch.seconds})
        else:
            self._add("resumed", payload, None, **self._waiting_changes())

    def record_retry(
        self,
        by: str,
        *,
        path: str,
        step_id: str,
        digests: Mapping[str, Digests],
        config: str,
        inputs: Mapping[str, Any],
    ) -> None:
        """Record that the run is retried from a step; its results and those after it are dropped.

        Args:
            by: who retries it.
            path: path of the step's frame, which must exist for a branch or a nested flow.
            step_id: the step; empty for the one that failed.
            digests: current steps of each frame.
            config: version of the configuration.
            inputs: changed inputs of the flow, by name.
        """
        kept: dict[str, Any] = {"seconds": self.stopwatch.seconds, "path": path, "retry": step_id}
        kept |= {"digests": digests, "config": config, "inputs": dict(inputs)}
        payload = {"by": by, "from_status": self.run.status, "step_id": path + step_id, "names": list(inputs)}
        self._paused = False
        self._record_resume(payload, kept)

    def _record_resume(self, payload: dict[str, Any], kept: Mapping[str, Any]) -> None:
        self.state.apply("resumed", payload, kept)
        self._add("resumed", payload, kept, **self._waiting_changes(), output="", structured=None, problem="")

    def record_finish(self, output: str, structured: object) -> None:
        """Record that the run has completed."""
        payload = {"output": output, "structured": structured}
        self._end("flow_finish", payload, "completed", output=output, structured=structured, problem="")

    def record_abort(self, *, by: str, reason: str, output: str) -> None:
        """Record that a user aborted the run."""
        notices = Notices.of(language_of_run(self.run.request))
        problem = notices.describe_abort(by=by, reason=reason)
        self._end("aborted", {"by": by, "reason": reason}, "aborted", output=output, problem=problem)

    def _to_event_form(self, pending: Pending) -> Pending:
        """Hide secret values in a question, except from the person who is asked."""
        return replace(
            super()._to_event_form(pending), arguments=redact_arguments(pending.arguments, whole=True)
        )

    def _end(self, type_: EventType, payload: dict[str, Any], status: RunStatus, **changes: object) -> None:
        told = self.state.tell(str(changes["output"]))
        changes["output"] = told
        if "output" in payload:
            payload["output"] = told
        self.stopwatch.stop()
        self._paused = False
        self._record(type_, payload, {}, status=status, pending=(), spent=self.spent, **changes)

    def _record(
        self, type_: EventType, payload: dict[str, Any], kept: Mapping[str, Any], **changes: object
    ) -> None:
        """Apply an event to the state, and add it to the log with what it keeps for the state."""
        self.state.apply(type_, payload, kept)
        self._add(type_, payload, kept, **changes)


def _answer_payload(answered: InputResponse) -> dict[str, Any]:
    return {
        "call_id": answered.id,
        "action": answered.action,
        "by": answered.by,
        "reason": "",
        "scope": "once",
        "content": redact_arguments(answered.content, whole=True),
    }


def _owner(frame: Frame) -> str:
    """Return the path of the step that a list of steps belongs to."""
    return frame.path.rsplit("/", 2)[0]


def restore_state(steps: Sequence[Step]) -> FlowState:
    """Restore the state from the steps of a journal."""
    state = FlowState()
    for step in steps:
        state.apply(step.event.type, step.event.payload, step.state)
    return state
