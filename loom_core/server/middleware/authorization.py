"""Middleware for every request of the protocol: caller, authorization, metrics of the outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from loom_core.observability.families import SERVED_CALLS, SERVED_SECONDS
from loom_core.server.auth.caller import FULL_ACCESS, Caller, Scope, use_caller
from loom_core.tools.calls import UNKNOWN_TOOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult

    from loom_core.observability.metrics import LoomMetrics

__all__ = ["CALLER_KEY", "RUN_KEY", "AuthorizationMiddleware", "Outcome", "ToolScope", "scope_of_request"]

CALLER_KEY = "loom.caller"
"""Key of the caller in the ASGI scope of a request, set by the HTTP middleware."""

RUN_KEY = "loom.run"
"""Key in the ASGI scope of a request: returns the context to run its call in, which may cancel the call."""

ToolScope = Callable[[str], Scope | None]
"""Returns the scope that a tool needs, or None if there is no such tool."""

Outcome: TypeAlias = Literal["success", "error", "refused", "cancelled"]
"""Outcome of a call: `error` is a tool error for the model, `refused` an error of the protocol."""

_READING = ("resources/", "prompts/", "completion/", "subscriptions/")

_log = logging.getLogger(__name__)


class AuthorizationMiddleware:
    """Authorization middleware of one server, for the SDK.

    The HTTP middleware refuses an unauthorized request earlier, with a challenge for the client; this one
    covers all transports.

    Args:
        tool_scope: returns the scope that a tool needs.
        metrics: counts the calls.
    """

    def __init__(self, tool_scope: ToolScope, metrics: LoomMetrics) -> None:
        self._tool_scope = tool_scope
        self._metrics = metrics

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve a request for its caller.

        Raises:
            MCPError: the caller may not do this; or whatever the handler raises.
        """
        http: Mapping[str, Any] = getattr(ctx.request, "scope", {})
        caller: Caller = http.get(CALLER_KEY, FULL_ACCESS)
        scope = scope_of_request(ctx.method, ctx.params, self._tool_scope)
        if scope is not None and not caller.may(scope):
            _log.warning("%s may not use %s: no scope %s", caller.name, ctx.method, scope)
            raise MCPError(code=INVALID_REQUEST, message=f"This needs the scope {scope}.")
        # A notification is no call: the handler of `initialized` runs as long as its connection.
        run = nullcontext if ctx.request_id is None else http.get(RUN_KEY, nullcontext)
        with use_caller(caller), run():
            name = _tool_of(ctx.method, ctx.params)
            if self._tool_scope(name) is None:
                if ctx.method != "tools/call":
                    return await call_next(ctx)
                name = UNKNOWN_TOOL  # clients may send any name
            return await self._count_call(name, ctx, call_next)
        raise MCPError(code=INVALID_REQUEST, message="The token is no longer valid.")

    async def _count_call(
        self, tool: str, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        began = time.perf_counter()
        outcome: Outcome = "refused"
        try:
            result = await call_next(ctx)
            outcome = "error" if isinstance(result, dict) and result.get("isError") else "success"
            return result
        except anyio.get_cancelled_exc_class():
            outcome = "cancelled"
            raise
        finally:
            self._metrics.add(SERVED_CALLS, tool, outcome)
            if tool != UNKNOWN_TOOL:
                self._metrics.observe(SERVED_SECONDS, time.perf_counter() - began, tool)


def scope_of_request(method: str, params: Mapping[str, Any] | None, tool_scope: ToolScope) -> Scope | None:
    """Return the scope that a request of the protocol needs, or None if any caller may send it."""
    if method.startswith(_READING):
        return "read"
    return tool_scope(_tool_of(method, params))


def _tool_of(method: str, params: Mapping[str, Any] | None) -> str:
    name: object = params.get("name") if method == "tools/call" and params else ""
    return name if isinstance(name, str) else ""
