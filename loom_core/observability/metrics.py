"""`LoomMetrics`: metrics of Loom's components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.observability.families import FAMILIES
from loom_core.observability.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.observability.registry import Metric, Reader

__all__ = ["LoomMetrics", "new_registry", "process_metrics"]


def new_registry() -> Registry:
    """Create a separate registry for all of Loom's metrics; most programs use that of the process."""
    return Registry(FAMILIES)


class LoomMetrics:
    """Metrics of Loom's components, by default in the registry of this process.

        metrics = LoomMetrics(agent_id="agent-1")
        base = GraphRAGKnowledgeBase.from_config(..., metrics=metrics)

    Components with such metrics count from the start. All others use `process_metrics`, once it is enabled:
    servers enable it if their metrics are exposed, a program by `loom_core.config.enable_metrics(True)`.
    Until then each count only checks a flag.

    Args:
        agent_id: the agent: all samples get the additional label `agent_id`; empty for none.
        registry: the registry; see `new_registry`.
        enabled: whether to count; may be changed later by `enable`.

    Attributes:
        agent_id: see above.
        registry: see above.
        enabled: see above.
    """

    def __init__(self, *, agent_id: str = "", registry: Registry | None = None, enabled: bool = True) -> None:
        self.agent_id = agent_id
        self.enabled = enabled
        self.registry = process_metrics.registry if registry is None else registry
        self._whose = (agent_id,) if agent_id else ()

    def enable(self, on: bool = True) -> None:
        """Start or stop counting; existing samples stay."""
        self.enabled = on

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter or a gauge of `families`.

        Args:
            metric: the metric.
            labels: a value for each of its labels.
            by: the amount.
        """
        if self.enabled or metric.kind == "gauge":  # an increment needs its decrement
            self.registry.add(metric, labels + self._whose, by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Observe a value of a histogram of `families`.

        Args:
            metric: the metric.
            value: the value, in the unit of the metric's name.
            labels: a value for each of its labels.
        """
        if self.enabled:
            self.registry.observe(metric, value, labels + self._whose)

    def watch(self, metric: Metric, read: Reader) -> None:
        """Read a gauge by a callback at collection; see `Registry.watch`."""
        self.registry.watch(metric, read)

    def text(self, common: Mapping[str, str] | None = None) -> str:
        """Return all metrics in the Prometheus text format; `common` as in `Registry.text`."""
        return self.registry.text(common)


process_metrics = LoomMetrics(registry=new_registry(), enabled=False)
"""Default metrics of components without others."""
