"""What had been done outside when a run was called off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.flow.executor.definition import step_title
from loom_core.flow.executor.frame import Next

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.executor.record import FlowRecord
    from loom_core.flow.executor.wording import Wording

__all__ = ["told_of_changes"]

_BROKEN_OFF = "The run was called off before there was an answer."


def told_of_changes(record: FlowRecord, file: FlowFile, wording: Wording, *, said: str) -> str:
    """What the user is to know of a run that ends early: what had been done, and what nobody knows of.

    A step that was under way and changes something is unknown from now on.

    Args:
        record: of the run.
        file: the flows.
        wording: how it is said.
        said: what is said of the end itself.
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
