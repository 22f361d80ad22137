"""A trace that goes on elsewhere: in another process, in a task of its own, or after a restart.

What is carried is W3C Trace Context: `traceparent` and `tracestate`, the keys that MCP reserves in `_meta`
(SEP-414) and HTTP in its headers. Baggage stays where it is: it may hold anything.
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
_LONGEST = 512  # characters of a value, as W3C asks for at least


def inject_context() -> dict[str, str]:
    """The current span for another process; empty where there is none."""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier


def extract_context(carrier: object) -> Context | None:
    """Extract the parent context for spans; None if there is none, or it is invalid.

    Args:
        carrier: a mapping with `traceparent`; whatever else is in it is passed over.
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
    """Number of the trace that a context is in, by default the current one; 0 for none."""
    from opentelemetry.trace import get_current_span

    return get_current_span(context).get_span_context().trace_id


@contextmanager
def attach_context(context: Context | None) -> Generator[None]:
    """Let what the block does belong to what was carried here; None changes nothing."""
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
    """Let what the block does belong to no trace and no request, for work that one only happens to begin.

    So its lines in the log name no caller whose work it is not.
    """
    from opentelemetry.context import Context

    with attach_context(Context()), logging_with({}, fresh=True):
        yield


def _propagator() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
