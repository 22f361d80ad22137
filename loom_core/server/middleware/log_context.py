"""Middleware that adds the request to the log's context."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from loom_core.observability.log_fields import logging_with
from loom_core.server.auth.caller import current_caller

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult

    from loom_core.observability.log_fields import ContextField

__all__ = ["LogContextMiddleware", "client_of", "session_of"]

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
            "session": session_of(ctx),
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


def session_of(ctx: ServerRequestContext[Any, Any]) -> str:
    """Identify a session of the handshake era over HTTP without revealing the id that grants access."""
    headers = getattr(ctx.request, "headers", None)
    session = headers.get(_SESSION_HEADER) if headers is not None else None
    return sha256(session.encode()).hexdigest()[:_SHOWN] if session else ""
