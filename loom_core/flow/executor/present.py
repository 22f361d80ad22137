"""The steps of a run as its flows are now, which may be other ones than when it began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import LoomError, NotFoundError
from loom_core.flow.executor.definition import (
    FlowChangedError,
    digests_of,
    every_step,
    find_flow,
    flow_steps,
    unchanged_problem,
)

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_step import StepConfig
    from loom_core.flow.executor.definition import Digests
    from loom_core.flow.executor.frame import Frame
    from loom_core.flow.executor.state import FlowState

__all__ = ["PresentSteps"]


class PresentSteps:
    """What the lists of steps of a run consist of now.

    Args:
        file: the flows.
        state: of the run.
    """

    def __init__(self, file: FlowFile, state: FlowState) -> None:
        self._file = file
        self._state = state

    def of(self, frame: Frame) -> list[StepConfig]:
        """The steps of a list.

        Raises:
            NotFoundError: there are none any more.
        """
        steps = list(flow_steps(self._file, find_flow(self._file, frame.flow_id)))
        if frame.path == frame.scope:
            return steps
        for step in every_step(steps):
            number = int(frame.path.rsplit("/", 2)[1])
            if step.step_id == frame.step and number < len(step.parallel):
                return list(step.parallel[number])
        raise NotFoundError(f"There is no branch {frame.path!r} any more.")

    def digests(self) -> dict[str, Digests]:
        """Digests of all lists; without those that are not there any more."""
        found: dict[str, Digests] = {}
        for path, frame in self._state.frames.items():
            try:
                found[path] = digests_of(self.of(frame))
            except LoomError:
                continue
        return found

    def known(self) -> list[str]:
        """Paths of all steps that the run can go on from."""
        return [path + step_id for path, digests in self.digests().items() for step_id, _ in digests]

    def check_unchanged(self) -> None:
        """See that the steps that were done are those of the flow as it is now.

        Raises:
            FlowChangedError: they are not.
            NotFoundError: the flow is gone.
        """
        for frame in self._state.frames.values():
            if frame.path == frame.scope and not frame.ended:
                flow = find_flow(self._file, frame.flow_id)
                now = digests_of(flow_steps(self._file, flow))
                step = unchanged_problem(frame.digests, now, list(frame.steps))
                if step:
                    raise FlowChangedError(
                        f"The flow {flow.title!r} is not what it was when this run began: its step {step!r} "
                        "has changed since.",
                        advice="Retry the run from a step to go on as the flow is now, or leave it.",
                    )
