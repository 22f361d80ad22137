"""Attributes missing from the SDK's request span, and trace propagation in HTTP headers.

The SDK creates that span, and puts its context into `_meta` of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace import get_current_span

from loom_core.observability.propagation import inject_context
from loom_core.observability.spans import MCP_CLIENT

if TYPE_CHECKING:
    import httpx2
    from opentelemetry.trace import Span

__all__ = ["trace_http_request", "trace_stdio_request"]

_SENDS = MCP_CLIENT.name.partition("{")[0]
_HEADERS = {"mcp.session.id": "mcp-session-id", "mcp.protocol.version": "mcp-protocol-version"}


def trace_http_request(request: httpx2.Request, *, server: str) -> None:
    """Add the attributes of an HTTP request to its span, and the trace context to its headers.

    Args:
        request: the outgoing request; its headers are changed.
        server: the server's id in the configuration.
    """
    request.headers.update(inject_context())
    current = _of_request()
    if current is None:
        return
    current.set_attributes(
        {"loom.mcp.server": server, "network.transport": "tcp", "network.protocol.name": "http"}
    )
    current.set_attribute("server.address", request.url.host)
    current.set_attribute("server.port", request.url.port or (443 if request.url.scheme == "https" else 80))
    for name, header in _HEADERS.items():
        if value := request.headers.get(header):
            current.set_attribute(name, value)


def trace_stdio_request(*, server: str) -> None:
    """Add the attributes of a request over stdio to its span."""
    current = _of_request()
    if current is not None:
        current.set_attributes({"loom.mcp.server": server, "network.transport": "pipe"})


def _of_request() -> Span | None:
    """Return the SDK's span if it is the current one, else None; a notification has none."""
    current = get_current_span()
    name: object = getattr(current, "name", "")
    return current if isinstance(name, str) and name.startswith(_SENDS) else None
