"""`LoomMetrics`: where the parts of Loom count what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.observability.families import FAMILIES
from loom_core.observability.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.observability.registry import Metric, Reader

__all__ = ["LoomMetrics", "new_registry", "process_metrics"]


def new_registry() -> Registry:
    """A registry of its own for all of Loom's numbers; nearly everybody wants that of the process."""
    return Registry(FAMILIES)


class LoomMetrics:
    """Counts what Loom does, in the one registry of this process unless another is given.

        metrics = LoomMetrics(agent_id="agent-1")
        base = GraphRAGKnowledgeBase.from_config(..., metrics=metrics)

    What is given such metrics is counted from the start. All else is counted by `process_metrics`, once that
    is enabled: servers do so where their numbers can be read, a program by
    `loom_core.config.enable_metrics(True)`. Until then each count costs a look at a flag.

    Args:
        agent_id: whose numbers these are: they get the label `agent_id` besides their own; empty for none.
        registry: where they are kept; see `new_registry`.
        enabled: whether anything is counted; may be changed later by `enable`.

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
        """Count from now on, or no more; numbers stay as they are."""
        self.enabled = on

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter or a gauge of `families`.

        Args:
            metric: which.
            labels: a value for each of its labels.
            by: how much.
        """
        if self.enabled or metric.kind == "gauge":  # what went up goes down again
            self.registry.add(metric, labels + self._whose, by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value of a histogram of `families`.

        Args:
            metric: which.
            value: in the unit that its name says.
            labels: a value for each of its labels.
        """
        if self.enabled:
            self.registry.observe(metric, value, labels + self._whose)

    def watch(self, metric: Metric, read: Reader) -> None:
        """Have a gauge read when numbers are collected; see `Registry.watch`."""
        self.registry.watch(metric, read)

    def text(self, common: Mapping[str, str] | None = None) -> str:
        """All numbers of the registry in the text format of Prometheus; `common` as in `Registry.text`."""
        return self.registry.text(common)


process_metrics = LoomMetrics(registry=new_registry(), enabled=False)
"""Default metrics of parts of Loom that were given no others."""
