"""HTTP transport of the SDK's client: Streamable HTTP, and the older HTTP with SSE."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from loom_core.mcp_client.connections.errors import ANSWER_BYTES, Fault, Faults

if TYPE_CHECKING:
    import httpx2
    from mcp.client import Transport
    from mcp.shared.message import SessionMessage

    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["HttpTransport", "ResultNormalizer"]


class HttpTransport:
    """Transport to a server over HTTP. Enter and leave it in the same task.

    Attributes:
        faults: the faults behind the errors that are sent in the server's place.
        unauthorized: the first authentication failure; the SDK goes on, and later errors hide it.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        auth: httpx2.Auth | None,
        on_end: Callable[[Fault], None],
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        """Prepare a transport.

        Args:
            config: the server.
            auth: authenticates the requests, or None.
            on_end: called when the connection is lost; with SSE only, else the caller gets an error.
            answer_bytes: maximum size of an answer.
        """
        self.faults = Faults()
        self.unauthorized: Fault | None = None
        self._config = config
        self._auth = auth
        self._on_end = on_end
        self._answer_bytes = answer_bytes
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:  # the SDK has no public names for its streams
        from loom_core.mcp_client.connections.http_client import HttpExchange

        sse = self._config.transport == "sse"
        exchange = HttpExchange(
            self._config,
            auth=self._auth,
            faults=self.faults,
            on_fault=self._note,
            answer_bytes=self._answer_bytes,
        )
        async with AsyncExitStack() as stack:
            read, write = await stack.enter_async_context(
                self._sse(exchange) if sse else await self._streamable(exchange, stack)
            )
            self._opened = stack.pop_all()
            return ResultNormalizer(read, lambda: exchange.revision), write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, trace)

    def _note(self, fault: Fault) -> None:
        if fault.failure == "authentication" and self.unauthorized is None:
            self.unauthorized = fault
        if self._config.transport == "sse":
            self._on_end(fault)

    async def _streamable(self, exchange: httpx2.AsyncClient, stack: AsyncExitStack) -> Transport:
        from mcp.client.streamable_http import streamable_http_client

        await stack.enter_async_context(exchange)
        return streamable_http_client(
            self._config.url, http_client=exchange, max_sse_event_size=self._answer_bytes
        )

    def _sse(self, exchange: httpx2.AsyncClient) -> AbstractAsyncContextManager[Any]:
        from mcp.client.sse import sse_client

        def make_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return exchange  # it is configured already

        return sse_client(self._config.url, httpx_client_factory=make_client)


_FIRST_TYPED = "2026-07-28"  # first revision whose results have a `resultType`


class ResultNormalizer:
    """Read stream of an SDK transport that adds a missing `resultType` to results.

    By the protocol, a result without `resultType` counts as complete; the SDK refuses it.

    Args:
        stream: the read stream of the transport.
        revision: returns the current protocol revision.
    """

    def __init__(self, stream: Any, revision: Callable[[], str]) -> None:  # noqa: ANN401 - the SDK names it not
        self._stream = stream
        self._revision = revision

    @property
    def last_context(self) -> object:
        """The SDK's context of the sender of the last message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or its error.

        Raises:
            anyio.EndOfStream: the stream has ended.
        """
        return self._normalize(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._normalize(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)

    def _normalize(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        from mcp_types import JSONRPCResponse

        if isinstance(item, Exception) or self._revision() < _FIRST_TYPED:
            return item
        if isinstance(item.message, JSONRPCResponse):
            item.message.result.setdefault("resultType", "complete")
        return item
