"""Export of a server's spans to a collector, configured by the standard variables `OTEL_…`.

Without a collector nothing is imported, and nothing is done. The SDK does the rest: it samples, batches,
retries, and reads its variables.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["export_traces", "is_export_wanted"]

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_FLUSH_SECONDS = 1.5  # hosts wait two seconds before they kill a server
_SELDOM_SECONDS = 300.0
_EXPORT_LOGS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)


@contextmanager
def export_traces(
    service: str, *, version: str = "", flush_seconds: float = _FLUSH_SECONDS
) -> Generator[None]:
    """Send the spans of the block to the collector that the environment names, if it names one.

    An unresponsive collector delays nothing: spans wait in a bounded queue, and at the end for at most
    `flush_seconds`. Problems are logged as warnings, and are never errors: the variables may be meant for
    other programs.

    Args:
        service: `service.name`, unless the environment says another.
        version: `service.version`, likewise.
        flush_seconds: timeout of the final flush.
    """
    provider = _provider(service, version) if is_export_wanted(os.environ) else None
    try:
        yield
    finally:
        if provider is not None:
            _shut_down(provider, flush_seconds)


def is_export_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the standard variables enable export over OTLP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if exporters:
        return "otlp" in exporters
    return any(environment.get(name, "").strip() for name in _ENDPOINTS)


def _provider(service: str, version: str) -> TracerProvider | None:
    """Set and return the program's tracer provider; None if that is impossible, which is logged."""
    protocol = next((said for name in _PROTOCOLS if (said := os.environ.get(name, "").strip())), _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning("No traces are sent: Loom speaks %s to collectors, not %s", _PROTOCOL, protocol)
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from loom_core.observability.redacting_exporter import RedactingExporter
    except ImportError:
        from loom_core.installation import how_to_install

        _log.warning(
            "No traces are sent, though the environment names a collector: the packages for that "
            "are missing. %s",
            how_to_install(f"{service}[otel]"),
        )
        return None
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # the program has set one up itself
    for name in _EXPORT_LOGS:
        logging.getLogger(name).addFilter(_RateLimitFilter(_SELDOM_SECONDS))
    try:
        provider = TracerProvider(resource=_resource(service, version), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(RedactingExporter(OTLPSpanExporter())))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the variables, the server serves
        _log.warning("No traces are sent: a variable OTEL_… cannot be used: %s", type(error).__name__)
        return None
    trace.set_tracer_provider(provider)
    return provider


def _resource(service: str, version: str) -> Resource:
    from opentelemetry.sdk.resources import Resource

    said = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    given = {item.partition("=")[0].strip() for item in said.split(",")}
    if os.environ.get("OTEL_SERVICE_NAME", "").strip():
        given.add("service.name")
    own = {"service.name": service, "service.version": version, "service.instance.id": str(uuid4())}
    return Resource.create({name: value for name, value in own.items() if value and name not in given})


def _shut_down(provider: TracerProvider, seconds: float) -> None:
    """Flush the remaining spans; the SDK itself would wait for half a minute."""
    ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    ending.start()
    ending.join(seconds)
    if ending.is_alive():
        _log.warning("the last spans did not reach the collector within %g s", seconds)


class _RateLimitFilter(logging.Filter):
    """Rate limit of log messages: one, then none for a while, as a collector may be down for hours."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
