"""Reaches an ASGI app without a network, and hands its answers on piece by piece, as they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import anyio
import httpx2

__all__ = ["StreamingASGITransport"]

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]


class StreamingASGITransport(httpx2.AsyncBaseTransport):
    """As `httpx2.ASGITransport`, which waits for the whole answer first; this one does not.

    The app is slowed down to the speed of its reader. Who closes a response, or is cancelled, disconnects:
    the app is told. An app that ends before its answer does has broken the connection. The timeout for
    reading counts, as on a network. For asyncio only.
    """

    def __init__(self, app: _App, *, patience: float = 5.0) -> None:
        """Take the app.

        Args:
            app: who answers.
            patience: seconds that an app has to end after its client left; then it is cancelled.
        """
        self._app = app
        self._patience = patience

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The head of the answer; its body follows as it is read."""
        exchange = _Exchange(request, await request.aread(), self._patience)
        exchange.start(self._app)
        try:
            head = await exchange.next()
        except BaseException:
            await exchange.aclose()
            raise
        if head is None:
            await exchange.aclose()
            raise httpx2.RemoteProtocolError(
                "Server disconnected without sending a response.", request=request
            )
        return httpx2.Response(head["status"], headers=head.get("headers", []), stream=exchange)


class _Exchange(httpx2.AsyncByteStream):
    """One request and its answer."""

    def __init__(self, request: httpx2.Request, body: bytes, patience: float) -> None:
        self._request = request
        self._body: bytes | None = body
        self._patience = patience
        self._timeout: float | None = request.extensions.get("timeout", {}).get("read")
        self._sender, self._receiver = anyio.create_memory_object_stream[_Message](0)
        self._left = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, app: _App) -> None:
        # A task of its own, as the answer outlives the call that asks for it; `aclose` ends it.
        self._task = asyncio.create_task(self._run(app))

    async def next(self) -> _Message | None:
        """What the app sends next, or None where it has ended."""
        with anyio.move_on_after(self._timeout) as waiting:
            try:
                return await self._receiver.receive()
            except anyio.EndOfStream:
                assert self._task is not None
                await self._task  # an error of the app is raised here
                return None
        assert waiting.cancelled_caught
        raise httpx2.ReadTimeout("The app took too long.", request=self._request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.next()) is not None:
            if body := message.get("body", b""):
                yield body
            if not message.get("more_body", False):
                return
        raise httpx2.RemoteProtocolError(
            "peer closed connection without sending complete message body (incomplete chunked read)",
            request=self._request,
        )

    async def aclose(self) -> None:
        self._left.set()
        self._receiver.close()
        assert self._task is not None
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._task], timeout=self._patience)
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # it was raised to the reader, or nobody is left to read it

    async def _run(self, app: _App) -> None:
        request = self._request
        scope: _Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 123),
            "root_path": "",
        }
        async with self._sender:
            await app(scope, self._receive, self._send)

    async def _receive(self) -> _Message:
        if (body := self._body) is not None:
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        try:
            await self._sender.send(message)
        except anyio.BrokenResourceError:
            # As on a network: what is sent to who has left is lost.
            await self._left.wait()
