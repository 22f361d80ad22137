"""Observers of the runs of an agent: `Agent(callbacks=[…])`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.callbacks.interface import Callback
    from loom_core.callbacks.logs import LoggingCallback
    from loom_core.callbacks.metrics import MetricsCallback, MetricsSummary, ToolSummary

__all__ = ["Callback", "LoggingCallback", "MetricsCallback", "MetricsSummary", "ToolSummary"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
