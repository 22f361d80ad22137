"""Takes a flow from step to step, as far as it goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.errors import LoomError
from loom_core.flow.executor.correcting import WentBackError
from loom_core.flow.executor.definition import FlowChangedError, find_flow, flow_steps
from loom_core.flow.executor.frame import Frame, Next
from loom_core.flow.executor.steps.context import Scene
from loom_core.flow.executor.steps.outcome import Outcome
from loom_core.flow.executor.steps.runner import StepWork
from loom_core.flow.expressions import (
    IncomparableError,
    Values,
    criterion_holds,
    fill,
    read_output,
    text_of,
)
from loom_core.flow.http.judgement import failure_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.flow.config.models_endpoint import Criterion
    from loom_core.flow.config.models_step import Action, StepConfig
    from loom_core.runs.human_broker import People

__all__ = ["StepMachine"]

_LONGEST_WAIT = 3600.0


class StepMachine:
    """Takes lists of steps of one run to their end.

    Where each stands follows from the journal; so what has a result is not done again, also after a crash.

    Args:
        scene: the run.
        people: answer what tools ask.
        gate: returns when something new may begin.

    Attributes:
        scene: the run.
        work: does the steps.
    """

    def __init__(self, scene: Scene, people: People, *, gate: Callable[[], Awaitable[None]]) -> None:
        self.scene = scene
        self.work = StepWork(scene, people, run_frame=self.run)
        self._parts = scene.parts
        self._record = scene.record
        self._gate = gate

    async def run(self, frame: Frame) -> None:
        """Go on until a list of steps is at its end, which is in `Frame.ended` then.

        Raises:
            RecordError: what has to be written down cannot be.
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
        """The steps of a frame, in their order."""
        outer = frame
        numbers: list[int] = []
        while outer.path != outer.scope:  # a branch: its steps stand in those of the frame around it
            numbers.append(int(outer.path.rsplit("/", 2)[1]))
            assert outer.parent is not None
            outer = self._record.state.frames[outer.parent]
        if outer is frame:
            steps = flow_steps(self._parts.file, find_flow(self._parts.file, frame.flow_id))
        else:
            assert frame.parent is not None
            around = self._steps(self._record.state.frames[frame.parent])
            steps = around[frame.step].parallel[numbers[0]]
        return {step.step_id: step for step in steps}

    async def _visit(self, frame: Frame, steps: Mapping[str, StepConfig], step_id: str) -> None:
        """Do a step, and write down what came of it and what follows."""
        if step_id not in steps:
            raise FlowChangedError(
                f"The flow {frame.flow_id!r} has no step {step_id!r} any more, and the run stands there.",
                advice="Retry it from a step that there is.",
            )
        step, began = steps[step_id], monotonic()
        try:
            if self._may_visit(frame, step_id):
                outcome, circles = await self.work.outcome(frame, step), False
            else:
                self._record.step_begun(frame, step_id, "")
                problem = f"It was come to {self._parts.limits.visits} times: this goes in circles."
                outcome, circles = Outcome(status="failure", problem=problem), True
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
        """Whether this does not go in circles."""
        step = frame.steps.get(step_id)
        goes_on = step is not None and (step.begun or step.due is not None)
        return goes_on or frame.visits[step_id] < self._parts.limits.visits

    def _judged(
        self, frame: Frame, step: StepConfig, outcome: Outcome
    ) -> tuple[Outcome, dict[str, Any], Values]:
        """The outcome by the criteria of the step, its outputs, and what was known of it."""
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
        """What the request of a step says where it fails; empty if nothing."""
        told = failure_told(step.request(), values) if step.kind == "operation" else ""
        return self.scene.wording.part_of(told)

    def _following(
        self, frame: Frame, ids: Sequence[str], step: StepConfig, outcome: Outcome, values: Values
    ) -> tuple[Outcome, Next]:
        """What follows a step: the first action whose criteria hold, else the next step or the failure."""
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
        outcome: Outcome,
        values: Values,
    ) -> Next | None:
        """What an action says; None where it does not apply."""
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
    """Whether all criteria hold. Those of a failed step do not, where what they compare is not there."""
    try:
        return all(criterion_holds(each, values) for each in criteria)
    except IncomparableError:
        if failed:
            return False
        raise
