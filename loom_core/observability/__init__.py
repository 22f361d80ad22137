"""What Loom tells of its own work: traces, through the OpenTelemetry API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.observability.tracing import AttributeValue, span

__all__ = ["AttributeValue", "span"]

if not TYPE_CHECKING:
    __getattr__ = exports(
        __name__,
        {
            "AttributeValue": ".tracing",
            "span": ".tracing",
        },
    )
