"""Settings of an HTTP server: address and connection limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_core.server.serving.limits import Limits

if TYPE_CHECKING:
    from loom_core.server.auth.authentication import AuthSettings

__all__ = ["HttpSettings"]


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Settings of an HTTP server.

    Attributes:
        host: address to listen on; one that is not loopback requires authentication.
        port: TCP port, or 0 for any free one.
        path: path of the MCP endpoint; `/healthz`, `/readyz` and `/metrics` are next to it.
        node_url: address of this node for the others behind one load balancer, see `check_node_url`; empty if
            there are no others.
        allowed_hosts: further allowed names in the `Host` header, such as that of a proxy.
        auth: authentication settings; None for no authentication.
        limits: limits of each authenticated caller.
        max_connections: maximum number of connections; requests on further ones are answered with 503.
        max_sessions: maximum number of sessions of the handshake era, of all callers.
        max_body_bytes: maximum size of a body; a longer one is answered with 413.
        session_idle_seconds: idle timeout of a session of the handshake era.
        head_seconds: timeout for receiving the head of a request.
        body_seconds: timeout for receiving its body.
        drain_seconds: time on shutdown for which `/readyz` fails before connections are refused.
        grace_seconds: time for running calls after that.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    path: str = "/mcp"
    node_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
    auth: AuthSettings | None = None
    limits: Limits = field(default_factory=Limits)
    max_connections: int = 1000
    max_sessions: int = 1000
    max_body_bytes: int = 4 << 20
    session_idle_seconds: float = 1800.0
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    drain_seconds: float = 0.0
    grace_seconds: int = 3

    @property
    def listens_locally(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def address(self) -> str:
        """The host as an IP address for sockets."""
        return "127.0.0.1" if self.host == "localhost" else self.host.strip("[]")
