"""What Loom tells of its own work: traces, through the OpenTelemetry API."""

from __future__ import annotations

from loom_core.observability.tracing import AttributeValue, span

__all__ = ["AttributeValue", "span"]
