"""Which steps of a flow may have been done before which."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.flow.config.models_step import StepConfig

__all__ = ["steps_before"]


def steps_before(steps: Sequence[StepConfig]) -> Mapping[str, Collection[str]]:
    """For each step, by id, the ids of those that may have been done when it begins.

    A step may follow the one before it, and whatever leads to it by `goto` or `retry`. Steps of a branch
    follow what stands before the parallel step, and come before what stands behind it; not so those of
    different branches.

    Args:
        steps: of a flow.
    """
    leads: dict[str, set[str]] = {}
    _lead(steps, leads, on=())
    before: dict[str, set[str]] = {step: set() for step in leads}
    for start in leads:
        waiting = [*leads[start]]
        while waiting:
            step = waiting.pop()
            if step in before and start not in before[step]:
                before[step].add(start)
                waiting += leads[step]
    return before


def _lead(steps: Sequence[StepConfig], leads: dict[str, set[str]], *, on: Collection[str]) -> None:
    """Note where each step leads.

    Args:
        steps: a list of them.
        leads: is added to.
        on: where the last of them leads.
    """
    for index, step in enumerate(steps):
        following = {steps[index + 1].step_id} if index + 1 < len(steps) else {*on}
        jumps = {action.step_id for action in (*step.on_success, *step.on_failure) if action.step_id}
        onward = following | jumps
        begins = {branch[0].step_id for branch in step.parallel if branch}
        leads.setdefault(step.step_id, set()).update(onward | begins)
        for branch in step.parallel:
            _lead(branch, leads, on=onward)
