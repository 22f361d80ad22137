"""Redaction of exported spans: the MCP SDK records messages of clients and servers.

This needs OpenTelemetry's SDK: only `export` imports it, if there is a collector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status
from opentelemetry.util.types import AnyValue

from loom_core.observability.tracing import records_content, redact_content

__all__ = ["RedactingExporter"]

_SDK = "mcp-python-sdk"
_TYPE = "exception.type"


class RedactingExporter(SpanExporter):
    """Exports spans by another exporter; those of the MCP SDK without secrets.

    Error messages, which quote clients and servers, are content: they are exported only with
    LOOM_TRACE_CONTENT=1.

    Args:
        exporter: the wrapped exporter.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; called in the export thread."""
        return self._exporter.export([_clean(each) for each in spans])

    def shutdown(self) -> None:
        """Shut down the wrapped exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)


def _clean(span: ReadableSpan) -> ReadableSpan:
    scope = span.instrumentation_scope
    if scope is None or scope.name != _SDK:
        return span
    return ReadableSpan(
        redact_content(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_redact_texts(span.attributes or {}),
        events=[_clean_event(each) for each in span.events],
        links=span.links,
        kind=span.kind,
        status=_clean_status(span.status),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=scope,
    )


def _clean_status(status: Status) -> Status:
    said = status.description if records_content() else None
    return Status(status.status_code, said and redact_content(said))


def _clean_event(event: Event) -> Event:
    told = event.attributes or {}
    if not records_content():
        told = {name: value for name, value in told.items() if name == _TYPE}
    return Event(event.name, _redact_texts(told), event.timestamp)


def _redact_texts(attributes: Mapping[str, AnyValue]) -> dict[str, AnyValue]:
    return {
        name: redact_content(value) if isinstance(value, str) else value for name, value in attributes.items()
    }
