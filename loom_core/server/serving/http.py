"""Streamable HTTP server: local, or for a network with bearer tokens."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.observability.families import HTTP_REFUSED
from loom_core.server.serving.http_settings import HttpSettings

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp, Receive, Scope, Send

    from loom_core.server.protocol.factory import LoomServer

__all__ = ["serve_http"]

_log = logging.getLogger(__name__)


async def serve_http(
    server: LoomServer,
    settings: HttpSettings | None = None,
    *,
    on_ready: Callable[[str], None] = lambda _url: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve over HTTP until SIGTERM or SIGINT; then end calls and streams, and close the lifespan.

    Args:
        server: the server.
        settings: settings of the HTTP server; `HttpSettings()` if not given.
        on_ready: called with the URL of the endpoint, with the actual port, as soon as it is reachable.
        on_stop: called once when no more requests are admitted.

    Raises:
        KeyboardInterrupt: a further SIGINT came, so running calls were cancelled at once.
        ConfigError: the host is not a loopback address and there is no authentication, or the port
            cannot be bound.
        Exception: whatever the server's lifespan raises.
    """
    settings = settings or HttpSettings()
    with _listen(settings) as listener:
        import uvicorn

        from loom_core.server.serving.http_app import http_app
        from loom_core.server.serving.http_middleware import HttpState, build_protocol

        state = HttpState()

        class HttpServer(uvicorn.Server):
            """uvicorn server with graceful shutdown on a signal, which it does not raise again.

            The SDK's event streams detect the shutdown by `should_exit` of the object that handles the
            signal.
            """

            refuse_at: float | None = None
            interrupted: bool = False

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                _log.info("listening on %s", url)
                on_ready(url)

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                self.force_exit = self.should_exit  # a further signal does not wait any more
                self.interrupted = self.force_exit and sig == signal.SIGINT
                self.should_exit = self.refuse_at is not None or settings.drain_seconds <= 0
                state.serving = False
                if self.refuse_at is None:
                    self.refuse_at = time.monotonic() + settings.drain_seconds

            async def on_tick(self, counter: int) -> bool:
                if self.refuse_at is not None and time.monotonic() >= self.refuse_at:
                    self.should_exit = True
                return await super().on_tick(counter)

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                on_stop()
                server.end_subscriptions()
                await super().shutdown(sockets)
                if self.force_exit:  # uvicorn would leave both to the end of the loop
                    for task in self.server_state.tasks:
                        task.cancel()
                    await self.lifespan.shutdown()

        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{settings.path}"
        failures: list[Exception] = []
        config = uvicorn.Config(
            _record_failures(http_app(server, settings, state=state), failures),
            # h11: httptools, if installed, would not strip the spaces around a header's value.
            http=build_protocol(settings.head_seconds, lambda: server.metrics.add(HTTP_REFUSED, "head_time")),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            limit_concurrency=settings.max_connections,
            server_header=False,
            timeout_graceful_shutdown=settings.grace_seconds,
        )
        with suppress(SystemExit):  # uvicorn raises it if the lifespan cannot be opened
            running = HttpServer(config)
            await running.serve([listener])
            if running.interrupted:
                raise KeyboardInterrupt
        if failures:
            raise failures[0]


def _record_failures(app: ASGIApp, failures: list[Exception]) -> ASGIApp:
    """Return the application; errors of its lifespan, which uvicorn only logs, are added to the list."""

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                failures.append(error)
            raise

    return record


def _listen(settings: HttpSettings) -> socket.socket:
    host, address, port = settings.host, settings.address, settings.port
    if not settings.listens_locally and not (settings.auth and settings.auth.is_required):
        raise ConfigError(
            f"This server does not listen on {host!r}: without authentication it serves this machine only.",
            advice="Demand tokens with --tokens or --issuer; or listen on 127.0.0.1, with a TLS proxy that "
            "authenticates in front, or use an SSH tunnel.",
        )
    if not 0 <= port <= 65_535:
        raise ConfigError(
            f"{port} is not a TCP port.", advice="Choose one from 1 to 65535, or 0 for any free one."
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else "there is no such address"
        advice = "Give an address of this machine, and a port that this user may use."
        if error.errno == errno.EADDRINUSE:
            advice = "Stop the other server if there is one, choose another port, or give 0 for any free one."
        raise ConfigError(f"Cannot listen on port {port} of {address}: {reason}.", advice=advice) from error
    # asyncio turns Nagle's algorithm off only for sockets whose protocol is TCP, which is not the default;
    # otherwise the second part of each answer waits 40 ms for the client to acknowledge the first.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listener.detach())
