"""Serving over Streamable HTTP, on this machine only."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from types import FrameType

    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from loom_core.server.factory import LoomServer

__all__ = ["HttpSettings", "http_app", "serve_http"]

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_GRACE = 3  # seconds that open connections have after a signal

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where and how to listen.

    Attributes:
        host: a loopback address; anything else is refused, for there is no authentication.
        port: TCP port, or 0 for any free one.
        path: path of the MCP endpoint; `/healthz` is beside it.
        allowed_hosts: further names that a `Host` header may carry, such as that of a proxy in front.
        max_body_bytes: a longer request is answered with 413.
        session_idle_seconds: a session of the handshake era ends after so long without a request.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    path: str = "/mcp"
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 4 << 20
    session_idle_seconds: float = 1800.0


def http_app(server: LoomServer, settings: HttpSettings) -> Starlette:
    """The ASGI application: the MCP endpoint and `/healthz`, both behind the checks of Host and Origin.

    The checks keep out web pages that have made their own name point to this machine (DNS rebinding): a
    request with a foreign `Host` is answered with 421, one with a foreign `Origin` with 403.
    """
    from mcp.server.transport_security import TransportSecurityMiddleware
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    security = _security(settings.allowed_hosts)
    checks = TransportSecurityMiddleware(security)

    async def health(request: Request) -> Response:
        refused = await checks.validate_request(request)
        protocol = server.protocol
        status = {"status": "ok", "name": protocol.name, "version": protocol.version}
        return JSONResponse(status) if refused is None else refused

    return server.protocol.streamable_http_app(
        streamable_http_path=settings.path,
        max_request_body_size=settings.max_body_bytes,
        session_idle_timeout=settings.session_idle_seconds,
        transport_security=security,
        custom_starlette_routes=[Route("/healthz", health)],
    )


async def serve_http(
    server: LoomServer,
    settings: HttpSettings | None = None,
    *,
    on_ready: Callable[[str], None] = lambda _url: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve over HTTP until SIGTERM or SIGINT; then streams are ended and the lifespan is closed.

    Args:
        server: what to serve.
        settings: where to listen; `HttpSettings()` if not given.
        on_ready: called with the URL of the endpoint, with the real port, as soon as it can be reached.
        on_stop: called once when the end has come.

    Raises:
        ConfigError: the host is not a loopback address, or the port cannot be had.
        Exception: whatever the server's lifespan raises.
    """
    import uvicorn

    class HttpServer(uvicorn.Server):
        """uvicorn, but a signal ends `serve` in good order instead of being raised again afterwards.

        The SDK's event streams find out about the end by `should_exit` of the object that handles the signal.
        """

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _log.info("listening on %s", url)
            on_ready(url)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit  # the second signal does not wait any more
            self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            on_stop()
            server.end_subscriptions()
            await super().shutdown(sockets)

    settings = settings or HttpSettings()
    with _listen(settings.host, settings.port) as listener:
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{settings.path}"
        app = http_app(server, settings)
        failures: list[Exception] = []

        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                if scope["type"] == "lifespan":
                    failures.append(error)
                raise

        config = uvicorn.Config(
            recorded,
            http="h11",  # httptools, where it is installed, leaves the blanks around a header's value
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        with suppress(SystemExit):  # that is how uvicorn tells of a lifespan that cannot be opened
            await HttpServer(config).serve([listener])
        if failures:
            raise failures[0]


def _security(allowed_hosts: tuple[str, ...]) -> TransportSecuritySettings:
    from mcp.server.transport_security import TransportSecuritySettings

    hosts = [*_LOCAL_HOSTS, *allowed_hosts]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for host in hosts for form in (host, f"{host}:*")],
        allowed_origins=[
            form
            for host in hosts
            for scheme in ("http", "https")
            for form in (f"{scheme}://{host}", f"{scheme}://{host}:*")
        ],
    )


def _listen(host: str, port: int) -> socket.socket:
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"This server does not listen on {host!r}: without authentication it serves this machine only.",
            advice="Listen on 127.0.0.1, with a TLS proxy that authenticates in front, or use an SSH tunnel.",
        )
    if not 0 <= port <= 65_535:
        raise ConfigError(
            f"{port} is not a TCP port.", advice="Choose one from 1 to 65535, or 0 for any free one."
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on port {port} of {address}: {os.strerror(error.errno or 0)}.",
            advice="Stop the other server if there is one, choose another port, or give 0 for any free one.",
        ) from error
