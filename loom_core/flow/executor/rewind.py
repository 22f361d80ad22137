"""Rewind of a flow when an input that steps have used is corrected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import LoomError
from loom_core.flow.executor.definition import flow_steps, iter_steps, step_title
from loom_core.flow.executor.inputs import uses_input

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.executor.state import FlowState, Frame

__all__ = ["CorrectionError", "FlowRewoundError", "RewindPoint", "find_rewind_point"]


class CorrectionError(LoomError):
    """An input that a side effect depends on cannot be corrected any more. The message is for the user."""


class FlowRewoundError(Exception):
    """A list of steps was rewound to an earlier step with other inputs; its running steps are obsolete."""


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """The step to which a flow is rewound.

    Attributes:
        step: id of the step, in the flow's own list; empty if no step has used what changes.
        place: number of that step in the run, see `StepState.place`.
        done: title of the first later step with a side effect; empty for none.
        is_certain: whether that step has certainly been done.
    """

    step: str = ""
    place: int = 0
    done: str = ""
    is_certain: bool = True


def find_rewind_point(state: FlowState, file: FlowFile, scope: Frame, names: Collection[str]) -> RewindPoint:
    """Find the first step that has used one of some inputs.

    Args:
        state: of the run.
        file: the flows.
        scope: frame of the flow that has the inputs.
        names: names of the inputs.
    """
    flow = file.find_flow(scope.flow_id)
    steps = {step.step_id: step for step in iter_steps(flow_steps(file, flow))}
    first: tuple[int, str] | None = None
    for frame in state.frames.values():
        for step_id, done in frame.steps.items() if frame.scope == scope.path and names else ():
            used = any(
                done.place > scope.given.get(name, 0) and uses_input(steps[step_id], name)
                for name in names
                if step_id in steps
            )
            if used and (first is None or done.place < first[0]):
                first = done.place, step_id if frame.path == scope.path else _outermost(state, frame, scope)
    if first is None:
        return RewindPoint()
    begun = scope.steps[first[1]].place
    since = sorted(
        ((done.place, frame, done) for frame in state.frames.values() for done in frame.steps.values()),
        key=lambda each: each[0],
    )
    for place, frame, done in since:
        if place >= begun and frame.path.startswith(scope.path) and state.has_changed(frame, done):
            title = step_title(file, frame.flow_id, done.step_id)
            return RewindPoint(first[1], begun, title, is_certain=done.status == "success")
    return RewindPoint(first[1], begun)


def _outermost(state: FlowState, frame: Frame, scope: Frame) -> str:
    """Return the id of a flow's step that contains a nested list of steps."""
    while frame.parent is not None and frame.parent != scope.path:
        frame = state.frames[frame.parent]
    return frame.step
