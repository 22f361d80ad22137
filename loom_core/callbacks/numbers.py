"""`MetricsCallback`: the numbers of one agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.callbacks.interface import Callback
from loom_core.callbacks.summary import MetricsSummary
from loom_core.observability.metrics import LoomMetrics, new_registry
from loom_core.runs.run_meter import RunMeter

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["MetricsCallback"]


class MetricsCallback(Callback):
    """Counts what an agent does, in numbers of its own: those of the whole process are `LoomMetrics()`.

        watched = MetricsCallback()
        agent = Agent("deepseek", tools=[search], callbacks=[watched])
        …
        print(watched.summary().tools["search"].success_rate)

    Several agents may share one.

    Args:
        agent_id: stands as a label in `metrics.text()`; empty for none.

    Attributes:
        metrics: the numbers.
    """

    def __init__(self, *, agent_id: str = "") -> None:
        self.metrics = LoomMetrics(agent_id=agent_id, registry=new_registry())
        self._runs: dict[str, RunMeter] = {}
        self._most_active = 0

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Count it."""
        meter = self._runs.get(run.id)
        if meter is None:
            meter = self._runs[run.id] = RunMeter(self.metrics, calls=True)
        meter.on_event(event, run)
        self._most_active = max(self._most_active, sum(each.active for each in self._runs.values()))

    def on_left(self, run: Run) -> None:
        """Count it as one that is not worked on."""
        if (meter := self._runs.pop(run.id, None)) is not None:
            meter.on_left(run)

    def summary(self) -> MetricsSummary:
        """What was counted until now, in figures."""
        return MetricsSummary.of(self.metrics.registry, most_active=self._most_active)
