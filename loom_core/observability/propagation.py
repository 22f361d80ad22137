"""Trace context propagation: to another process, to a separate task, or across a restart.

The format is W3C Trace Context: `traceparent` and `tracestate`, the keys that MCP reserves in `_meta`
(SEP-414) and HTTP in its headers. Baggage is not propagated: it may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from loom_core.observability.log_fields import logging_with

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = [
    "TRACE_KEYS",
    "attach_context",
    "detach_context",
    "extract_context",
    "inject_context",
    "trace_id_of",
]

TRACE_KEYS = ("traceparent", "tracestate")
_LONGEST = 512  # characters of a value, the minimum that W3C requires


def inject_context() -> dict[str, str]:
    """Return the current span's carrier for another process; empty if there is none."""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier


def extract_context(carrier: object) -> Context | None:
    """Extract the parent context for spans; None if there is none, or it is invalid.

    Args:
        carrier: a mapping with `traceparent`; other keys are ignored.
    """
    if not isinstance(carrier, Mapping):
        return None
    given = cast("Mapping[object, object]", carrier)
    kept = {
        key: value
        for key in TRACE_KEYS
        if isinstance(value := given.get(key), str) and len(value) <= _LONGEST
    }
    if "traceparent" not in kept:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import get_current_span

    context = _propagator().extract(kept, context=Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def trace_id_of(context: Context | None = None) -> int:
    """Return the trace id of a context, by default the current one; 0 for none."""
    from opentelemetry.trace import get_current_span

    return get_current_span(context).get_span_context().trace_id


@contextmanager
def attach_context(context: Context | None) -> Generator[None]:
    """Attach an extracted context within the block; None changes nothing."""
    if context is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def detach_context() -> Generator[None]:
    """Detach the block from the current trace and request, for work that the request only triggers.

    So its log lines do not name an unrelated caller.
    """
    from opentelemetry.context import Context

    with attach_context(Context()), logging_with({}, fresh=True):
        yield


def _propagator() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
