"""Browser login: open the authorization server, and receive the redirect at a loopback address."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import SocketAttribute

from loom_core.errors import ConfigError, LoginError

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import SocketStream
    from anyio.streams.stapled import MultiListener

__all__ = ["Browser", "LoopbackBrowser"]

_HOST = "127.0.0.1"
_PATH = "/callback"
_MAX_HEAD = 16 << 10  # bytes of a request; one with a code has some hundred
_READ_SECONDS = 10.0
_DONE = "You are logged in. You can close this page and go back to the terminal."
_REFUSED = "The login was refused. The terminal says more."


class Browser(Protocol):
    """Interface of a browser: open a page of the authorization server, and receive the redirect."""

    @property
    def redirect_uri(self) -> str:
        """Redirect URI of the authorization request."""
        ...

    async def visit(self, url: str) -> None:
        """Show a page; returns at once."""
        ...

    async def answer(self) -> Mapping[str, str]:
        """Wait for the redirect, and return its parameters, such as `code`, `state` and `iss`.

        Raises:
            LoginError: it has not come back in time.
        """
        ...


class LoopbackBrowser:
    """The user's browser, with a redirect to a loopback port (RFC 8252, section 7.3).

    Use it as `async with`: the port is open in the block.

    Args:
        show: shows the page, such as by opening a browser or printing its address; must not block.
        port: where to listen; 0 for any port.
        seconds: how long the person may take.
    """

    def __init__(self, show: Callable[[str], None], *, port: int = 0, seconds: float = 300.0) -> None:
        self._show = show
        self._port = port
        self._seconds = seconds
        self._listener: MultiListener[SocketStream]
        self._answer: Mapping[str, str] = {}

    async def __aenter__(self) -> Self:
        """Take the port.

        Raises:
            ConfigError: it is taken.
        """
        try:
            self._listener = await anyio.create_tcp_listener(local_host=_HOST, local_port=self._port)
        except OSError as error:
            raise ConfigError(
                f"Nothing can listen on port {self._port}: {error.strerror}.",
                advice="End what uses it, or configure another redirect_port.",
            ) from error
        self._port = self._listener.extra(SocketAttribute.local_port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.aclose()

    @property
    def redirect_uri(self) -> str:
        """Redirect URI of the authorization request."""
        return f"http://{_HOST}:{self._port}{_PATH}"

    async def visit(self, url: str) -> None:
        """Show a page; returns at once."""
        self._answer = {}
        self._show(url)

    async def answer(self) -> Mapping[str, str]:
        """Wait for the redirect, and return its parameters.

        Raises:
            LoginError: it has not come back in time.
        """
        came = anyio.Event()

        async def serve(stream: SocketStream) -> None:
            if await self._serve(stream):
                came.set()

        async with anyio.create_task_group() as visitors:
            visitors.start_soon(self._listener.serve, serve, visitors)
            with anyio.move_on_after(self._seconds):
                await came.wait()
            visitors.cancel_scope.cancel()
        if not self._answer:
            raise LoginError(
                f"There was no login within {self._seconds:g} seconds.", advice="Start the login again."
            )
        return self._answer

    async def _serve(self, stream: SocketStream) -> bool:
        """Answer one request, and return whether the redirect has come."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError):
            async with stream:
                with anyio.fail_after(_READ_SECONDS):
                    target = await _target(stream)
                place = urlsplit(target)
                parameters = dict(parse_qsl(place.query))
                if place.path != _PATH or not parameters.keys() & {"code", "error"}:
                    await stream.send(_page(404, "There is nothing here."))
                    return False
                if not self._answer:
                    self._answer = parameters
                await stream.send(_page(200, _DONE if "code" in parameters else _REFUSED))
                await stream.send_eof()
        return bool(self._answer)


async def _target(stream: SocketStream) -> str:
    """Return the path and query that a browser asks for; empty if it is no GET."""
    head = b""
    while (
        b"\r\n\r\n" not in head and len(head) < _MAX_HEAD
    ):  # read it whole: unread data would reset the connection
        head += await stream.receive()
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    return rest.partition(b" ")[0].decode("latin-1") if method == b"GET" else ""


def _page(status: int, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Loom</title><p>{html.escape(text)}</p>".encode()
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not Found'}\r\n"
        f"Content-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
