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
        host: an address; one that is not loopback is refused without authentication.
        port: TCP port, or 0 for any free one.
        path: path of the MCP endpoint; `/healthz`, `/readyz` and `/metrics` are next to it.
        allowed_hosts: further names that a `Host` header may carry, such as that of a proxy in front.
        auth: who is let in; None for everybody who can reach the address.
        limits: the share of each caller who has authenticated.
        max_connections: connections at a time; a request on a further one is answered with 503.
        max_sessions: sessions of the handshake era at a time, of all callers.
        max_body_bytes: a longer request is answered with 413.
        session_idle_seconds: a session of the handshake era ends after so long without a request.
        head_seconds: how long the head of a request may take to arrive.
        body_seconds: how long its body may take.
        drain_seconds: after the order to stop, `/readyz` fails for so long before connections are refused.
        grace_seconds: how long running calls have after that.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    path: str = "/mcp"
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
        """The host, as sockets want it."""
        return "127.0.0.1" if self.host == "localhost" else self.host.strip("[]")
