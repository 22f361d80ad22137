from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import httpx2
import pytest

from tests.fixtures.streaming_transport import StreamingASGITransport

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1")]}


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def client(app: Any, **options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=StreamingASGITransport(app, **options))


async def test_pieces_come_as_they_are_sent_and_the_app_goes_no_faster_than_its_reader():
    sent: list[int] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send(START)
        for number in range(5):
            await send(part(b"%d" % number))
            sent.append(number)
        await send(part(b"", more=False))

    async with client(app) as http, http.stream("GET", "http://app/") as response:
        pieces = response.aiter_raw()
        assert (await anext(pieces), response.headers["x-a"]) == (b"0", "1")
        assert len(sent) <= 1
        assert [piece async for piece in pieces] == [b"1", b"2", b"3", b"4"]


async def test_the_app_gets_the_request():
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        message = await receive()
        await send(START)
        said = b" ".join(
            [scope["method"].encode(), scope["path"].encode(), scope["query_string"], message["body"]]
        )
        await send(part(said, more=False))

    async with client(app) as http:
        response = await http.post("http://app/路?q=1", content="问".encode())
    assert response.content == "POST /路 q=1 问".encode()


async def test_who_closes_early_disconnects_and_what_is_sent_then_is_lost():
    seen: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send(part(b"a"))
        with anyio.move_on_after(1):
            await send(part(b"b"))
        seen.append((await receive())["type"])

    async with client(app) as http, http.stream("GET", "http://app/") as response:
        await anext(response.aiter_raw())
    assert seen == ["http.disconnect"]


async def test_an_app_that_does_not_end_is_cancelled():
    ended: list[bool] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await send(START)
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    async with client(app, patience=0.01) as http, http.stream("GET", "http://app/"):
        pass
    assert ended == [True]


@pytest.mark.parametrize("started", [False, True])
async def test_an_app_that_ends_too_early_breaks_the_connection(started: bool):
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if started:
            await send(START)
            await send(part(b"half"))

    async with client(app) as http:
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.get("http://app/")


@pytest.mark.parametrize("started", [False, True])
async def test_an_error_of_the_app_is_raised_to_its_reader(started: bool):
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if started:
            await send(START)
        raise ZeroDivisionError("broken")

    async with client(app) as http:
        with pytest.raises(ZeroDivisionError, match="broken"):
            await http.get("http://app/")


async def test_an_app_that_is_too_slow_is_a_timeout():
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await receive()

    async with client(app) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.get("http://app/", timeout=0.01)
