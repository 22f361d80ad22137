"""Context fields of log lines: request, run, caller and the like.

Fields are context variables (`contextvars`), so that tasks, and threads of `anyio.to_thread`, that start in a
block inherit them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["LOG_FIELDS", "ContextField", "current_fields", "fields_now", "logging_with"]

ContextField: TypeAlias = Literal[
    "request_id", "method", "tool", "session", "caller", "client", "conversation", "run_id"
]
"""Name of a context field."""

LOG_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "time": "Time in UTC, to the microsecond (RFC 3339)",
        "level": "`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`",
        "logger": "The module that logs it",
        "message": "The message, without secrets",
        "service": "The server, such as `loom-kb`",
        "pid": "Its process",
        "request_id": "Id of the MCP request, chosen by its client: unique within a connection only",
        "method": "Method of the MCP request, such as `tools/call`",
        "tool": "Tool that the request calls",
        "session": "Distinguishes sessions of the handshake era over HTTP: the beginning of a hash of "
        "the id, as the id itself is a credential",
        "caller": "Name of the token or subject that has sent the request, or has asked for the run; "
        "`local` without authentication",
        "client": "Name and version that the client gives itself; not to be trusted",
        "conversation": "The session of an agent or a flow (`session_id`) that a run or a message belongs to",
        "run_id": "The run of an agent or a flow",
        "trace_id": "The trace, where there is one; as in spans",
        "span_id": "The span, likewise",
        "event": "Type of a run's event, in lines of `LoggingCallback`",
        "seq": "Its number",
        "facts": "Its figures, an object",
        "error": "Type of the exception",
        "traceback": "The traceback, as one string",
    }
)
"""Every field of a JSON line, in writing order."""

_NOTHING: Mapping[ContextField, str] = MappingProxyType({})

_current: ContextVar[Mapping[ContextField, str]] = ContextVar("loom_log_fields", default=_NOTHING)


@contextmanager
def logging_with(fields: Mapping[ContextField, str], *, fresh: bool = False) -> Generator[None]:
    """Add fields to every line that is logged in the block, and in tasks and threads that it starts.

    Args:
        fields: the fields; empty ones are left out.
        fresh: whether earlier fields are dropped, as for work that outlives the request
            which has begun it.
    """
    known: dict[ContextField, str] = {name: value for name, value in fields.items() if value}
    before = _current.set(known if fresh else {**_current.get(), **known})
    try:
        yield
    finally:
        _current.reset(before)


def current_fields() -> Mapping[ContextField, str]:
    """Return the fields of the current work."""
    return _current.get()


def fields_now() -> dict[str, str]:
    """Return the fields of the current work, with the current span, if there is one."""
    fields: dict[str, str] = {**_current.get()}
    if "opentelemetry.trace" in sys.modules:  # else there is none, and logging need not import it
        from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

        context = get_current_span().get_span_context()
        if context.is_valid:
            fields["trace_id"] = format_trace_id(context.trace_id)
            fields["span_id"] = format_span_id(context.span_id)
    return fields
