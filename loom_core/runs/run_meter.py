"""Run meter: metrics of a run, from its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loom_core.observability import families

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.observability.metrics import LoomMetrics
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["RunMeter"]

_WAITING = frozenset({"input_required", "paused"})
_TOKENS = ("input", "output", "reasoning", "cache_read", "cache_write")


class RunMeter:
    """Counts one run from its events, in order, live or from the journal.

    An iteration lasts from `model_start` to the next one or to the end of the run, without the time in which
    the run waits for people. An iteration that is unfinished when the run is released is not timed.

    Args:
        metrics: the metrics to update.
        kind: whether it is a run of an agent or of a flow, if known; the events tell it too.
        calls: whether to count tool calls and model requests from the events. If not, their caller counts
            them, including those outside any run.

    Attributes:
        active: whether it is a run of an agent that is working now.
    """

    def __init__(
        self, metrics: LoomMetrics, *, kind: Literal["agent", "flow"] = "agent", calls: bool = False
    ) -> None:
        self._metrics = metrics
        self._kind = kind
        self._calls = calls
        self.active = False
        self._model = ""
        self._began: float | None = None  # the iteration
        self._asked: float | None = None  # the model, which has not answered
        self._waited = 0.0  # seconds of it
        self._waits_since: float | None = None

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Count an event.

        Args:
            event: the event.
            run: the run after the event.
        """
        payload, add = event.payload, self._metrics.add
        if self._calls:
            self._note_request(event)
        match event.type:
            case "model_start":
                self._end_iteration(event.at)
                self._began = event.at
                self._waited, self._waits_since = 0.0, None
                add(families.ITERATIONS)
            case "tool_result" if self._calls:
                self._record_call(payload)
            case "approval_decided":
                add(families.APPROVALS, str(payload["action"]))
            case "compression_applied":
                add(families.COMPACTIONS)
                add(families.COMPACTION_TOKENS, "before", by=payload["before"])
                add(families.COMPACTION_TOKENS, "after", by=payload["after"])
            case "route" | "flow_start":
                self._kind = "flow"
            case "step_result":
                add(families.FLOW_STEPS, str(payload["status"]))
                self._metrics.observe(families.FLOW_STEP_SECONDS, payload["seconds"])
            case "error":
                add(families.RUN_FAILURES, self._kind, str(payload["failure"]))
                self._record_end("failed", event.at)
            case "agent_finish" | "flow_finish":
                self._record_end("completed", event.at)
            case "aborted":
                self._record_end("aborted", event.at)
            case _:
                pass
        self._note_waiting(event.at, waits=run.status in _WAITING)
        self._set_active(active=run.status == "working")

    def on_detach(self, run: Run) -> None:
        """Stop counting the run as active: it is not executed here any more."""
        self._set_active(active=False)

    def _set_active(self, *, active: bool) -> None:
        active = active and self._kind == "agent"
        if active != self.active:
            self.active = active
            self._metrics.add(families.ACTIVE_AGENTS, by=1 if active else -1)

    def _record_end(self, status: Literal["completed", "failed", "aborted"], at: float) -> None:
        self._end_iteration(at)
        self._metrics.add(families.RUNS, self._kind, status)

    def _end_iteration(self, at: float) -> None:
        if self._began is None:
            return
        self._note_waiting(at, waits=False)
        self._metrics.observe(families.ITERATION_SECONDS, max(0.0, at - self._began - self._waited))
        self._began = None

    def _note_waiting(self, at: float, *, waits: bool) -> None:
        if waits:
            if self._waits_since is None:
                self._waits_since = at
        elif self._waits_since is not None:
            self._waited += at - self._waits_since
            self._waits_since = None

    def _note_request(self, event: StreamEvent) -> None:
        match event.type:
            case "model_start":
                self._asked, self._model = event.at, str(event.payload.get("model", ""))
            case "model_retry":
                self._end_request(event.at)
                self._asked = event.at + event.payload["wait"]
            case "usage":
                self._end_request(event.at)
                self._record_usage(event.payload)
            case "paused" | "error" | "aborted":
                self._end_request(event.at)
            case _:
                pass

    def _end_request(self, at: float) -> None:
        """Count the running request to the model, whatever its outcome."""
        if self._asked is not None:
            self._metrics.add(families.LLM_CALLS)
            self._metrics.observe(families.LLM_SECONDS, max(0.0, at - self._asked), "", self._model)
        self._asked = None

    def _record_usage(self, usage: Mapping[str, Any]) -> None:
        model = self._model
        for kind in _TOKENS:
            if tokens := usage.get(f"{kind}_tokens"):
                self._metrics.add(families.LLM_TOKENS, "", model, kind, by=tokens)
        if cost := usage.get("cost"):
            self._metrics.add(families.LLM_COST, "", model, by=cost)

    def _record_call(self, payload: Mapping[str, Any]) -> None:
        tool, status = str(payload["tool"]), str(payload["status"])
        self._metrics.add(families.TOOL_CALLS, tool, status)
        if "execute" in payload["stages"]:
            self._metrics.observe(families.TOOL_SECONDS, payload["seconds"], tool)
