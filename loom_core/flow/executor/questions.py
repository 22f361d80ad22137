"""Questions of flows to users: missing inputs, confirmations, and answers to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import time
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import InvalidInputError, LoomError
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.definition import flow_steps, step_title
from loom_core.flow.executor.inputs import (
    check_known,
    input_form,
    input_names_of,
    missing_inputs,
    uses_input,
    validate_inputs,
    with_defaults,
    with_properties,
)
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.executor.messages import FlowMessages
    from loom_core.flow.executor.recorder import FlowRecorder
    from loom_core.flow.executor.state import FlowState, Frame
    from loom_core.runs.executor import HumanBroker

__all__ = [
    "BEGIN",
    "INPUTS",
    "CorrectionError",
    "DeclinedError",
    "FlowQuestions",
    "FlowRewoundError",
    "find_rewind_point",
]

INPUTS = "$inputs"
BEGIN = "$begin"
"""Ids of the questions before a flow starts: for missing inputs, and for confirmation. No step has such an
id."""


class DeclinedError(Exception):
    """The user does not want the flow to continue.

    Attributes:
        by: the user.
        reason: the reason.
    """

    def __init__(self, by: str, reason: str) -> None:
        super().__init__(reason)
        self.by = by
        self.reason = reason


class CorrectionError(LoomError):
    """An input that a side effect depends on cannot be corrected any more. The message is for the user."""


class FlowRewoundError(Exception):
    """A list of steps was rewound to an earlier step with other inputs; its running steps are obsolete."""


class FlowQuestions:
    """Questions of one run. Questions and answers are in the journal, so they survive a crash.

    `idle` is the context of waiting for the user.
    """

    def __init__(
        self,
        record: FlowRecorder,
        people: HumanBroker,
        *,
        file: FlowFile,
        wording: FlowMessages,
        idle: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._record = record
        self._people = people
        self._file = file
        self._wording = wording
        self._idle = idle

    async def request_decision(
        self,
        id_: str,
        kind: Literal["approval", "unknown"],
        reason: str,
        *,
        tool: str,
        arguments: Mapping[str, Any],
        arguments_schema: Mapping[str, Any] | None = None,
        for_run: bool = False,
        problem: str = "",
    ) -> ApprovalDecision:
        """Request a decision that fits the schema, or return the one from the journal.

        `problem` says why the last response was rejected.
        """
        state = self._record.state
        if id_ in state.decisions:
            return state.decisions[id_]
        pending = state.pending.get(id_) or Pending(
            id=id_,
            kind=kind,
            tool=tool,
            arguments=dict(arguments),
            arguments_schema=dict(arguments_schema or {}),
            reason=f"{reason} {(remark := self._remark(problem))}".strip(),
            remark=remark,
            for_run=for_run,
            deadline=self._people.deadline(),
        )
        state.calls.add(id_)
        self._people.ask(pending)
        with self._mark_waiting(pending):
            return await self._people.wait_for_decision(pending)

    async def request_answer(
        self,
        id_: str,
        reason: str,
        *,
        tool: str,
        schema: Mapping[str, Any],
        arguments: Mapping[str, Any],
        arguments_schema: Mapping[str, Any] | None = None,
        problem: str = "",
        before: str = "",
    ) -> InputResponse:
        """Request an answer, or return the one from the journal.

        `problem` says why the last answer was rejected; `before` is said before the question, once.
        """
        state = self._record.state
        if id_ in state.answers:
            return state.answers[id_]
        pending = state.pending.get(id_) or Pending(
            id=id_,
            kind="question",
            tool=tool,
            arguments=dict(arguments),
            arguments_schema=dict(arguments_schema or {}),
            reason=f"{before}{self._wording.space if before else ''}{reason} {self._remark(problem)}".strip(),
            remark=self._remark(problem) or before,
            schema=dict(schema),
            asks_again=True,
            deadline=self._people.deadline(),
        )
        state.calls.add(id_)
        self._people.ask(pending)
        with self._mark_waiting(pending):
            await self._people.wait_for_response(pending)
        if id_ not in state.answers:
            self._record.record_answer(InputResponse(id=id_, action="cancel", by="no one, in time"))
        return state.answers[id_]

    async def wait_outside(self, pending: Pending) -> InputResponse | None:
        """Wait for an event, a time or an operator; return the response, also one from the journal.

        None if the deadline has passed without one. An operator who does not answer the user before theirs
        does not have the conversation any more.
        """
        state, id_ = self._record.state, pending.id
        while id_ not in state.answers:
            state.calls.add(id_)
            self._people.ask(state.pending.get(id_, pending))
            latest = state.pending[id_]  # messages to and from an operator change its deadline
            if latest.deadline is not None and time() >= latest.deadline:
                if not latest.taken_by:
                    return None
                latest = latest.current()
                self._record.record_request(latest)
            with self._mark_waiting(latest):
                await self._people.wait_for_response(latest)
        return state.answers[id_]

    def _remark(self, problem: str) -> str:
        return self._wording.again.format(problem=problem) if problem else ""

    def _mark_waiting(self, pending: Pending) -> AbstractContextManager[None]:
        """Context of waiting for a response; a question without a response in time is declined."""
        late = pending.deadline is not None and time() >= pending.deadline
        return nullcontext() if late else self._idle()

    async def request_inputs(self, frame: Frame, flow: FlowConfig) -> None:
        """Ask for missing inputs until the flow has all of them.

        Raises:
            DeclinedError: the user does not give it.
        """
        state, schema, problem = self._record.state, flow.input_schema, ""
        id_ = frame.key + INPUTS
        while True:
            missing = missing_inputs(schema, frame.inputs)
            if not missing and not problem:
                try:
                    whole = validate_inputs(flow, frame.inputs)
                except InvalidInputError as error:
                    problem, missing = error.message, list(frame.inputs)
                else:
                    if whole != frame.inputs:
                        self._record.record_inputs(frame, whole)
                    return
            missing = missing or list(frame.inputs)
            names = input_names_of(schema, missing, self._wording.language)
            reason = self._wording.missing.format(flow=flow.title, names=names)
            answer = await self.request_answer(
                id_,
                reason,
                tool=flow.flow_id,
                schema=input_form(schema, missing),
                arguments=state.inputs(frame),
                problem=problem,
            )
            if answer.action != "accept":
                raise DeclinedError(answer.by, self._wording.declined)
            problem = self.apply_response(frame, flow, answer.content, answered=id_)

    async def confirm_begin(self, frame: Frame, flow: FlowConfig, reason: str) -> None:
        """Ask for confirmation before a flow starts; the response may change its inputs.

        Raises:
            DeclinedError: the user declines.
        """
        problem = ""
        while True:
            id_ = frame.key + BEGIN
            decision = await self.request_decision(
                id_,
                "approval",
                reason or self._wording.begin.format(flow=flow.title),
                tool=flow.flow_id,
                arguments=self._record.state.inputs(frame),
                problem=problem,
            )
            if decision.action == "deny":
                raise DeclinedError(decision.by, decision.reason or self._wording.declined)
            if decision.action == "approve":
                return
            approve = not decision.ask_again
            problem = self.apply_response(frame, flow, decision.arguments, decided=id_, approve=approve)
            if approve and not problem:
                return

    def apply_response(
        self,
        frame: Frame,
        flow: FlowConfig,
        given: Mapping[str, Any],
        *,
        answered: str = "",
        decided: str = "",
        approve: bool = False,
        offered: Mapping[str, Any] | None = None,
    ) -> str:
        """Apply inputs that were given or corrected.

        If steps have used the old values, and all later steps were read-only, the flow is rewound to the
        first of these; if there were side effects, nothing changes.

        Args:
            frame: the frame of the flow.
            flow: the flow of the inputs.
            given: the inputs by name.
            answered: the question that they answer; if they are invalid, it is asked again.
            decided: the decision that they came with, likewise.
            approve: whether they approve the decision if they are valid.
            offered: schemas of inputs that are chosen from lists, by name.

        Returns:
            Why they are rejected; empty if they are accepted.

        Raises:
            FlowRewoundError: the flow is rewound to an earlier step.
        """
        try:
            schema = with_properties(flow.input_schema, offered or {})
            check_known(flow, [name for name in given if name not in (offered or {})])
            taken = validate_inputs(flow, {**frame.inputs, **given}, whole=False, schema=schema)
            changed = [name for name, value in taken.items() if frame.inputs.get(name, value) != value]
            way = find_rewind_point(self._record.state, self._file, frame, changed, self._wording)
        except (InvalidInputError, CorrectionError) as error:
            self._record.record_inputs(frame, {}, answered=answered, decided=decided)
            return self._wording.unfit_message(flow, given, offered or {}) or error.message
        inputs = with_defaults(flow.input_schema, taken)
        if way is not None:
            self._record.record_inputs(frame, inputs, back_to=way[0])
            raise FlowRewoundError
        self._record.record_inputs(frame, inputs, answered=answered, decided="" if approve else decided)
        return ""

    def apply_corrections(self, frame: Frame, given: Mapping[str, Any], *, offered: Mapping[str, Any]) -> str:
        """Apply corrections to a frame's inputs; return why they are rejected, or empty."""
        if not given:
            return ""
        scope = self._record.state.frames[frame.scope]
        return self.apply_response(scope, self._file.find_flow(scope.flow_id), given, offered=offered)


def find_rewind_point(
    state: FlowState, file: FlowFile, scope: Frame, names: Collection[str], wording: FlowMessages
) -> tuple[str, int] | None:
    """Return the step of a flow, and its place in the run, to which changed inputs rewind it.

    It is the first step that has used one of them; None if none has. `scope` is the frame of the flow that
    has the inputs.

    Raises:
        CorrectionError: a side effect depends on the old values.
    """
    flow = file.find_flow(scope.flow_id)
    steps = {step.step_id: step for step in iter_steps(flow_steps(file, flow))}
    visited = sorted(
        ((done.place, frame, done) for frame in state.frames.values() for done in frame.steps.values()),
        key=lambda each: each[0],
    )
    used = (
        (frame, done.step_id)
        for place, frame, done in visited
        if frame.scope == scope.path and done.step_id in steps
        for name in names
        if place >= scope.given.get(name, 0) and uses_input(steps[done.step_id], name, ended=not done.begun)
    )
    first = next(used, None)
    if first is None:
        return None
    frame, step_id = first
    while frame.path != scope.path and frame.parent is not None:  # the flow's own step that contains it
        frame, step_id = state.frames[frame.parent], frame.step
    begun = scope.steps[step_id].place
    for place, frame, done in visited:
        if place >= begun and frame.path.startswith(scope.path) and state.has_changed(frame, done):
            title = step_title(file, frame.flow_id, done.step_id)
            text = wording.used if done.status == "success" else wording.maybe_used
            raise CorrectionError(text.format(name=input_names_of(flow.input_schema, [*names]), step=title))
    return step_id, begun
