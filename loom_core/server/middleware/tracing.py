"""Tracing middleware: trace context from HTTP headers, attributes missing from the SDK's span, log context.

The SDK creates a span for every request, with the parent that `_meta` of the request names. Trace context in
W3C headers of HTTP is supported, too; if a client sends both, `_meta` is the parent, and the span is linked
to the other. Names of unknown methods, tools and prompts, which clients may choose freely, are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from opentelemetry.trace import get_current_span

from loom_core.observability.log_fields import logging_with
from loom_core.observability.propagation import TRACE_KEYS, attach_context, extract_context, trace_id_of
from loom_core.observability.tracing import redact_content
from loom_core.server.auth.caller import current_caller

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult
    from opentelemetry.trace import Span
    from starlette.types import ASGIApp, Receive, Scope, Send

    from loom_core.observability.log_fields import ContextField

__all__ = ["HttpTraceMiddleware", "LogContextMiddleware", "RequestTraceMiddleware", "client_of"]

_METHODS = SPEC_CLIENT_METHODS | SPEC_CLIENT_NOTIFICATION_METHODS
_TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_UNKNOWN = "unknown"
_LONGEST = 300  # characters of what a client has written
_RESOURCES = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})


class HttpTraceMiddleware:
    """ASGI middleware: continue the trace that a request's headers name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        carrier: dict[str, str] = {}
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if (key := name.decode("latin-1").lower()) in TRACE_KEYS:
                    carrier[key] = value.decode("latin-1")
        with attach_context(extract_context(carrier)):
            await self._app(scope, receive, send)


class RequestTraceMiddleware:
    """Middleware of the SDK: complete the span of a request by the semantic conventions for MCP.

    Args:
        is_offered: returns whether the target of a method exists, such as `query` for `tools/call`.
        is_method: returns whether a method outside the specification is served.
    """

    def __init__(self, is_offered: Callable[[str, str], bool], is_method: Callable[[str], bool]) -> None:
        self._is_offered = is_offered
        self._is_method = is_method

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve a request."""
        current = get_current_span()
        if current.is_recording():
            headers = getattr(ctx.request, "headers", None)
            self._name(current, ctx)
            current.set_attribute("network.transport", "pipe" if headers is None else "tcp")
            if headers is not None:
                current.set_attribute("network.protocol.name", "http")
                if session := _session_of(ctx):
                    current.set_attribute("mcp.session.id", session)
                other = extract_context({key: headers[key] for key in TRACE_KEYS if key in headers})
                if other is not None and trace_id_of(other) != trace_id_of():
                    current.add_link(get_current_span(other).get_span_context())
            uri = (ctx.params or {}).get("uri")
            if ctx.method in _RESOURCES and isinstance(uri, str):
                current.set_attribute("mcp.resource.uri", _redact(uri))
        return await call_next(ctx)

    def _name(self, current: Span, ctx: ServerRequestContext[Any, Any]) -> None:
        """Rename the span: the SDK's name holds the client's text, this one only known names."""
        method = ctx.method if ctx.method in _METHODS or self._is_method(ctx.method) else _UNKNOWN
        name: object = (ctx.params or {}).get("name")
        target = ""
        if method in _TARGETS and isinstance(name, str):
            target = name if self._is_offered(method, name) else _UNKNOWN
            current.set_attribute(_TARGETS[method], target)
        current.set_attribute("mcp.method.name", method)
        current.update_name(f"{method} {target}".rstrip())
        if isinstance(ctx.request_id, str):
            current.set_attribute("jsonrpc.request.id", _redact(ctx.request_id))


def _redact(text: str) -> str:
    return redact_content(text)[:_LONGEST]


_SESSION_HEADER = "mcp-session-id"
_SHOWN = 12  # hexadecimal digits of a session's hash


class LogContextMiddleware:
    """Middleware that adds the fields of a request to its log lines.

    Args:
        is_tool: returns whether there is a tool of a name; other names are not logged, as clients may send
            any.
    """

    def __init__(self, is_tool: Callable[[str], bool]) -> None:
        self._is_tool = is_tool

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve a request."""
        fields: dict[ContextField, str] = {
            "request_id": "" if ctx.request_id is None else str(ctx.request_id),
            "method": ctx.method,
            "session": _session_of(ctx),
            "caller": current_caller().name,
            "client": client_of(ctx),
        }
        name: object = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
        if isinstance(name, str) and self._is_tool(name):
            fields["tool"] = name
        with logging_with(fields):
            return await call_next(ctx)


def client_of(ctx: ServerRequestContext[Any, Any]) -> str:
    """Return the name and version that the client declares; empty if it does not."""
    told = ctx.session.client_params
    return f"{told.client_info.name} {told.client_info.version}" if told else ""


def _session_of(ctx: ServerRequestContext[Any, Any]) -> str:
    """Identify a session of the handshake era over HTTP without revealing the id that grants access."""
    headers = getattr(ctx.request, "headers", None)
    session = headers.get(_SESSION_HEADER) if headers is not None else None
    return sha256(session.encode()).hexdigest()[:_SHOWN] if session else ""
