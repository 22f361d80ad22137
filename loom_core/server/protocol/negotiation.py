"""Protocol negotiation on a stream: probes with `server/discover` leave a client free to choose either era.

The SDK takes the first request as the client's choice: after a `server/discover` it refuses `initialize`
(-32022). A client that gives up its probe before a slow server has answered, as `@ai-sdk/mcp` does after a
second, then cannot connect at all. Here another loop of the SDK answers probes until the first other request
makes the choice. tests/unit/server/protocol/test_negotiation.py has a test that fails once the SDK does not
need this workaround.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCNotification, JSONRPCRequest

if TYPE_CHECKING:
    from contextvars import Context
    from types import TracebackType
    from typing import Self

    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from mcp.server import Server
    from mcp.server.models import InitializationOptions
    from mcp.shared._stream_protocols import ReadStream, WriteStream

__all__ = ["serve_stream"]


async def serve_stream(
    server: Server[object],
    messages: ReadStream[SessionMessage | Exception],
    answers: WriteStream[SessionMessage],
    *,
    lifespan_state: object,
    options: InitializationOptions,
    raise_exceptions: bool,
) -> None:
    """Answer probes, then serve a connection in the era of its first other request.

    Args:
        server: the server.
        messages: messages from the client; closed at the end.
        answers: messages to the client; closed at the end.
        lifespan_state: state of the server's lifespan.
        options: options of the handshake.
        raise_exceptions: whether to raise the handlers' exceptions, for tests.
    """

    async def serve(
        incoming: ReadStream[SessionMessage | Exception], outgoing: WriteStream[SessionMessage]
    ) -> None:
        await serve_dual_era_loop(
            server,
            incoming,
            outgoing,
            lifespan_state=lifespan_state,
            init_options=options,
            raise_exceptions=raise_exceptions,
        )

    probes_send, probes = anyio.create_memory_object_stream[SessionMessage | Exception]()
    probed_send, probed = anyio.create_memory_object_stream[SessionMessage]()
    with probes_send, probes, probed_send, probed:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, probes, probed_send)
            tasks.start_soon(_relay, probed, answers)
            await serve(_WithoutProbes(messages, probes_send), answers)
            tasks.cancel_scope.cancel()


async def _relay(received: ObjectReceiveStream[SessionMessage], target: WriteStream[SessionMessage]) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection has ended
        async for message in received:
            await target.send(message)


class _WithoutProbes:
    """Stream of a client's messages, without the probes before the first other request."""

    def __init__(
        self,
        messages: ReadStream[SessionMessage | Exception],
        probes: ObjectSendStream[SessionMessage | Exception],
    ) -> None:
        self._messages = messages
        self._probes = probes
        self._has_chosen = False

    @property
    def last_context(self) -> Context | None:
        """The context of the last message's sender, which the SDK reads."""
        return getattr(self._messages, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._messages.receive()
            message = item.message if isinstance(item, SessionMessage) else None
            if self._has_chosen or not _is_of_probe(message):
                self._has_chosen = self._has_chosen or isinstance(message, JSONRPCRequest)
                return item
            await self._probes.send(item)

    async def aclose(self) -> None:
        await self._messages.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _is_of_probe(message: object) -> bool:
    """Return whether a message before the client's choice is a probe or belongs to one."""
    if isinstance(message, JSONRPCNotification):
        return message.method == "notifications/cancelled"
    if not isinstance(message, JSONRPCRequest) or message.method != "server/discover":
        return False
    meta: Any = (message.params or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
