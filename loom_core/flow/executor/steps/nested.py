"""Steps that contain other steps: another flow, branches, cases, and steps for each item of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.definition import compute_digests, flow_steps
from loom_core.flow.executor.inputs import validate_inputs, with_defaults
from loom_core.flow.executor.state import Frame, StepStatus
from loom_core.flow.executor.steps.context import RunScope, StepOutcome
from loom_core.flow.expressions import all_hold, evaluate, fill

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import (
        ForEachConfig,
        StepConfig,
    )

__all__ = ["NestedSteps"]

_SHOWN = 5  # reasons of failed lists of steps

_WORST: tuple[StepStatus, ...] = ("unknown", "failure", "declined", "running", "success")


class NestedSteps:
    """Runner of steps that contain other steps.

    `run_frame` executes a list of steps.
    """

    def __init__(self, scene: RunScope, run_frame: Callable[[Frame], Awaitable[None]]) -> None:
        self._scene = scene
        self._run_frame = run_frame

    async def run_workflow(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Run another flow as a part of this run."""
        state, file = self._scene.record.state, self._scene.parts.file
        flow = file.find_flow(step.workflow_id)
        path = f"{frame.path}{step.step_id}/"
        self._scene.enter(frame, step, flow.flow_id)
        inner = state.frames.get(path)
        if inner is None:
            if self._depth(frame) >= self._scene.parts.limits.depth:
                return StepOutcome(status="failure", problem="Flows are nested too deeply.")
            values = self._scene.values(frame)
            given = cast("dict[str, Any]", fill(step.arguments, values))
            if not step.parameters:
                known = cast("Mapping[str, Any]", flow.input_schema.get("properties", {}))
                given = {name: value for name, value in values.inputs.items() if name in known}
            given = validate_inputs(flow, with_defaults(flow.input_schema, given), whole=False)
            steps = flow_steps(file, flow)
            inner = Frame(
                path=path,
                parent=frame.path,
                step=step.step_id,
                key=f"{state.key_of(frame, step.step_id)}/",
                flow_id=flow.flow_id,
                scope=path,
                inputs=given,
                digests=compute_digests(steps),
                at=steps[0].step_id,
            )
            self._scene.record.record_flow_start(
                inner, name=flow.title, message=state.message, config=state.config
            )
        await self._scene.questions.request_inputs(inner, flow)
        if flow.confirm == "always":
            await self._scene.questions.confirm_begin(inner, flow, "")
        await self._run_frame(inner)
        result, outputs = self._scene.result_of(inner)
        if inner.ended == "failure":
            status = self._scene.failure_status(inner)
            return StepOutcome(
                status=status,
                problem=self._scene.problem_of(inner),
                said=self._scene.message_of(inner),
                final=status == "unknown",
            )
        return StepOutcome.of(result, **{**outputs, "result": result})

    async def run_lists(self, frame: Frame, step: StepConfig) -> StepOutcome:
        """Run the lists of steps inside a step; a failed one does not cancel the others."""
        self._scene.enter(frame, step, "")
        inside, each = self._frames(frame, step), step.for_each
        at_once = each.parallel if each is not None else len(inside)
        await self._run_concurrently([inner for inner in inside if not inner.ended], at_once)
        failed = [inner for inner in inside if inner.ended == "failure"]
        outputs = self._outputs(step, inside)
        if not failed:
            return StepOutcome(outputs=outputs)
        kinds: set[StepStatus] = {self._scene.failure_status(inner) for inner in failed}
        status: StepStatus = next(kind for kind in _WORST if kind in kinds)
        problems = [self._scene.problem_of(inner) for inner in failed]
        messages = [self._scene.message_of(inner) for inner in failed]
        if each is not None:
            count = {"failed": len(failed), "all": len(inside)}
            problems.insert(0, "{failed} of {all} items have failed.".format(**count))
            messages.insert(0, self._scene.wording.items_failed.format(**count))
        return StepOutcome(
            status=status,
            outputs=outputs,
            problem=" ".join(list(dict.fromkeys(problems))[:_SHOWN]),
            said=self._scene.wording.space.join(list(dict.fromkeys(messages))[:_SHOWN]),
            final=status == "unknown",
        )

    def _outputs(self, step: StepConfig, inside: Sequence[Frame]) -> dict[str, Any]:
        """Return the outputs of a step with lists of steps inside it."""
        results = [
            self._scene.last_result(inner) if inner.ended == "success" else None
            for inner in (inside if step.switch or step.for_each else ())
        ]
        if step.for_each is not None:
            return {"results": results}
        return {"result": results[0] if results else None} if step.switch else {}

    def _frames(self, frame: Frame, step: StepConfig) -> list[Frame]:
        """Return the frames of the lists to run inside a step.

        Raises:
            InvalidInputError: `for_each` has no list, or one with too many items.
        """
        if step.switch:
            return [self._frame(frame, step, number) for number in self._case(frame, step)]
        if step.for_each is not None:
            items = enumerate(self._items(frame, step.for_each))
            return [self._frame(frame, step, number, [item]) for number, item in items]
        return [self._frame(frame, step, number) for number in range(len(step.parallel))]

    def _items(self, frame: Frame, each: ForEachConfig) -> Sequence[Any]:
        """Return the items of `for_each`."""
        values = self._scene.values(frame)
        items = evaluate(each.in_, values) if isinstance(each.in_, str) else fill(each.in_, values)
        if not isinstance(items, list):
            raise InvalidInputError(f"{each.in_} is not a list, so it has no items.")
        if len(items) > each.limit:
            raise InvalidInputError(
                f"There are {len(items)} items, more than the limit of {each.limit}: nothing was done.",
                advice="Pass fewer items, or set a higher `limit`.",
            )
        return items

    def _case(self, frame: Frame, step: StepConfig) -> Sequence[int]:
        """Return the number of the case of `switch` to run, as one or none; a case that has started stays."""
        if inside := self._scene.record.state.frames_inside(frame.path, step.step_id):
            return [inner.number for inner in inside]
        values = self._scene.values(frame)
        for number, case in enumerate(step.switch):
            if all_hold(case.when or (), values):
                return [number]
        return []

    def _frame(self, frame: Frame, step: StepConfig, number: int, item: Sequence[Any] = ()) -> Frame:
        """Return the frame of a list of steps inside a step, and record its start if it has not started."""
        state, path = self._scene.record.state, f"{frame.path}{step.step_id}/{number}/"
        if path not in state.frames:
            steps = step.inner_steps(number)
            inner = Frame(
                path=path,
                parent=frame.path,
                step=step.step_id,
                key=f"{state.key_of(frame, step.step_id)}/{number}/",
                flow_id=frame.flow_id,
                scope=frame.scope,
                inputs={},
                digests=compute_digests(steps),
                at=steps[0].step_id,
                item=list(item),
            )
            self._scene.record.record_branch_start(inner)
        return state.frames[path]

    async def _run_concurrently(self, frames: Sequence[Frame], at_once: int) -> None:
        """Run lists of steps, so many of them at a time."""
        waiting, left = iter(frames), min(len(frames), at_once)

        async def work() -> None:
            nonlocal left
            for frame in waiting:
                await self._run_frame(frame)
                self._scene.record.record_branch_end(frame)
            left -= 1
            if left > 0:
                self._scene.idling.remove_task()

        if left <= 1:  # what it raises, such as that the flow was rewound, is in no group
            await work()
            return
        self._scene.idling.add_tasks(left - 1)
        try:
            async with anyio.create_task_group() as group:
                for _ in range(left):
                    group.start_soon(work)
        finally:
            self._scene.idling.add_tasks(min(1 - left, 0))  # a timeout cancels them before they are counted

    def _depth(self, frame: Frame) -> int:
        depth = 1
        while frame.parent is not None:
            outer = self._scene.record.state.frames[frame.parent]
            depth += frame.scope != outer.scope
            frame = outer
        return depth
