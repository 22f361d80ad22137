"""State of a flow: the lists of steps in progress (frames) and the results of their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.run import Pending
from loom_core.tools.permission.permissions import ToolIdentity

if TYPE_CHECKING:
    from loom_core.flow.executor.definition import Digests

__all__ = ["FlowState", "Frame", "NextStep", "StepState", "StepStatus"]


StepStatus = Literal["running", "success", "failure", "unknown", "declined"]
"""`unknown`: the request was sent, and its outcome is unknown; `declined`: a person said no."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step or the end, as decided after a step.

    Attributes:
        to: the step `step`; the successful end; the failed end; or the same step again.
        step: the step to jump to; for `retry`: a step to execute first, if any.
        at: time of a `retry`, in seconds since 1970.
        action: name of the action that decided; empty if none did.
        response: text for the user at the `end`, if the action has one.
    """

    to: Literal["step", "end", "fail", "retry"]
    step: str = ""
    at: float = 0.0
    action: str = ""
    response: str = ""


@dataclass(slots=True)
class StepState:
    """State of a step's latest visit.

    Attributes:
        step_id: id of the step.
        visit: number of visits in this run; each visit has its own key.
        attempt: number of attempts in this visit.
        place: its number among all steps of the run, by start.
        status: its status.
        outputs: its outputs.
        problem: why it failed.
        said: why it failed, for users.
        retries: number of retries by action.
        due: time of the next attempt, in seconds since 1970; None for none.
        via: step to execute before the next attempt; empty for none, or when it is done.
        begun: whether it has started without a result.
        changes: whether it may have side effects.
        risky: whether it must not be done twice: its outcome is unknown after a crash.
        approved: whether a person has approved it.
        tool: name of the tool that it calls, if it does.
        task_id: task of another server that its call has become; empty for none.
    """

    step_id: str
    visit: int
    attempt: int
    place: int
    status: StepStatus = "running"
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""
    said: str = ""
    retries: Counter[str] = field(default_factory=Counter[str])
    due: float | None = None
    via: str = ""
    begun: bool = True
    changes: bool = False
    risky: bool = False
    approved: bool = False
    tool: str = ""
    task_id: str = ""


@dataclass(slots=True)
class Frame:
    """A list of steps in progress: of the flow, of a branch, or of a nested flow.

    Attributes:
        path: its path: empty, or the path of its step and a slash, `pay/0/`.
        parent: path of the frame of that step; None for the flow itself.
        step: the id of that step.
        key: its path with the visits, `pay#2/0/`: unique in the run.
        flow_id: id of the steps' flow.
        scope: path of the flow's frame, which has the inputs.
        inputs: inputs, in the frame of a flow.
        given: number of the run's steps that had started when the latest inputs were given.
        digests: its steps when it started; see `Digests`.
        at: the current step; empty at its end.
        ended: its result; empty before its end.
        response: text for the user, if an action has one.
        steps: the visited steps by id.
        visits: number of visits of each since a person last acted.
        item: the item that the steps of `for_each` run for, in a list; empty for other lists of steps.
        rewound: the steps to be done again because of a correction, with their places before it.
        corrected: the inputs that it changed.
    """

    path: str
    parent: str | None
    step: str
    key: str
    flow_id: str
    scope: str
    inputs: dict[str, Any]
    digests: Digests
    at: str
    ended: Literal["", "success", "failure"] = ""
    response: str = ""
    given: dict[str, int] = field(default_factory=dict[str, int])
    steps: dict[str, StepState] = field(default_factory=dict[str, StepState])
    visits: Counter[str] = field(default_factory=Counter[str])
    item: list[Any] = field(default_factory=list[Any])
    rewound: dict[str, int] = field(default_factory=dict[str, int])
    corrected: set[str] = field(default_factory=set[str])

    @property
    def number(self) -> int:
        """The number of the list among those inside its step."""
        return int(self.path.rsplit("/", 2)[1])

    def to_json(self) -> dict[str, Any]:
        """Return the frame at its start, for the journal."""
        told = asdict(self)
        since = {"given", "steps", "visits", "rewound", "corrected"}
        return {name: value for name, value in told.items() if name not in since}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Frame:
        """Restore a frame from `to_json`."""
        others = {name: value for name, value in kept.items() if name not in {"inputs", "digests"}}
        return cls(**others, inputs=dict(kept["inputs"]), digests=_parse_digests(kept["digests"]))


def _parse_digests(kept: object) -> Digests:
    """Parse digests from the journal."""
    return [(step, digest) for step, digest in cast("list[tuple[str, str]]", kept)]


@dataclass(slots=True)
class FlowState:
    """State of a flow. Only journaled events change it, in their order.

    Attributes:
        frames: by path; that of the flow itself is empty.
        message: the user's message.
        config: version of the configuration.
        pending: open questions to people, by id.
        decisions: decisions of people, by id.
        answers: answers of people, by id.
        asked: the latest question of a step that is still asking, by id.
        calls: ids of the flow's own questions; others belong to a tool, and end with its call.
        approved: tools approved for the rest of the run, as they were then.
        begun: number of steps that have started.
        visited: number of visits of each step, by its key without the visit.
        in_doubt: keys of visits whose step may have been done although it has not succeeded: a repetition
            uses the same key, so that the server can recognize it.
        replies: messages of the user during the run.
        unread: texts of `say` steps that no question and no output of the run has told the user yet.
        granted_from: seconds spent when the budget was last granted.
    """

    frames: dict[str, Frame] = field(default_factory=dict[str, Frame])
    message: str = ""
    config: str = ""
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    decisions: dict[str, ApprovalDecision] = field(default_factory=dict[str, ApprovalDecision])
    answers: dict[str, InputResponse] = field(default_factory=dict[str, InputResponse])
    asked: dict[str, Pending] = field(default_factory=dict[str, Pending])
    calls: set[str] = field(default_factory=set[str])
    approved: set[ToolIdentity] = field(default_factory=set[ToolIdentity])
    begun: int = 0
    visited: Counter[str] = field(default_factory=Counter[str])
    in_doubt: set[str] = field(default_factory=set[str])
    replies: list[str] = field(default_factory=list[str])
    unread: list[str] = field(default_factory=list[str])
    granted_from: float = 0.0

    @property
    def root(self) -> Frame:
        """Frame of the run's flow."""
        return self.frames[""]

    def inputs(self, frame: Frame) -> dict[str, Any]:
        """Return the inputs of a frame's flow."""
        return self.frames[frame.scope].inputs

    def visit_of(self, frame: Frame, step_id: str) -> int:
        """Return the number of a step's current or next visit."""
        step = frame.steps.get(step_id)
        if step is not None and (step.begun or step.due is not None):
            return step.visit
        last = self.visited[frame.key + step_id]
        return last if last and self.may_be_done(_visit_name(frame, step_id, last)) else last + 1

    def key_of(self, frame: Frame, step_id: str) -> str:
        """Return the key of a step's visit, unique in the run."""
        return _visit_name(frame, step_id, self.visit_of(frame, step_id))

    def may_be_done(self, key: str) -> bool:
        """Return whether the outcome of a visit, or of a part of it, is unknown."""
        return any(each == key or each.startswith(f"{key}/") for each in self.in_doubt)

    def item_of(self, frame: Frame) -> tuple[Any, int] | None:
        """Return the item that a frame's steps run for, and its number; None outside of `for_each`."""
        while not frame.item:
            if frame.parent is None or frame.path == frame.scope:
                return None
            frame = self.frames[frame.parent]
        return frame.item[0], frame.number

    def has_changed(self, frame: Frame, step: StepState) -> bool:
        """Return whether a step has had a side effect, or may have."""
        key = _visit_name(frame, step.step_id, step.visit)
        return step.changes and (step.status == "success" or step.begun or key in self.in_doubt)

    def results_for(self, frame: Frame) -> dict[str, Mapping[str, Any]]:
        """Return the outputs that a frame may refer to, by step id.

        Those of other branches and items are left out.
        """
        around = self._ancestors(frame)
        own, through = {each.path for each in around}, {each.parent: each.step for each in around}
        seen: dict[str, Mapping[str, Any]] = {}
        for other in self.frames.values():
            outer = other
            while outer.path not in own and outer.parent not in own:
                outer = self.frames[outer.parent or ""]
            is_seen = outer.path in own or (through.get(outer.parent) != outer.step and not outer.item)
            if is_seen and other.scope == frame.scope:
                seen |= {step.step_id: step.outputs for step in other.steps.values() if not step.begun}
        return seen

    def apply(  # noqa: C901 - one case an event
        self, type_: str, told: Mapping[str, Any], kept: Mapping[str, Any]
    ) -> None:
        """Apply an event, by its payload and what it keeps besides for the state."""
        match type_:
            case "flow_start":
                if not kept["path"]:
                    self.message, self.config = told["message"], told["config"]
                self._add_frame(Frame.from_json(kept))
            case "branch":
                self._add_frame(Frame.from_json(kept))
            case "flow_changed":
                self._apply_change(told["config"], kept["digests"])
            case "inputs":
                back_to = kept.get("back_to", "")
                self._apply_inputs(kept["path"], kept["inputs"], kept["answered"], kept["decided"], back_to)
            case "step_start":
                self._start_step(kept)
            case "tool_task":
                self.frames[kept["path"]].steps[kept["step"]].task_id = kept["task"]
            case "step_result":
                self._end_step(told, kept)
            case "approval_required":
                self.unread.clear()
                if kept:
                    self.calls.add(kept["id"])
                    self.add_pending(Pending(**kept))
            case "approval_decided" if "content" in kept:
                self.pending.pop(kept["id"], None)
                self.answers[kept["id"]] = InputResponse(**kept)
            case "approval_decided":
                self.apply_decision(ApprovalDecision(**kept))
            case "operator_message":
                self.add_pending(Pending(**kept))
            case "message_received":
                self.replies.append(told["text"])
                if kept:
                    self.add_pending(Pending(**kept))
            case "resumed":
                self._resume(kept["seconds"])
                if "retry" in kept:
                    self._apply_change(kept["config"], kept["digests"])
                    self._apply_inputs("", kept.get("inputs", {}))
                    self._retry(kept["path"], kept["retry"])
            case "flow_finish" | "error" | "aborted":
                self.pending.clear()
                self.unread.clear()
            case _:
                pass  # an event of a newer version that changes nothing here

    def _add_frame(self, frame: Frame) -> None:
        """Add a list of steps, and drop the results of an earlier visit."""
        self._drop(frame.path)
        self.frames[frame.path] = frame

    def _apply_change(self, config: str, digests: Mapping[str, object]) -> None:
        """Apply that the configuration has changed, with the current steps of each frame."""
        self.config = config
        for path, now in digests.items():
            self.frames[path].digests = _parse_digests(now)

    def _apply_inputs(
        self, path: str, inputs: Mapping[str, Any], answered: str = "", decided: str = "", back_to: str = ""
    ) -> None:
        """Apply inputs of a flow, and rewind it to a step if they need it.

        The question or decision that they came with may be asked again.
        """
        frame = self.frames[path]
        changed = [name for name, value in inputs.items() if frame.inputs.get(name) != value]
        frame.given |= dict.fromkeys(changed, self.begun)
        frame.inputs.update(inputs)
        self.answers.pop(answered, None)
        self.decisions.pop(decided, None)
        if back_to:
            frame.corrected = {*changed, *(frame.corrected if frame.rewound else ())}
            frame.rewound |= {step_id: step.place for step_id, step in frame.steps.items()}
            self._forget(frame, back_to, keep=False)
            frame.at, frame.ended = back_to, ""
            frame.visits.clear()

    def _start_step(self, kept: Mapping[str, Any]) -> None:
        """Apply that a step starts or waits for approval."""
        path, step_id, frame = kept["path"], kept["step"], self.frames[kept["path"]]
        self.decisions.pop(self.key_of(frame, step_id), None)
        before, visit = frame.steps.get(step_id), self.visit_of(frame, step_id)
        self.begun += 1
        if before is not None and (before.begun or before.due is not None):
            before.attempt += 1
            for inside in self.frames_inside(path, step_id) if before.due is not None else ():
                self._reopen(inside.path)
            before.status, before.due, before.begun, before.place = "running", None, True, self.begun
        else:
            self._drop(f"{path}{step_id}/")
            frame.visits[step_id] += 1
            frame.rewound.pop(step_id, None)
            self.visited[frame.key + step_id] = visit
            frame.steps[step_id] = StepState(step_id, visit, 1, self.begun)
        step, approved = frame.steps[step_id], kept["approved"]
        step.changes, step.risky, step.tool = kept.get("changes", kept["risky"]), kept["risky"], kept["tool"]
        step.approved |= bool(approved)
        if isinstance(approved, Mapping):  # the tool, for the rest of the run
            self.approved.add(ToolIdentity(**cast("Mapping[str, Any]", approved)))

    def _end_step(self, told: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Apply the result of a step and what follows it."""
        frame, step_id, status = self.frames[kept["path"]], kept["step"], told["status"]
        step, key = frame.steps[step_id], self.key_of(frame, step_id)
        if status == "success":
            self.in_doubt.discard(key)
        elif kept.get("maybe_done", status == "unknown"):
            self.in_doubt.add(key)
        for asked in (self.pending, self.asked, self.answers, self.decisions):
            asked.pop(key, None)
        step.status, step.outputs, step.problem = status, told["outputs"], told["problem"]
        step.said, step.begun, step.task_id = kept.get("said", ""), False, ""
        for _, call in self.begun_calls(kept["path"] + step_id) if status != "success" else ():
            call.task_id = ""  # the step that contains it has timed out
        if text := kept.get("told"):
            self.unread.append(text)
        waiting = frame.steps.get(frame.at)
        if step_id != frame.at and waiting is not None:  # the step to execute before the retry
            waiting.via = ""
            if status != "success":
                waiting.due = None
                frame.ended = "failure"
            return
        following = NextStep(**told["next"])
        match following.to:
            case "step":
                frame.at = following.step
            case "end":
                frame.at, frame.ended, frame.response = "", "success", following.response
            case "fail":
                frame.ended = "failure"
            case "retry":
                step.retries[following.action] += 1
                step.due, step.via = following.at, following.step

    def add_pending(self, pending: Pending) -> None:
        """Add a pending question."""
        self.pending[pending.id] = self.asked[pending.id] = pending
        self.answers.pop(pending.id, None)

    def tell(self, text: str) -> str:
        """Return a text for the user with the unread texts before it, which are read then."""
        whole = "\n\n".join(filter(None, [*self.unread, text]))
        self.unread.clear()
        return whole

    def apply_decision(self, decision: ApprovalDecision) -> None:
        """Apply a decision."""
        self.pending.pop(decision.id, None)
        self.decisions[decision.id] = decision

    def _resume(self, seconds: float) -> None:
        """Apply that the run resumes after its end, where it failed, with fresh limits."""
        self.granted_from = seconds
        for _, call in self.begun_calls():
            call.task_id = ""  # it was abandoned with the run
        self.decisions = {id_: each for id_, each in self.decisions.items() if each.action != "deny"}
        self.answers = {id_: each for id_, each in self.answers.items() if each.action == "accept"}
        if self.frames:
            self._reopen("")

    def _retry(self, path: str, step_id: str) -> None:
        """Drop the results of a step and those after it; without an id, it is the one that failed."""
        if not step_id:
            return
        around = self._ancestors(self.frames[path])
        for frame, inner in zip(around, [*(each.step for each in around[1:]), step_id], strict=True):
            self._forget(frame, inner, keep=frame.path != path)
            frame.at, frame.ended = inner, ""
            frame.visits.clear()

    def begun_calls(self, path: str = "") -> list[tuple[Frame, StepState]]:
        """Return the steps whose tool call has started and has no result.

        Args:
            path: path of a step, for itself and those inside it; empty for all.
        """
        return [
            (frame, step)
            for frame in self.frames.values()
            for step in frame.steps.values()
            if step.begun and step.tool and f"{frame.path}{step.step_id}/".startswith(path and f"{path}/")
        ]

    def frames_inside(self, path: str, step_id: str) -> list[Frame]:
        """Return the frames of a step: its branches, or its nested flow."""
        return [frame for frame in self.frames.values() if (frame.parent, frame.step) == (path, step_id)]

    def _reopen(self, path: str) -> None:
        """Reopen a failed list of steps at the step that failed."""
        frame = self.frames[path]
        failed, step = frame.ended == "failure", frame.steps.get(frame.at)
        frame.visits.clear()
        if frame.ended == "success" or step is None:
            return
        frame.ended = ""
        step.retries.clear()
        inside = self.frames_inside(path, step.step_id)
        for each in inside:
            self._reopen(each.path)
        if failed and inside:
            step.begun = True  # its inner steps continue, and it with them
        elif failed and step.status == "unknown":
            step.due = 0.0  # it may have been done; the user is asked
        elif failed:
            self._forget(frame, step.step_id, keep=False)

    def _ancestors(self, frame: Frame) -> list[Frame]:
        """Return a frame and its ancestors, outermost first."""
        found = [frame]
        while (parent := found[0].parent) is not None:
            found.insert(0, self.frames[parent])
        return found

    def _forget(self, frame: Frame, step_id: str, *, keep: bool) -> None:
        """Drop the results of a step and of those that started after it.

        If it is kept, the step itself continues, because a step in it is repeated.
        """
        first = frame.steps.get(step_id)
        for step in list(frame.steps.values()):
            if step.step_id == step_id and keep:
                step.begun, step.status, step.due = True, "running", None
            elif step.step_id == frame.at if first is None else step.place >= first.place:
                self._drop(f"{frame.path}{step.step_id}/")
                for said in (self.answers, self.decisions):
                    said.pop(self.key_of(frame, step.step_id), None)
                self._mark_uncertain(frame, step)
                del frame.steps[step.step_id]

    def _drop(self, path: str) -> None:
        """Drop the lists of steps below a path."""
        for frame in [frame for frame in self.frames.values() if path and frame.path.startswith(path)]:
            for step in frame.steps.values():
                self._mark_uncertain(frame, step)
            del self.frames[frame.path]

    def _mark_uncertain(self, frame: Frame, step: StepState) -> None:
        """Mark a dropped step that had started as possibly done."""
        if step.begun:
            self.in_doubt.add(_visit_name(frame, step.step_id, step.visit))


def _visit_name(frame: Frame, step_id: str, visit: int) -> str:
    return f"{frame.key}{step_id}" + (f"#{visit}" if visit > 1 else "")
