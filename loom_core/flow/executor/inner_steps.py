"""Steps that are made of steps: branches side by side, and other flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.flow.executor.definition import digests_of, find_flow, flow_steps
from loom_core.flow.executor.frame import Frame, StepStatus
from loom_core.flow.executor.inputs import checked_inputs, with_defaults
from loom_core.flow.executor.outcome import Outcome, Response
from loom_core.flow.expressions import fill

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import StepConfig
    from loom_core.flow.executor.scene import Scene

__all__ = ["InnerSteps"]

_WORST: tuple[StepStatus, ...] = ("unknown", "failure", "declined", "running", "success")


class InnerSteps:
    """Does such steps of one run.

    Args:
        scene: the run.
        run_frame: takes a list of steps to its end.
    """

    def __init__(self, scene: Scene, run_frame: Callable[[Frame], Awaitable[None]]) -> None:
        self._scene = scene
        self._run_frame = run_frame

    async def workflow(self, frame: Frame, step: StepConfig) -> Outcome:
        """Run another flow, as a part of this run."""
        state, file = self._scene.record.state, self._scene.parts.file
        flow = find_flow(file, step.workflow_id)
        path = f"{frame.path}{step.step_id}/"
        self._scene.enter(frame, step, flow.flow_id)
        inner = state.frames.get(path)
        if inner is None:
            if self._depth(frame) >= self._scene.parts.limits.depth:
                return Outcome(status="failure", problem="There are too many flows within each other.")
            values = self._scene.values(frame)
            given = cast("dict[str, Any]", fill(step.arguments, values))
            if not step.parameters:
                known = cast("Mapping[str, Any]", flow.input_schema.get("properties", {}))
                given = {name: value for name, value in values.inputs.items() if name in known}
            given = checked_inputs(flow, with_defaults(flow.input_schema, given), whole=False)
            steps = flow_steps(file, flow)
            inner = Frame(
                path=path,
                parent=frame.path,
                step=step.step_id,
                key=f"{state.key_of(frame, step.step_id)}/",
                flow_id=flow.flow_id,
                scope=path,
                inputs=given,
                digests=digests_of(steps),
                at=steps[0].step_id,
            )
            self._scene.record.flow_begun(inner, name=flow.title, message=state.message, config=state.config)
        await self._scene.questions.inputs(inner, flow)
        if flow.confirm == "always":
            await self._scene.questions.begin(inner, flow, "")
        await self._run_frame(inner)
        result, outputs = self._scene.result_of(inner)
        if inner.ended == "failure":
            status = self._scene.failed_as(inner)
            return Outcome(
                status=status,
                problem=self._scene.problem_of(inner),
                said=self._scene.said_of(inner),
                final=status == "unknown",
            )
        return Outcome(response=Response(body=result), outputs={**outputs, "result": result})

    async def parallel(self, frame: Frame, step: StepConfig) -> Outcome:
        """Run lists of steps side by side; one that fails lets the others end."""
        state = self._scene.record.state
        self._scene.enter(frame, step, "")
        inside = state.inside(frame.path, step.step_id)
        if not inside:
            key = state.key_of(frame, step.step_id)
            for number, branch in enumerate(step.parallel):
                inner = Frame(
                    path=f"{frame.path}{step.step_id}/{number}/",
                    parent=frame.path,
                    step=step.step_id,
                    key=f"{key}/{number}/",
                    flow_id=frame.flow_id,
                    scope=frame.scope,
                    inputs={},
                    digests=digests_of(branch),
                    at=branch[0].step_id if branch else "",
                    ended="" if branch else "success",
                )
                self._scene.record.branch_begun(inner, number)
                inside.append(inner)
        await self._side_by_side([inner for inner in inside if not inner.ended])
        failed = [inner for inner in inside if inner.ended == "failure"]
        if not failed:
            return Outcome()
        kinds: set[StepStatus] = {self._scene.failed_as(inner) for inner in failed}
        status: StepStatus = next(kind for kind in _WORST if kind in kinds)
        problem = " ".join(self._scene.problem_of(inner) for inner in failed)
        said = self._scene.wording.space.join(dict.fromkeys(self._scene.said_of(inner) for inner in failed))
        return Outcome(status=status, problem=problem, said=said, final=status == "unknown")

    async def _side_by_side(self, frames: list[Frame]) -> None:
        left = len(frames)

        async def branch(frame: Frame) -> None:
            nonlocal left
            await self._run_frame(frame)
            self._scene.record.branch_ended(frame)
            left -= 1
            if left:
                self._scene.idling.ended()

        if frames:
            self._scene.idling.split(left)
            async with anyio.create_task_group() as group:
                for frame in frames:
                    group.start_soon(branch, frame)

    def _depth(self, frame: Frame) -> int:
        depth = 1
        while frame.parent is not None:
            outer = self._scene.record.state.frames[frame.parent]
            depth += frame.scope != outer.scope
            frame = outer
        return depth
