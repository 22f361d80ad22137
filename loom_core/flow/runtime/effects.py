"""Whether a flow changes anything, as far as its file says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.config.models_step import StepConfig

__all__ = ["changes_something"]

_READING = frozenset({"GET", "HEAD"})


def changes_something(
    file: FlowFile, flow: FlowConfig, *, reads_only: Callable[[str], bool] | None = None
) -> bool:
    """Whether a step of a flow may change something outside: a request that is not GET or HEAD, or a tool.

    Args:
        file: where the flow is.
        flow: which.
        reads_only: says of a tool that is not of the file whether it changes nothing; by default each may.
    """
    return _changes(file, flow, reads_only or (lambda _: False), frozenset())


def _changes(
    file: FlowFile, flow: FlowConfig, reads_only: Callable[[str], bool], seen: frozenset[str]
) -> bool:
    if flow.flow_id in seen:
        return False
    inside = seen | {flow.flow_id}
    if not flow.steps:
        return file.endpoint_of(flow).method not in _READING
    return _any_step(file, flow.steps, reads_only, inside)


def _any_step(
    file: FlowFile, steps: Sequence[StepConfig], reads_only: Callable[[str], bool], seen: frozenset[str]
) -> bool:
    for step in steps:
        if step.operation is not None and step.operation.method not in _READING:
            return True
        if step.tool and not _reads(file, step.tool, reads_only):
            return True
        inner = file.flow(step.workflow_id) if step.workflow_id else None
        if inner is not None and _changes(file, inner, reads_only, seen):
            return True
        if any(_any_step(file, branch, reads_only, seen) for branch in step.parallel):
            return True
    return False


def _reads(file: FlowFile, tool: str, reads_only: Callable[[str], bool]) -> bool:
    known = next((each for each in file.system_tools if each.name == tool), None)
    return reads_only(tool) if known is None else known.changes_nothing
