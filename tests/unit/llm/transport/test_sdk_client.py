from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest

from loom_core.llm.transport.sdk_client import drain_events, iter_events


class _Pieces(httpx2.AsyncByteStream):
    """Sends pieces, and then nothing until it is closed, if it is told to."""

    def __init__(self, *pieces: bytes, hangs: bool = False, breaks: bool = False) -> None:
        self.sent = 0
        self._pieces, self._hangs, self._breaks = pieces, hangs, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.sent += 1
            yield piece
        if self._breaks:
            raise httpx2.ReadError("gone")
        if self._hangs:
            await anyio.sleep_forever()


def _response(pieces: _Pieces, kind: str = "text/event-stream") -> httpx2.Response:
    request = httpx2.Request("POST", "http://fake")
    return httpx2.Response(200, headers={"content-type": kind}, stream=pieces, request=request)


@pytest.mark.parametrize(
    "kind", ["text/event-stream; charset=utf-8", "text/plain", "application/octet-stream"]
)
async def test_events_are_read_whatever_the_server_calls_them(kind: str) -> None:
    pieces = _Pieces("data: 你".encode()[:-1], "你".encode()[-1:] + b"\r\n\r\n: comment\n\ndata: 2\n\n")
    events = iter_events(_response(pieces, kind), max_size=100)
    assert [event.data async for event in events] == ["你", "2"]


async def test_a_page_is_no_stream() -> None:
    with pytest.raises(httpx2.TransportError, match="text/html"):
        await anext(iter_events(_response(_Pieces(b"<html>"), "text/html"), max_size=100))


async def test_an_event_without_end_is_given_up_before_it_fills_the_memory() -> None:
    pieces = _Pieces(b"data: ", *[b"x" * 100] * 1000)
    with pytest.raises(httpx2.TransportError, match="1000 byte limit"):
        await anext(iter_events(_response(pieces), max_size=1000))
    assert pieces.sent < 15


@pytest.mark.parametrize("end", [{}, {"hangs": True}, {"breaks": True}])
async def test_what_follows_the_last_event_is_read_but_not_waited_for(end: dict[str, bool]) -> None:
    pieces = _Pieces(b"data: last\n\n", b"data: more\n\n", **end)
    events = iter_events(_response(pieces), max_size=100)
    assert (await anext(events)).data == "last"
    with anyio.fail_after(30):
        await drain_events(events)
    assert pieces.sent == 2


async def test_reading_out_can_be_cancelled() -> None:
    events = iter_events(_response(_Pieces(b"data: last\n\n", hangs=True)), max_size=100)
    await anext(events)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await drain_events(events)
    assert scope.cancelled_caught
