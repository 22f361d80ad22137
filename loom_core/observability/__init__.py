"""Observability: traces through the OpenTelemetry API, metrics for Prometheus, and structured logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.observability.log_fields import logging_with
    from loom_core.observability.logs import log_formatter
    from loom_core.observability.metrics import LoomMetrics
    from loom_core.observability.tracing import AttributeValue, LoomTracer, span

__all__ = [
    "AttributeValue",
    "LoomMetrics",
    "LoomTracer",
    "log_formatter",
    "logging_with",
    "span",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
