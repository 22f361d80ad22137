"""Streams of events: none longer than it may be, and left as soon as the answer is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

__all__ = ["events_of", "read_out"]

_LAST_SECONDS = 0.1


def events_of(response: httpx2.Response, *, max_size: int) -> AsyncIterator[httpx2.ServerSentEvent]:
    """The events of a stream.

    Args:
        response: the answer of a server. Some give streams another type, or none: all is read as events, but
            the page of a proxy.
        max_size: bytes that an event may have.

    Raises:
        httpx2.HTTPError: while it is iterated: the connection breaks, or what comes is no stream of events.
    """
    import httpx2

    if "html" not in response.headers.get("content-type", ""):
        response.headers["content-type"] = "text/event-stream"
    return aiter(httpx2.EventSource(response, max_event_size=max_size))


async def read_out(events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """Read what follows the last event that matters, so that the connection can be used again.

    That is a matter of an instant. Where it takes longer, or goes wrong, the connection is given up.
    """
    import httpx2

    with anyio.move_on_after(_LAST_SECONDS):
        try:
            async for _ in events:
                pass
        except httpx2.HTTPError:
            pass
