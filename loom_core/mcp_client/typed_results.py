"""Answers over HTTP, each of which says of what type it is, whether the server said it or not."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

__all__ = ["TypedResults"]

_FIRST_TYPED = "2026-07-28"  # revision since which a result says of what type it is


class TypedResults:
    """What a transport of the SDK reads, where the SDK refuses what the protocol lets pass.

    A result without `resultType` counts as complete by the protocol; however it came, as JSON or as an event
    of a stream, it says so here.

    Args:
        stream: what the transport reads.
        revision: that of the protocol which is spoken now.
    """

    def __init__(self, stream: Any, revision: Callable[[], str]) -> None:  # noqa: ANN401 - the SDK names it not
        self._stream = stream
        self._revision = revision

    @property
    def last_context(self) -> object:
        """What the SDK keeps of whoever sent the last message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or what went wrong with it.

        Raises:
            anyio.EndOfStream: there will be none.
        """
        return self._typed(await self._stream.receive())

    async def aclose(self) -> None:
        """Close what is read from."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._typed(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)

    def _typed(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        from mcp_types import JSONRPCResponse

        if isinstance(item, Exception) or self._revision() < _FIRST_TYPED:
            return item
        if isinstance(item.message, JSONRPCResponse):
            item.message.result.setdefault("resultType", "complete")
        return item
