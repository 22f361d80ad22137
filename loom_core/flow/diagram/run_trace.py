"""Trace of a run through its flow's diagram: the status of each step, and the lines that were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from loom_core.flow.diagram.shape import FlowShape, StepShape
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["RunTrace", "StepStatus", "StepTrace", "trace_run"]

StepStatus: TypeAlias = Literal["waiting", "open", "failed", "declined", "stopped", "recovered", "done"]
"""`failed`: and its list with it; `declined`: likewise, by a person's no; `stopped`: the run ended before the
step; `recovered`: it failed, and the flow went on. Of several items, the first of these counts."""

_PRECEDENCE: Sequence[StepStatus] = get_args(StepStatus)


@dataclass(slots=True)
class StepTrace:
    """The trace of a run in a step of the diagram.

    Attributes:
        starts: number of times that it started, for all items and with retries.
        latest: the latest status by the id in the events, which has the number of the item.
        items: the latest result by list inside it, if it is a `for_each`; empty while it runs.
    """

    starts: int = 0
    latest: dict[str, StepStatus] = field(default_factory=dict[str, StepStatus])
    items: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def status(self) -> StepStatus:
        """The status."""
        return min(self.latest.values(), key=_PRECEDENCE.index)


@dataclass(slots=True)
class RunTrace:
    """The path of a run through a diagram.

    Attributes:
        steps: what was done in each step, by path; only those that have started.
        lines: keys of the lines that it took.
        unknown: ids of its steps that the flow does not have.
        waits: whether it waits for input before its first step.
        reached_end: whether it has reached the end of the flow.
    """

    steps: dict[str, StepTrace] = field(default_factory=dict[str, StepTrace])
    lines: set[str] = field(default_factory=set[str])
    unknown: list[str] = field(default_factory=list[str])
    waits: bool = False
    reached_end: bool = False


def trace_run(flow: FlowShape, run: Run, events: Sequence[StreamEvent]) -> RunTrace:
    """Trace a run through the shape of its flow.

    Args:
        flow: the flow.
        run: the run in its current state.
        events: its events.
    """
    tracer = _Tracer(flow)
    for event in events:
        tracer.read(event.type, event.payload)
    return tracer.finish(run)


class _Tracer:
    """Reader of events."""

    def __init__(self, flow: FlowShape) -> None:
        self._steps = {step.path: step for step in flow.steps.all_steps()}
        self._open: dict[str, str] = {}
        self._chosen: set[str] = set()
        self.trace = RunTrace()

    def read(self, type_: str, it: Mapping[str, Any]) -> None:
        match type_:
            case "step_start":
                self._start(it["step_id"], it.get("key", ""))
            case "step_result":
                self._end(it["step_id"], it["status"], it["next"])
            case "branch":
                self._read_branch(it["step_id"], it["branch"], it["status"])
            case "flow_finish":
                self.trace.reached_end = True
            case _:
                pass

    def finish(self, run: Run) -> RunTrace:
        """Return the trace, with the status of the steps that have no result."""
        asked = {each.id for each in run.pending}
        waits = run.status == "input_required"
        self.trace.waits = waits and not self._open
        for step_id, key in self._open.items():
            step = self._find(step_id)
            if step is not None:
                is_asked = not step.lists and (waits or key in asked)
                has_ended = run.status in {"completed", "failed", "aborted"}
                status: StepStatus = "waiting" if is_asked else "stopped" if has_ended else "open"
                self.trace.steps[step.path].latest[step_id] = status
        return self.trace

    def _start(self, step_id: str, key: str) -> None:
        step = self._find(step_id)
        if step is None:
            return
        self._open[step_id] = key
        self._chosen.discard(step_id)
        self.trace.lines.add(":start")
        trace = self.trace.steps.setdefault(step.path, StepTrace())
        trace.starts += 1
        trace.latest[step_id] = "open"

    def _end(self, step_id: str, status: str, following: Mapping[str, Any]) -> None:
        step = self._find(step_id)
        if step is None or step_id not in self._open:
            return
        del self._open[step_id]
        succeeded, fails = status == "success", following["to"] == "fail"
        failed: StepStatus = "recovered" if not fails else "declined" if status == "declined" else "failed"
        self.trace.steps[step.path].latest[step_id] = "done" if succeeded else failed
        if failed != "failed":
            self.trace.lines.add(f"{step.path}:{'success' if succeeded else 'failure'}:{following['action']}")
        if succeeded and step.kind == "switch" and step_id not in self._chosen:
            self.trace.lines |= {f"{step.path}/else/:start", f"{step.path}/else/:end"}

    def _read_branch(self, step_id: str, number: int, status: str) -> None:
        step = self._find(step_id)
        if step is None:
            return
        self._chosen.add(step_id)
        is_item = step.kind == "for_each"
        path = f"{step.path}/{0 if is_item else number}/"
        if status != "failure":
            self.trace.lines.add(f"{path}:{'start' if status == 'start' else 'end'}")
        if is_item:
            self.trace.steps[step.path].items[number] = "" if status == "start" else status

    def _find(self, step_id: str) -> StepShape | None:
        """Find the step with an id of the events; None for a step of a flow inside it, and an unknown one."""
        path, ids = "", step_id.split("/")
        while True:
            step = self._steps.get(path + ids[0])
            if step is None and path + ids[0] not in self.trace.unknown:
                self.trace.unknown.append(path + ids[0])
            if step is None or len(ids) == 1:
                return step
            if not step.lists:
                return None
            path = f"{step.path}/{0 if step.kind == 'for_each' else ids[1]}/"
            ids = ids[2:]
