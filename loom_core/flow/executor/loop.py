"""Execution of a flow's run, step by step, from its journaled state until it ends or waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.agent.calling_run import CallingRun, calling_from, calling_run
from loom_core.errors import LoomError, NotFoundError
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.definition import (
    FlowChangedError,
    compute_digests,
    find_changed_step,
    flow_steps,
    step_title,
)
from loom_core.flow.executor.inputs import with_defaults
from loom_core.flow.executor.messages import FlowMessages
from loom_core.flow.executor.questions import (
    CorrectionError,
    DeclinedError,
    FlowQuestions,
    FlowRewoundError,
    find_rewind_point,
)
from loom_core.flow.executor.recorder import FlowRecorder
from loom_core.flow.executor.state import Frame, NextStep
from loom_core.flow.executor.steps.context import RunActivity, RunScope, StepOutcome
from loom_core.flow.executor.steps.runner import RunningCalls, StepRunner
from loom_core.flow.expressions import (
    ExpressionValues,
    all_hold,
    fill,
    read_output,
    text_of,
)
from loom_core.flow.http.response import failure_message
from loom_core.flow.responses.phrases import Phrases, language_of_run
from loom_core.flow.understanding.moments import situation_in
from loom_core.observability.spans import INVOKE_WORKFLOW
from loom_core.runs.commands import Command, Resume, Retry
from loom_core.runs.executor import RunExecutor
from loom_core.tools.execution.call_run import CLEANUP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup

    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.config.models_step import Action, StepConfig
    from loom_core.flow.executor.definition import Digests
    from loom_core.flow.executor.dependencies import FlowDependencies
    from loom_core.flow.executor.state import FlowState
    from loom_core.runs.commands import Abort
    from loom_core.runs.executor import HumanBroker
    from loom_core.runs.journal import RunLog
    from loom_core.runs.run import Run

__all__ = [
    "CurrentSteps",
    "FlowLoop",
    "FlowTimeoutError",
    "StepFailedError",
    "StepMachine",
    "describe_changes",
]


class StepFailedError(LoomError):
    """A step has failed, and no action handles the failure.

    Attributes:
        step: its path, such as `pay` or `outer/0/inner`.
        said: the message for users.
    """

    def __init__(self, message: str, *, step: str, said: str, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.step = step
        self.said = said


class FlowTimeoutError(LoomError):
    """A flow has exceeded its timeout."""


class FlowLoop(RunExecutor[FlowRecorder]):
    """Executor of one run of a flow.

    It is a state machine whose state follows from the journaled events. Each step is in the journal before
    it does anything, and with its result afterwards; so a step with a result is never repeated. If a step
    was running at a crash and must not be done twice, the user is asked.

    While all parts wait for people, the run is parked: no process holds it, and a response resumes it in any
    process.
    """

    span_form = INVOKE_WORKFLOW

    def __init__(self, parts: FlowDependencies, log: RunLog) -> None:
        setting = parts.file.basic_settings.language
        language = language_of_run(log.run.request, setting=setting)
        asking = parts.asking
        if asking.approve is None:  # users who respond by commands are customers
            phrases, unapproved = Phrases(language), FlowMessages(language).unapproved
            asking = replace(asking, unapproved=unapproved, confirmation=phrases.confirmation)
        super().__init__(log, FlowRecorder(log), asking=asking)
        self._file = parts.localized[language]
        self._parts = parts = replace(parts, file=self._file)
        self._wording = FlowMessages(language)
        self._calling = CallingRun(self._record, asking)
        self._machine: StepMachine | None = None
        self._calls = RunningCalls(self._record, parts.toolbox)
        self._idling: RunActivity | None = None
        self._problem: LoomError | None = None
        self._present = CurrentSteps(parts.file, self._record.state)
        self._group: TaskGroup | None = None

    async def execute(self) -> Run:
        """Execute the run; see `RunExecutor.execute`."""
        outer = calling_run()
        self._log.observe(self._parts.audit)
        context: Mapping[str, Any] = self._log.run.request.metadata.get("context") or {}
        zones = context.get("timezone"), self._file.basic_settings.timezone
        try:
            with (
                situation_in(zones, self._wording.language),
                calling_from(self._calling),
                nullcontext() if outer is None else outer.attach_child(self.detach),
            ):
                return await super().execute()
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP_SECONDS):
                await self._parts.audit.write()

    async def _wait_for_calls(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._calling.detach)
            if self._machine is not None:
                group.start_soon(self._machine.work.detach)

    def _stop(self) -> None:
        """Cancel running steps; those with side effects get a moment to end."""
        machine, group = self._machine, self._group
        if machine is None or group is None or not machine.work.stop():
            super()._stop()
        else:
            group.start_soon(self._settle, machine)

    async def _settle(self, machine: StepMachine) -> None:
        with anyio.move_on_after(self._parts.limits.settle_seconds):
            await self._calls.abandon()  # work elsewhere for a tool call need not be waited for
            await machine.work.wait_until_settled()
        super()._stop()

    async def _wait_while_paused(self) -> None:
        if self._abort is not None:
            await anyio.sleep_forever()  # until running steps have settled
        if self._record.paused and self._idling is not None:
            with self._idling.waiting():
                await super()._wait_while_paused()
        else:
            await super()._wait_while_paused()

    def _is_revived_by(self, reviving: Command | None) -> bool:
        # A message to a flow that has just ended is for the next one.
        return isinstance(reviving, Resume | Retry)

    def _timeout_error(self) -> LoomError:
        seconds = self._record.run.request.budget.seconds
        return FlowTimeoutError(
            f"The flow exceeded its timeout of {seconds:g} s.",
            advice="Resume it to grant the same time again.",
        )

    def _revive(self, order: Command) -> None:
        record, self._problem = self._record, None
        if not isinstance(order, Retry) or not record.state.frames:
            record.record_resume(order.by)
            return
        try:
            path, step_id = self._retry_target(order)
        except LoomError as error:
            record.record_resume(order.by)
            self._problem = error
            return
        record.record_retry(
            order.by,
            path=path,
            step_id=step_id,
            digests=self._present.digests(),
            config=self._parts.version,
            inputs=order.inputs,
        )

    def _retry_target(self, order: Retry) -> tuple[str, str]:
        """Return the path of the list of steps and the step to retry from; empty for the failed one.

        Raises:
            NotFoundError: no such step exists.
            CorrectionError: inputs are changed, and a side effect depends on the old ones.
        """
        state = self._record.state
        path, slash, step_id = order.step.rpartition("/")
        path += slash
        frame = state.frames.get(path)
        if step_id:
            known = [] if frame is None else [step.step_id for step in self._present.steps_of(frame)]
            if step_id not in known:
                raise NotFoundError(
                    f"The run cannot continue from the step {order.step!r}: "
                    "it does not exist, or was not reached.",
                    advice=f"There are: {', '.join(known or self._present.list_known())}.",
                )
        root = state.root
        changed = [name for name, value in order.inputs.items() if root.inputs.get(name) != value]
        way = find_rewind_point(state, self._file, root, changed, self._wording)
        begun = None if frame is None else frame.steps.get(step_id)
        if way is not None and (not step_id or begun is None or way[1] < begun.place):
            return "", way[0]
        return path, step_id

    async def _advance(self, people: HumanBroker, group: TaskGroup) -> None:
        record, state = self._record, self._record.state
        if self._problem is not None:
            raise self._problem
        if not state.frames:
            self._start()
        if state.config != self._parts.version:
            self._present.check_unchanged()
            record.record_flow_change(self._parts.version, self._present.digests())
        self._group, wording = group, self._wording
        self._idling = idling = RunActivity(self._park)
        questions = FlowQuestions(record, people, file=self._file, wording=wording, idle=idling.waiting)
        scene = RunScope(self._parts, record, questions=questions, idling=idling, wording=wording)
        self._machine = machine = StepMachine(scene, people, calls=self._calls, gate=self._wait_while_paused)
        flow, root = self._file.find_flow(state.root.flow_id), state.root
        try:
            await self._wait_while_paused()
            if not root.steps:
                await questions.request_inputs(root, flow)
                metadata = record.run.request.metadata
                if metadata.get("confirm"):
                    await questions.confirm_begin(root, flow, str(metadata.get("confirm_reason", "")))
        except DeclinedError as error:
            record.record_abort(by=error.by, reason=error.reason, output=wording.denied)
            return
        while True:
            await machine.run(root)
            await record.commit()
            self._apply_commands()  # no message before the end remains unread
            if not record.paused and self._abort is None:
                break
            await self._wait_while_paused()
        self._end(scene, flow)

    def _start(self) -> None:
        """Start the flow."""
        request = self._record.run.request
        flow = self._file.find_flow(request.profile)
        steps = flow_steps(self._file, flow)
        metadata: Mapping[str, Any] = request.metadata
        if isinstance(route := metadata.get("route"), Mapping):
            self._record.record_route(cast("Mapping[str, Any]", route))
        given = cast("Mapping[str, Any]", metadata.get("inputs") or {})
        frame = Frame(
            path="",
            parent=None,
            step="",
            key="",
            flow_id=flow.flow_id,
            scope="",
            inputs=with_defaults(flow.input_schema, given),
            digests=compute_digests(steps),
            at=steps[0].step_id,
        )
        message = str(metadata.get("message", request.goal))
        self._record.record_flow_start(frame, name=flow.title, message=message, config=self._parts.version)

    def _end(self, scene: RunScope, flow: FlowConfig) -> None:
        """Record the end of the run.

        Raises:
            StepFailedError: it failed.
        """
        record, root = self._record, self._record.state.root
        if root.ended == "success":
            result, outputs = scene.result_of(root)
            values = replace(scene.values(root), outputs=outputs)
            told = scene.values_for_text(root, values)
            done = "" if record.state.unread else scene.wording.done
            own = fill(flow.response, told) if flow.response else result if done else ""
            record.record_finish(root.response or text_of(own) or done, result)
            return
        status, problem = scene.failure_status(root), scene.problem_of(root)
        if status == "declined":
            told = describe_changes(record, self._file, scene.wording, said=scene.wording.denied)
            record.record_abort(by="", reason=problem, output=told)
            return
        failed = self._find_failed_step(root)
        raise StepFailedError(
            f"The step {failed!r} of {flow.title} has failed: {problem}",
            step=failed,
            said=scene.message_of(root),
            advice="Correct the problem, and resume the run: it continues with this step.",
        )

    def _find_failed_step(self, frame: Frame) -> str:
        """Return the path of the innermost step that failed."""
        for inner in self._record.state.frames_inside(frame.path, frame.at):
            if inner.ended == "failure":
                return self._find_failed_step(inner)
        return frame.path + frame.at

    async def _fail(self, error: LoomError) -> None:
        await self._calls.abandon()
        kind, message = _describe_failure(error, self._wording)
        said = self._wording.failed.format(flow=self._title, said=message)
        self._record.record_failure(error, failure=kind, output=said)

    async def _end_aborted(self, abort: Abort) -> None:
        self._parts.audit.record_abort(self._record.run, by=abort.by)
        await self._calls.abandon()
        wording, state = self._wording, self._record.state
        if state.frames and state.root.ended == "success":  # it had ended before it could be aborted
            told = wording.too_late.format(flow=self._title)
        else:
            said = wording.cancelled.format(flow=self._title)
            told = describe_changes(self._record, self._file, wording, said=said)
        self._record.record_abort(by=abort.by, reason=abort.reason, output=told)

    @property
    def _title(self) -> str:
        """The title of the flow."""
        request = self._record.run.request
        flow = self._file.flow(request.profile)
        return request.goal if flow is None else flow.title


def _describe_failure(error: LoomError, wording: FlowMessages) -> tuple[str, str]:
    """Return the kind of an error that ends a run, for its journal, and the message for users."""
    match error:
        case StepFailedError():
            return "step", error.said
        case FlowTimeoutError():
            return "budget", wording.too_long
        case FlowChangedError():
            return "changed", wording.changed
        case CorrectionError():
            return "correction", error.message
        case _:
            return "other", wording.broken


_BROKEN_OFF = "The run was cancelled before there was an answer."


def describe_changes(record: FlowRecorder, file: FlowFile, wording: FlowMessages, *, said: str) -> str:
    """Describe for the user the side effects of a run that ends early, and those that are uncertain.

    A running step with side effects becomes `unknown`. `said` is the text about the end itself.
    """
    state = record.state
    found = [
        (step.place, frame, step)
        for frame in state.frames.values()
        for step in frame.steps.values()
        if state.has_changed(frame, step)
    ]
    done: list[str] = []
    unknown: list[str] = []
    for _, frame, step in sorted(found, key=lambda each: each[0]):
        title = step_title(file, frame.flow_id, step.step_id)
        (done if step.status == "success" else unknown).append(title)
        if step.begun:
            record.record_step_end(
                frame,
                step.step_id,
                status="unknown",
                outputs={},
                problem=_BROKEN_OFF,
                following=NextStep("fail"),
                seconds=0.0,
                maybe_done=True,
            )
    lines = [said]
    if done:
        lines.append(wording.done_before.format(steps=wording.join.join(dict.fromkeys(done))))
    if unknown:
        lines.append(wording.maybe_done_before.format(steps=wording.join.join(dict.fromkeys(unknown))))
    return "\n".join(lines)


class CurrentSteps:
    """The current definitions of a run's steps."""

    def __init__(self, file: FlowFile, state: FlowState) -> None:
        self._file = file
        self._state = state

    def steps_of(self, frame: Frame) -> list[StepConfig]:
        """Return the steps of a list.

        Raises:
            NotFoundError: the list does not exist any more.
        """
        steps = list(flow_steps(self._file, self._file.find_flow(frame.flow_id)))
        if frame.path == frame.scope:
            return steps
        for step in iter_steps(steps):
            if step.step_id == frame.step and (inner := step.inner_steps(frame.number)):
                return list(inner)
        raise NotFoundError(f"There is no list of steps {frame.path!r} any more.")

    def digests(self) -> dict[str, Digests]:
        """Return the digests of all lists that still exist."""
        found: dict[str, Digests] = {}
        for path, frame in self._state.frames.items():
            try:
                found[path] = compute_digests(self.steps_of(frame))
            except LoomError:
                continue
        return found

    def list_known(self) -> list[str]:
        """Return the paths of all steps that the run can continue from."""
        return [path + step_id for path, digests in self.digests().items() for step_id, _ in digests]

    def check_unchanged(self) -> None:
        """Raise an error if a completed step is not the same in the current file.

        Raises:
            FlowChangedError: a completed step is not the same.
            NotFoundError: the flow does not exist any more.
        """
        for frame in self._state.frames.values():
            if frame.path == frame.scope and not frame.ended:
                flow = self._file.find_flow(frame.flow_id)
                now = compute_digests(flow_steps(self._file, flow))
                step = find_changed_step(frame.digests, now, list(frame.steps))
                if step:
                    raise FlowChangedError(
                        f"The flow {flow.title!r} has changed since this run began: its step {step!r} "
                        "is different.",
                        advice="Retry the run from a step to continue with the changed flow, or abort it.",
                    )


_MAX_WAIT_LENGTH = 3600.0


class StepMachine:
    """State machine that executes lists of steps of one run.

    Its state follows from the journal; so a step with a result is never repeated, also after a crash. `gate`
    returns when a new step may start.

    Attributes:
        scene: the run.
        work: runner of steps.
    """

    def __init__(
        self,
        scene: RunScope,
        people: HumanBroker,
        *,
        calls: RunningCalls,
        gate: Callable[[], Awaitable[None]],
    ) -> None:
        self.scene = scene
        self.work = StepRunner(scene, people, calls=calls, run_frame=self.run)
        self._parts = scene.parts
        self._record = scene.record
        self._present = CurrentSteps(scene.parts.file, scene.record.state)
        self._gate = gate

    async def run(self, frame: Frame) -> None:
        """Execute a list of steps until `Frame.ended` is set.

        Raises:
            FlowRewoundError: the flow of this list, which is inside one of its steps, was rewound.
            StoreError: the journal cannot be written.
        """
        steps = {step.step_id: step for step in self._present.steps_of(frame)}
        while not frame.ended:
            await self._gate()
            step = frame.steps.get(frame.at)
            next_id = frame.at
            if step is not None and step.due is not None:
                if step.via:
                    next_id = step.via
                else:
                    await anyio.sleep(min(max(step.due - time(), 0.0), _MAX_WAIT_LENGTH))
                    await self._gate()
            try:
                await self._visit(frame, steps, next_id)
            except FlowRewoundError:
                if frame.path != frame.scope:
                    raise  # the flow around this list continues elsewhere
                await self._record.commit()

    async def _visit(self, frame: Frame, steps: Mapping[str, StepConfig], step_id: str) -> None:
        """Execute a step, and record its outcome and the next step."""
        if step_id not in steps:
            raise FlowChangedError(
                f"The flow {frame.flow_id!r} has no step {step_id!r} any more, and the run is at it.",
                advice="Retry it from an existing step.",
            )
        step, began = steps[step_id], monotonic()
        try:
            if self._may_visit(frame, step_id):
                outcome, circles = await self.work.run(frame, step), False
            else:
                self._record.record_step_start(frame, step_id, "")
                problem = f"It was visited {self._parts.limits.visits} times: this is an endless loop."
                outcome, circles = StepOutcome(status="failure", problem=problem), True
            outcome, outputs, values = self._evaluate(frame, step, outcome)
            if step_id != frame.at:
                following = NextStep("end" if outcome.status == "success" else "fail")
            elif circles:
                following = NextStep("fail")
            else:
                outcome, following = self._next_step(frame, list(steps), step, outcome, values)
            self._record.record_step_end(
                frame,
                step_id,
                status=outcome.status,
                outputs=outputs,
                problem=outcome.problem,
                said=outcome.said,
                told=outcome.told if outcome.status == "success" else "",
                following=following,
                seconds=monotonic() - began,
                maybe_done=outcome.maybe_done or outcome.status == "unknown",
            )
        finally:
            self.work.record_end(frame, step_id)
        await self._record.commit()

    def _may_visit(self, frame: Frame, step_id: str) -> bool:
        """Return whether the visit limit allows another visit."""
        step = frame.steps.get(step_id)
        goes_on = step is not None and (step.begun or step.due is not None)
        return goes_on or frame.visits[step_id] < self._parts.limits.visits

    def _evaluate(
        self, frame: Frame, step: StepConfig, outcome: StepOutcome
    ) -> tuple[StepOutcome, dict[str, Any], ExpressionValues]:
        """Evaluate a step's criteria and outputs; return its outcome, outputs and values."""
        outputs = dict(outcome.outputs)
        values = self.scene.values(frame, step.step_id, outputs, response=outcome.response)
        try:
            if outcome.status == "success" and not all_hold(step.success_criteria, values):
                problem = "Its success criteria do not hold."
                told = self.scene.values_for_text(frame, values)
                said = self._failure_message(step, told) or self.scene.wording.refused
                outcome = replace(outcome, status="failure", problem=problem, said=said)
            succeeded = outcome.status == "success"
            if outcome.response is not None or succeeded:
                for name, each in step.outputs.items():
                    outputs[name] = read_output(name, each, values, succeeded=succeeded)
        except LoomError as error:
            risky, said = frame.steps[step.step_id].risky, self.scene.wording.unusable
            outcome = outcome.unreadable(str(error), said=said, risky=risky)
        return outcome, outputs, self.scene.values(frame, step.step_id, outputs, response=outcome.response)

    def _failure_message(self, step: StepConfig, values: ExpressionValues) -> str:
        """Return the `failure` text of a step's request; empty if there is none."""
        told = failure_message(step.request(), values) if step.kind == "operation" else ""
        return self.scene.wording.part_of(told)

    def _next_step(
        self,
        frame: Frame,
        ids: Sequence[str],
        step: StepConfig,
        outcome: StepOutcome,
        values: ExpressionValues,
    ) -> tuple[StepOutcome, NextStep]:
        """Return the next step: of the first action whose criteria hold, else the default."""
        succeeded = outcome.status == "success"
        actions = step.on_success if succeeded else step.on_failure
        try:
            for number, action in enumerate(actions):
                if all_hold(action.criteria, values, lenient=not succeeded):
                    name = action.name or f"{number + 1}"
                    following = self._apply_action(frame, step, action, name, outcome, values)
                    if following is not None:
                        return outcome, following
        except LoomError as error:
            risky = succeeded and frame.steps[step.step_id].risky
            said = self.scene.wording.unusable
            return outcome.unreadable(str(error), said=said, risky=risky), NextStep("fail")
        if not succeeded:
            return outcome, NextStep("fail")
        place = ids.index(step.step_id) + 1
        return outcome, NextStep("step", ids[place]) if place < len(ids) else NextStep("end")

    def _apply_action(
        self,
        frame: Frame,
        step: StepConfig,
        action: Action,
        name: str,
        outcome: StepOutcome,
        values: ExpressionValues,
    ) -> NextStep | None:
        """Return the next step by an action; None for a `retry` that is not possible or exceeds its limit."""
        match action.type:
            case "goto":
                return NextStep("step", action.step_id, action=name)
            case "end":
                values = replace(values, outputs=self.scene.outputs_of(frame, values))
                told = self.scene.values_for_text(frame, values)
                response = text_of(fill(action.response, told)) if action.response else ""
                return NextStep("end", action=name, response=response)
            case "retry":
                before = frame.steps[step.step_id]
                if outcome.status in {"success", "declined"} or outcome.final:
                    return None
                if before.retries[name] >= action.retry_limit:
                    return None
                wait = action.retry_after if outcome.retry_after is None else outcome.retry_after
                due = time() + min(wait, _MAX_WAIT_LENGTH)
                return NextStep("retry", action.step_id, at=due, action=name)
