"""Sends an answer, with what goes wrong on the way, and notices who leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from loom_core.testing.vendors.script import Turn

__all__ = ["Delivery", "as_json"]


class Delivery(Response):
    """An answer of a fake vendor, as pieces that are sent one by one."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        turn: Turn,
        *,
        stream: bool,
        keep_alive: bytes = b"",
        headers: Mapping[str, str],
        on_disconnect: Callable[[], None],
    ) -> None:
        """Take what is to be sent.

        Args:
            pieces: the body.
            turn: its faults.
            stream: whether this is a stream of events: its headers do not wait.
            keep_alive: is sent at once where the answer has to wait.
            headers: of the answer, besides its type.
            on_disconnect: is called if the client leaves before the end.
        """
        kind = "text/event-stream; charset=utf-8" if stream else "application/json"
        super().__init__(status_code=turn.status, headers=dict(headers), media_type=kind)
        # A body that may not be whole goes without a length, as streams do.
        del self.headers["content-length"]
        self._pieces = pieces
        self._turn = turn
        self._stream = stream
        self._keep_alive = keep_alive if stream else b""
        self._on_disconnect = on_disconnect
        self._sent = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, until it ends or nobody listens."""
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                if not self._sent:  # else this is the end of the request
                    self._on_disconnect()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await self._send(send)
            group.cancel_scope.cancel()

    async def _send(self, send: Send) -> None:
        turn = self._turn
        if turn.wait is not None and not self._stream:
            await turn.wait.wait()
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if turn.wait is not None and self._stream:
            if self._keep_alive:
                await send({"type": "http.response.body", "body": self._keep_alive, "more_body": True})
            await turn.wait.wait()
        stop = turn.cut_after if turn.hang_after is None else turn.hang_after
        for piece in _up_to(self._pieces, stop):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if turn.hang_after is not None:
            await anyio.sleep_forever()
        self._sent = True
        if turn.cut_after is None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def as_json(value: object) -> bytes:
    """A body of JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _up_to(pieces: Sequence[bytes], size: int | None) -> Sequence[bytes]:
    """The first bytes, in the pieces that they are sent in."""
    if size is None:
        return pieces
    kept: list[bytes] = []
    for piece in pieces:
        kept.append(piece[:size])
        size -= len(kept[-1])
        if size == 0:
            break
    return kept
