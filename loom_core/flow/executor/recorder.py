"""Recorder of a flow's events, each with its changes to run and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from loom_core.agent.notices import Notices
from loom_core.agent.spending import add_call_usage
from loom_core.flow.executor.state import FlowState, Frame, NextStep, parse_digests
from loom_core.flow.responses.phrases import language_of_run
from loom_core.redaction import redact_log_text, without_secrets
from loom_core.runs.commands import ApprovalDecision, InputResponse
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
        self._add("flow_start", payload, frame.to_json())
        if not frame.path:
            self.state.message, self.state.config = message, config
        self.state.add_frame(frame)

    def record_branch_start(self, frame: Frame) -> None:
        """Record that a list of steps inside a step starts, such as a parallel branch."""
        payload = {"step_id": _owner(frame), "branch": frame.number, "status": "start"}
        self._add("branch", payload, frame.to_json())
        self.state.add_frame(frame)

    def record_branch_end(self, frame: Frame) -> None:
        """Record that a list of steps inside a step has ended."""
        self._log.add("branch", {"step_id": _owner(frame), "branch": frame.number, "status": frame.ended})

    def record_flow_change(self, config: str, digests: Mapping[str, Digests]) -> None:
        """Record that the configuration has changed, and that the completed steps fit it."""
        self._add("flow_changed", {"config": config}, {"digests": digests})
        self.state.config = config
        for path, now in digests.items():
            self.state.frames[path].digests = now

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
        self._add("inputs", payload, kept)
        self.state.apply_inputs(frame.scope, inputs, answered=answered, decided=decided, back_to=back_to)

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

        Args:
            frame: frame of the step.
            step_id: id of the step.
            what: its action: `POST https://…`, a tool's name, a question.
            changes: see `StepState`.
            risky: see there.
            approved: whether a person has approved it: the tool, if for the rest of the run.
            tool: name of the tool that it calls.
        """
        whole = asdict(approved) if isinstance(approved, ToolIdentity) else approved
        kept = {"path": frame.path, "step": step_id, "changes": changes, "risky": risky, "approved": whole}
        kept["tool"] = tool
        self.state.start_step(frame.path, step_id, changes=changes, risky=risky, approved=approved, tool=tool)
        step = frame.steps[step_id]
        payload = {
            "step_id": frame.path + step_id,
            "key": self.state.key_of(frame, step_id),
            "attempt": step.attempt,
            "what": what,
        }
        self._add("step_start", payload, kept)

    def record_step_task(self, frame: Frame, step_id: str, task_id: str) -> None:
        """Record that another server continues the tool call of a step as a task, whose id stays hidden."""
        step = frame.steps[step_id]
        payload = {"call_id": self.state.key_of(frame, step_id), "tool": step.tool}
        self._add("tool_task", payload, {"path": frame.path, "step": step_id, "task": task_id})
        step.task_id = task_id

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
        """Record the result of a step; see `FlowState.end_step`.

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
        self.state.end_step(
            frame.path,
            step_id,
            status=status,
            outputs=payload["outputs"],
            problem=problem,
            said=said,
            told=told,
            following=following,
            maybe_done=maybe_done,
        )
        changes = self._waiting_changes() if was_pending else {}
        self._add("step_result", payload, kept, **changes, spent=self.spent)

    def record_request(self, pending: Pending) -> None:
        """Record a request to people, which begins with the texts of `say` steps that they have not read."""
        super().record_request(replace(pending, reason=self.state.tell(pending.reason)))

    def _state_of_request(self, pending: Pending) -> dict[str, Any]:
        return super()._state_of_request(pending) or {}  # what the user has read is read after a crash, too

    def record_message(self, text: str) -> None:
        """Record a message of the user."""
        self._add("message_received", {"text": text}, {})
        self.state.replies.append(text)

    def record_answer(self, answered: InputResponse) -> None:
        """Record the answer to a question of the flow or of a tool."""
        if answered.id not in self.state.calls:
            self.close_question(answered.id, action=answered.action, by=answered.by)
            return
        self.state.apply_answer(answered)
        self._add("approval_decided", _answer_payload(answered), asdict(answered), **self._waiting_changes())

    def record_resume(self, by: str) -> None:
        """Record that the run resumes, after a pause or its end."""
        was = self.run.status
        self._paused = False
        payload = {"by": by, "from_status": was}
        if was not in FINAL_STATUSES:
            self._add("resumed", payload, None, **self._waiting_changes())
            return
        kept = {"seconds": self.stopwatch.seconds}
        self.state.apply_resume(self.stopwatch.seconds)
        self._add("resumed", payload, kept, **self._waiting_changes(), output="", structured=None, problem="")

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
        """Record that the run is retried from a step; see `FlowState.apply_retry`."""
        was = self.run.status
        self._paused = False
        seconds = self.stopwatch.seconds
        kept: dict[str, Any] = {"seconds": seconds, "path": path, "retry": step_id, "digests": digests}
        kept |= {"config": config, "inputs": dict(inputs)}
        payload = {"by": by, "from_status": was, "step_id": path + step_id, "names": list(inputs)}
        self.state.apply_resume(seconds)
        self.state.apply_retry(path, step_id, digests, config=config, inputs=inputs)
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
        self.state.pending.clear()
        self._add(type_, payload, {}, status=status, pending=(), spent=self.spent, **changes)


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
        _replay_event(state, step.event.type, step.event.payload, step.state)
    return state


def _replay_event(  # noqa: C901 - one case an event
    state: FlowState, type_: str, told: Mapping[str, Any], kept: Mapping[str, Any]
) -> None:
    match type_:
        case "flow_start":
            if not kept["path"]:
                state.message, state.config = told["message"], told["config"]
            state.add_frame(Frame.from_json(kept))
        case "branch":
            state.add_frame(Frame.from_json(kept))
        case "flow_changed":
            state.config = told["config"]
            for path, digests in kept["digests"].items():
                state.frames[path].digests = parse_digests(digests)
        case "inputs":
            state.apply_inputs(
                kept["path"],
                kept["inputs"],
                answered=kept["answered"],
                decided=kept["decided"],
                back_to=kept.get("back_to", ""),
            )
        case "step_start":
            approved = kept["approved"]
            whole = approved if isinstance(approved, bool) else ToolIdentity(**approved)
            state.start_step(
                kept["path"],
                kept["step"],
                changes=kept.get("changes", kept["risky"]),
                risky=kept["risky"],
                approved=whole,
                tool=kept["tool"],
            )
        case "tool_task":
            state.frames[kept["path"]].steps[kept["step"]].task_id = kept["task"]
        case "step_result":
            state.end_step(
                kept["path"],
                kept["step"],
                status=told["status"],
                outputs=told["outputs"],
                problem=told["problem"],
                said=kept.get("said", ""),
                told=kept.get("told", ""),
                following=NextStep(**told["next"]),
                maybe_done=kept.get("maybe_done", told["status"] == "unknown"),
            )
        case "approval_required":
            state.unread.clear()
            if kept:
                state.calls.add(kept["id"])
                state.add_pending(Pending(**kept))
        case "approval_decided" if "content" in kept:
            state.apply_answer(InputResponse(**kept))
        case "approval_decided":
            state.apply_decision(ApprovalDecision(**kept))
        case "operator_message":
            state.add_pending(Pending(**kept))
        case "message_received":
            state.replies.append(told["text"])
        case "resumed":
            state.apply_resume(kept["seconds"])
            if "retry" in kept:
                digests = {path: parse_digests(each) for path, each in kept["digests"].items()}
                state.apply_retry(
                    kept["path"],
                    kept["retry"],
                    digests,
                    config=kept["config"],
                    inputs=kept.get("inputs", {}),
                )
        case "flow_finish" | "error" | "aborted":
            state.pending.clear()
            state.unread.clear()
        case _:
            pass  # an event of a newer version that changes nothing here
