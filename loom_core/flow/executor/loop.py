"""Execution of a flow's run, step by step, from its journalled state until it ends or waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.agent.calling_run import CallingRun, calling_run, calls_of
from loom_core.errors import LoomError, NotFoundError
from loom_core.flow.executor.asking import DeclinedError, FlowQuestions
from loom_core.flow.executor.correcting import CorrectionError, WentBackError, way_back
from loom_core.flow.executor.definition import (
    FlowChangedError,
    digests_of,
    every_step,
    flow_steps,
    step_title,
    unchanged_problem,
)
from loom_core.flow.executor.failing import FlowTimeError, StepFailedError, failure_of, said_of
from loom_core.flow.executor.idling import Idling
from loom_core.flow.executor.inputs import input_names_of, with_defaults
from loom_core.flow.executor.record import FlowRecord
from loom_core.flow.executor.state import Frame, Next
from loom_core.flow.executor.steps.context import Scene, StepOutcome
from loom_core.flow.executor.steps.runner import StepWork
from loom_core.flow.executor.wording import Wording
from loom_core.flow.expressions import (
    IncomparableError,
    Values,
    criterion_holds,
    fill,
    read_output,
    text_of,
)
from loom_core.flow.http.answer import failure_told
from loom_core.flow.responses.phrases import Phrases, language_of_run
from loom_core.observability.spans import INVOKE_WORKFLOW
from loom_core.runs.commands import Order, Resume, Retry
from loom_core.runs.executor import Driving
from loom_core.tools.execution.call_run import LAST_WORDS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup

    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.config.models_endpoint import Criterion
    from loom_core.flow.config.models_step import Action, StepConfig
    from loom_core.flow.executor.definition import Digests
    from loom_core.flow.executor.parts import FlowParts
    from loom_core.flow.executor.state import FlowState
    from loom_core.runs.commands import Abort
    from loom_core.runs.human_broker import People
    from loom_core.runs.journal import RunLog
    from loom_core.runs.run import Run

__all__ = ["FlowLoop", "PresentSteps", "StepMachine", "told_of_changes"]


class FlowLoop(Driving[FlowRecord]):
    """Executor of one run of a flow.

    It is a state machine whose state follows from the journalled events. Each step is in the journal before
    it does anything, and with its result afterwards; so a step with a result is never repeated. If a step
    was running at a crash and must not be done twice, the user is asked.

    While all parts wait for people, the run is parked: no process holds it, and a response resumes it in any
    process.

    Args:
        parts: dependencies.
        log: the claimed run.
    """

    span_form = INVOKE_WORKFLOW

    def __init__(self, parts: FlowParts, log: RunLog) -> None:
        setting = parts.file.basic_settings.language
        language = language_of_run(log.run.request, setting=setting)
        asking = parts.asking
        if asking.approve is None:  # users who respond by commands are customers
            phrases, unapproved = Phrases.of(language), Wording.of(language).unapproved
            asking = replace(asking, unapproved=unapproved, confirmation=phrases.confirmation)
        super().__init__(log, FlowRecord(log), asking=asking)
        self._file = parts.spoken[language]
        self._parts = parts = replace(parts, file=self._file)
        self._wording = Wording.of(language)
        self._calling = CallingRun(self._record, asking)
        self._machine: StepMachine | None = None
        self._idling: Idling | None = None
        self._problem: LoomError | None = None
        self._present = PresentSteps(parts.file, self._record.state)
        self._group: TaskGroup | None = None

    async def drive(self) -> Run:
        """Execute the run; see `RunExecutor.execute`."""
        outer = calling_run()
        self._log.observe(self._parts.audit)
        try:
            with calls_of(self._calling), nullcontext() if outer is None else outer.drives(self.leave):
                return await super().drive()
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LAST_WORDS_SECONDS):
                await self._parts.audit.write()

    async def _begin(self) -> None:
        """Do nothing here: `_advance` adds the flow's frame, so that its errors are the run's."""

    async def _left(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._calling.leave)
            if self._machine is not None:
                group.start_soon(self._machine.work.leave)

    def _stop(self) -> None:
        """Cancel running steps; those with side effects get a moment to end."""
        machine, group = self._machine, self._group
        if machine is None or group is None or not machine.work.stop():
            super()._stop()
        else:
            group.start_soon(self._settle, machine)

    async def _settle(self, machine: StepMachine) -> None:
        with anyio.move_on_after(self._parts.limits.settle_seconds):
            await machine.work.abandon()  # work elsewhere for a tool call need not be waited for
            await machine.work.settled()
        super()._stop()

    async def _gate(self) -> None:
        if self._abort is not None:
            await anyio.sleep_forever()  # until running steps have settled
        if self._record.paused and self._idling is not None:
            with self._idling.waiting():
                await super()._gate()
        else:
            await super()._gate()

    def _goes_on(self, reviving: Order | None) -> bool:
        # A message to a flow that has just ended is for the next one.
        return isinstance(reviving, Resume | Retry)

    def _over_time(self) -> LoomError:
        seconds = self._record.run.request.budget.seconds
        return FlowTimeError(
            f"The flow exceeded its timeout of {seconds:g} s.",
            advice="Resume it to grant the same time again.",
        )

    def _revive(self, order: Order) -> None:
        record, self._problem = self._record, None
        if not isinstance(order, Retry) or not record.state.frames:
            record.resumed_by(order.by)
            return
        try:
            path, step_id = self._place_of(order)
        except LoomError as error:
            record.resumed_by(order.by)
            self._problem = error
            return
        record.retried(
            order.by,
            path=path,
            step_id=step_id,
            digests=self._present.digests(),
            config=self._parts.version,
            inputs=order.inputs,
        )

    def _place_of(self, order: Retry) -> tuple[str, str]:
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
            known = [] if frame is None else [step.step_id for step in self._present.of(frame)]
            if step_id not in known:
                raise NotFoundError(
                    f"The run cannot continue from the step {order.step!r}: "
                    "it does not exist, or was not reached.",
                    advice=f"There are: {', '.join(known or self._present.known())}.",
                )
        root = state.root
        changed = [name for name, value in order.inputs.items() if root.inputs.get(name) != value]
        way = way_back(state, self._file, root, changed)
        if way.done:
            schema = self._file.find_flow(root.flow_id).input_schema
            raise CorrectionError(self._wording.used_by(way, input_names_of(schema, changed)))
        begun = None if frame is None else frame.steps.get(step_id)
        is_before = bool(step_id) and (begun is None or way.place < begun.place)
        return ("", way.step) if way.step and (is_before or not step_id) else (path, step_id)

    async def _advance(self, people: People, group: TaskGroup) -> None:
        record, state = self._record, self._record.state
        if self._problem is not None:
            raise self._problem
        if not state.frames:
            self._start()
        if state.config != self._parts.version:
            self._present.check_unchanged()
            record.flow_changed(self._parts.version, self._present.digests())
        self._group, wording = group, self._wording
        self._idling = idling = Idling(self._park)
        questions = FlowQuestions(record, people, file=self._file, wording=wording, idle=idling.waiting)
        scene = Scene(self._parts, record, questions=questions, idling=idling, wording=wording)
        self._machine = machine = StepMachine(scene, people, gate=self._gate)
        flow, root = self._file.find_flow(state.root.flow_id), state.root
        try:
            await self._gate()
            if not root.steps:
                await questions.inputs(root, flow)
                metadata = record.run.request.metadata
                if metadata.get("confirm"):
                    await questions.begin(root, flow, str(metadata.get("confirm_reason", "")))
        except DeclinedError as error:
            record.aborted(by=error.by, reason=error.reason, output=wording.denied)
            return
        while True:
            await machine.run(root)
            await record.commit()
            self._obey_all()  # no message before the end remains unread
            if not record.paused and self._abort is None:
                break
            await self._gate()
        self._end(scene, flow)

    def _start(self) -> None:
        """Start the flow."""
        request = self._record.run.request
        flow = self._file.find_flow(request.profile)
        steps = flow_steps(self._file, flow)
        metadata: Mapping[str, Any] = request.metadata
        if isinstance(route := metadata.get("route"), Mapping):
            self._record.routed(cast("Mapping[str, Any]", route))
        given = cast("Mapping[str, Any]", metadata.get("inputs") or {})
        frame = Frame(
            path="",
            parent=None,
            step="",
            key="",
            flow_id=flow.flow_id,
            scope="",
            inputs=with_defaults(flow.input_schema, given),
            digests=digests_of(steps),
            at=steps[0].step_id,
        )
        message = str(metadata.get("message", request.goal))
        self._record.flow_begun(frame, name=flow.title, message=message, config=self._parts.version)

    def _end(self, scene: Scene, flow: FlowConfig) -> None:
        """Record the end of the run.

        Raises:
            StepFailedError: it failed.
        """
        record, root = self._record, self._record.state.root
        if root.ended == "success":
            result, outputs = scene.result_of(root)
            values = replace(scene.values(root), outputs=outputs)
            told = scene.told(root, values)
            text = root.response or text_of(fill(flow.response, told) if flow.response else result)
            record.finished(text or scene.wording.done, result)
            return
        status, problem = scene.failed_as(root), scene.problem_of(root)
        if status == "declined":
            told = told_of_changes(record, self._file, scene.wording, said=scene.wording.denied)
            record.aborted(by="", reason=problem, output=told)
            return
        failed = self._failed_step(root)
        raise StepFailedError(
            f"The step {failed!r} of {flow.title} has failed: {problem}",
            step=failed,
            said=scene.said_of(root),
            advice="Correct the problem, and resume the run: it continues with this step.",
        )

    def _failed_step(self, frame: Frame) -> str:
        """Return the path of the innermost step that failed."""
        for inner in self._record.state.inside(frame.path, frame.at):
            if inner.ended == "failure":
                return self._failed_step(inner)
        return frame.path + frame.at

    async def _fail(self, error: LoomError) -> None:
        if self._machine is not None:
            await self._machine.work.abandon()
        wording = self._wording
        said = wording.failed.format(flow=self._title, said=said_of(error, wording))
        self._record.failed(error, failure=failure_of(error), output=said)

    async def _end_aborted(self, abort: Abort) -> None:
        self._parts.audit.aborted(self._record.run, by=abort.by)
        if self._machine is not None:
            await self._machine.work.abandon()
        wording, state = self._wording, self._record.state
        if state.frames and state.root.ended == "success":  # it had ended before it could be aborted
            told = wording.too_late.format(flow=self._title)
        else:
            said = wording.cancelled.format(flow=self._title)
            told = told_of_changes(self._record, self._file, wording, said=said)
        self._record.aborted(by=abort.by, reason=abort.reason, output=told)

    @property
    def _title(self) -> str:
        """The title of the flow."""
        request = self._record.run.request
        flow = self._file.flow(request.profile)
        return request.goal if flow is None else flow.title


_BROKEN_OFF = "The run was cancelled before there was an answer."


def told_of_changes(record: FlowRecord, file: FlowFile, wording: Wording, *, said: str) -> str:
    """Describe for the user the side effects of a run that ends early, and those that are uncertain.

    A running step with side effects becomes `unknown`.

    Args:
        record: recorder of the run.
        file: the flows.
        wording: messages in the user's language.
        said: the text about the end itself.
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
            record.step_ended(
                frame,
                step.step_id,
                status="unknown",
                outputs={},
                problem=_BROKEN_OFF,
                following=Next("fail"),
                seconds=0.0,
                maybe_done=True,
            )
    lines = [said]
    if done:
        lines.append(wording.done_before.format(steps=wording.join.join(dict.fromkeys(done))))
    if unknown:
        lines.append(wording.maybe_done_before.format(steps=wording.join.join(dict.fromkeys(unknown))))
    return "\n".join(lines)


class PresentSteps:
    """The current definitions of a run's steps.

    Args:
        file: the flows.
        state: of the run.
    """

    def __init__(self, file: FlowFile, state: FlowState) -> None:
        self._file = file
        self._state = state

    def of(self, frame: Frame) -> list[StepConfig]:
        """Return the steps of a list.

        Raises:
            NotFoundError: the list does not exist any more.
        """
        steps = list(flow_steps(self._file, self._file.find_flow(frame.flow_id)))
        if frame.path == frame.scope:
            return steps
        for step in every_step(steps):
            number = int(frame.path.rsplit("/", 2)[1])
            if step.step_id == frame.step and number < len(step.parallel):
                return list(step.parallel[number])
        raise NotFoundError(f"There is no branch {frame.path!r} any more.")

    def digests(self) -> dict[str, Digests]:
        """Return the digests of all lists that still exist."""
        found: dict[str, Digests] = {}
        for path, frame in self._state.frames.items():
            try:
                found[path] = digests_of(self.of(frame))
            except LoomError:
                continue
        return found

    def known(self) -> list[str]:
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
                now = digests_of(flow_steps(self._file, flow))
                step = unchanged_problem(frame.digests, now, list(frame.steps))
                if step:
                    raise FlowChangedError(
                        f"The flow {flow.title!r} has changed since this run began: its step {step!r} "
                        "is different.",
                        advice="Retry the run from a step to continue with the changed flow, or abort it.",
                    )


_LONGEST_WAIT = 3600.0


class StepMachine:
    """State machine that executes lists of steps of one run.

    Its state follows from the journal; so a step with a result is never repeated, also after a crash.

    Args:
        scene: the run.
        people: human-in-the-loop broker for tools' questions.
        gate: returns when a new step may start.

    Attributes:
        scene: the run.
        work: runner of steps.
    """

    def __init__(self, scene: Scene, people: People, *, gate: Callable[[], Awaitable[None]]) -> None:
        self.scene = scene
        self.work = StepWork(scene, people, run_frame=self.run)
        self._parts = scene.parts
        self._record = scene.record
        self._gate = gate

    async def run(self, frame: Frame) -> None:
        """Execute a list of steps until `Frame.ended` is set.

        Raises:
            RecordError: the journal cannot be written.
        """
        steps = self._steps(frame)
        while not frame.ended:
            await self._gate()
            step = frame.steps.get(frame.at)
            next_id = frame.at
            if step is not None and step.due is not None:
                if step.via:
                    next_id = step.via
                else:
                    await anyio.sleep(min(max(step.due - time(), 0.0), _LONGEST_WAIT))
                    await self._gate()
            try:
                await self._visit(frame, steps, next_id)
            except WentBackError:
                await self._record.commit()

    def _steps(self, frame: Frame) -> dict[str, StepConfig]:
        """Return the steps of a frame, in order."""
        outer = frame
        numbers: list[int] = []
        while outer.path != outer.scope:  # a branch: its steps are defined in the parent frame
            numbers.append(int(outer.path.rsplit("/", 2)[1]))
            assert outer.parent is not None
            outer = self._record.state.frames[outer.parent]
        if outer is frame:
            steps = flow_steps(self._parts.file, self._parts.file.find_flow(frame.flow_id))
        else:
            assert frame.parent is not None
            around = self._steps(self._record.state.frames[frame.parent])
            steps = around[frame.step].parallel[numbers[0]]
        return {step.step_id: step for step in steps}

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
                outcome, circles = await self.work.outcome(frame, step), False
            else:
                self._record.step_begun(frame, step_id, "")
                problem = f"It was visited {self._parts.limits.visits} times: this is an endless loop."
                outcome, circles = StepOutcome(status="failure", problem=problem), True
            outcome, outputs, values = self._judged(frame, step, outcome)
            if step_id != frame.at:
                following = Next("end" if outcome.status == "success" else "fail")
            elif circles:
                following = Next("fail")
            else:
                outcome, following = self._following(frame, list(steps), step, outcome, values)
            self._record.step_ended(
                frame,
                step_id,
                status=outcome.status,
                outputs=outputs,
                problem=outcome.problem,
                said=outcome.said,
                following=following,
                seconds=monotonic() - began,
                maybe_done=outcome.maybe_done or outcome.status == "unknown",
            )
        finally:
            self.work.ended(frame, step_id)
        await self._record.commit()

    def _may_visit(self, frame: Frame, step_id: str) -> bool:
        """Return whether the visit limit allows another visit."""
        step = frame.steps.get(step_id)
        goes_on = step is not None and (step.begun or step.due is not None)
        return goes_on or frame.visits[step_id] < self._parts.limits.visits

    def _judged(
        self, frame: Frame, step: StepConfig, outcome: StepOutcome
    ) -> tuple[StepOutcome, dict[str, Any], Values]:
        """Evaluate a step's criteria and outputs; return its outcome, outputs and values."""
        outputs = dict(outcome.outputs)
        values = self.scene.values(frame, step.step_id, outputs, response=outcome.response)
        try:
            if outcome.status == "success" and not _all_hold(step.success_criteria, values):
                problem = "Its success criteria do not hold."
                said = self._told_by_file(step, values) or self.scene.wording.refused
                outcome = replace(outcome, status="failure", problem=problem, said=said)
            succeeded = outcome.status == "success"
            if outcome.response is not None or succeeded:
                for name, each in step.outputs.items():
                    outputs[name] = read_output(name, each, values, succeeded=succeeded)
        except LoomError as error:
            risky, said = frame.steps[step.step_id].risky, self.scene.wording.unusable
            outcome = outcome.unreadable(str(error), said=said, risky=risky)
        return outcome, outputs, self.scene.values(frame, step.step_id, outputs, response=outcome.response)

    def _told_by_file(self, step: StepConfig, values: Values) -> str:
        """Return the `failure` text of a step's request; empty if there is none."""
        told = failure_told(step.request(), values) if step.kind == "operation" else ""
        return self.scene.wording.part_of(told)

    def _following(
        self, frame: Frame, ids: Sequence[str], step: StepConfig, outcome: StepOutcome, values: Values
    ) -> tuple[StepOutcome, Next]:
        """Return the next step: of the first action whose criteria hold, else the default."""
        succeeded = outcome.status == "success"
        actions = step.on_success if succeeded else step.on_failure
        try:
            for number, action in enumerate(actions):
                if _all_hold(action.criteria, values, failed=not succeeded):
                    name = action.name or f"{number + 1}"
                    following = self._by_action(frame, step, action, name, outcome, values)
                    if following is not None:
                        return outcome, following
        except LoomError as error:
            risky = succeeded and frame.steps[step.step_id].risky
            said = self.scene.wording.unusable
            return outcome.unreadable(str(error), said=said, risky=risky), Next("fail")
        if not succeeded:
            return outcome, Next("fail")
        place = ids.index(step.step_id) + 1
        return outcome, Next("step", ids[place]) if place < len(ids) else Next("end")

    def _by_action(
        self,
        frame: Frame,
        step: StepConfig,
        action: Action,
        name: str,
        outcome: StepOutcome,
        values: Values,
    ) -> Next | None:
        """Apply an action; return None if its criteria do not hold."""
        match action.type:
            case "goto":
                return Next("step", action.step_id, action=name)
            case "end":
                values = replace(values, outputs=self.scene.outputs_of(frame, values))
                response = (
                    text_of(fill(action.response, self.scene.told(frame, values))) if action.response else ""
                )
                return Next("end", action=name, response=response)
            case "retry":
                before = frame.steps[step.step_id]
                if outcome.status in {"success", "declined"} or outcome.final:
                    return None
                if before.retries[name] >= action.retry_limit:
                    return None
                wait = action.retry_after if outcome.retry_after is None else outcome.retry_after
                due = time() + min(wait, _LONGEST_WAIT)
                return Next("retry", action.step_id, at=due, action=name)


def _all_hold(criteria: Sequence[Criterion], values: Values, *, failed: bool = False) -> bool:
    """Return whether all criteria hold; after a failure, criteria on missing values do not hold."""
    try:
        return all(criterion_holds(each, values) for each in criteria)
    except IncomparableError:
        if failed:
            return False
        raise
