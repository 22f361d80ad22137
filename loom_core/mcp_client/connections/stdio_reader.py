"""What a child writes to its standard output, as messages: no line too long, none waited for in vain."""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio
import anyio.lowlevel

from loom_core.mcp_client.connections.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import ByteReceiveStream
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCRequest

    from loom_core.mcp_client.connections.errors import Faults

__all__ = ["StdioReader"]

_log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_AT_ONCE = 20  # messages before others get their turn: reading what has come already does not wait
_SHOWN = 80  # bytes of what is no message
_EDGE = 300  # bytes of both ends of a line that is too long, where its id may stand

_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")')

_REVISION = "io.modelcontextprotocol/protocolVersion"  # in every request of the modern era

_RequestId: TypeAlias = "int | str"


class StdioReader:
    """What the child writes, message by message; a line that is none is left out.

    Args:
        output: the child's standard output.
        faults: where the errors are noted that it answers in the child's place.
        on_end: called when the output has ended.
        most: bytes of the longest line that is kept.

    Attributes:
        pollution: the beginning of the first line that is no message; empty if all are.
    """

    def __init__(
        self, output: ByteReceiveStream, *, faults: Faults, on_end: Callable[[], None], most: int
    ) -> None:
        self.pollution = b""
        self._output = output
        self._faults = faults
        self._on_end = on_end
        self._most = most
        self._buffer = bytearray()
        self._waiting: deque[SessionMessage] = deque()
        self._given = 0
        self._asked: dict[_RequestId, bool] = {}  # whether the answer has to say of what type it is
        self._discover: _RequestId | None = None
        self._give_up_at = math.inf
        self._reading = anyio.CancelScope()

    def expect(self, request: JSONRPCRequest, discover_seconds: float) -> None:
        """Note that a request is being sent."""
        meta: object = (request.params or {}).get("_meta")
        self._asked[request.id] = isinstance(meta, dict) and _REVISION in meta
        if request.method == "server/discover":
            self._discover = request.id
            self._give_up_at = self._reading.deadline = anyio.current_time() + discover_seconds

    def forget(self, id_: object) -> None:
        """Note that a request has been answered, could not be sent, or is not waited for any more."""
        if isinstance(id_, int | str):
            self._asked.pop(id_, None)
            if self._discover == id_:
                self._discover = None
                self._give_up_at = self._reading.deadline = math.inf

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            anyio.EndOfStream: there will be none.
        """
        while not self._waiting:
            line = await self._line()
            if line is None:
                self._on_end()
                raise anyio.EndOfStream
            self._take(line)
        self._given += 1
        if self._given % _AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Nothing: the pipe is closed with the child."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _line(self) -> bytes | None:
        """The next line; empty where an answer is waiting meanwhile; None at the end."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self._most:
                return b"" if await self._skip() else None
            if not await self._more():
                return None
            if self._waiting:
                return b""
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def _more(self) -> bool:
        """Read some bytes, or give up on `server/discover`; false at the end."""
        with anyio.CancelScope(deadline=self._give_up_at) as self._reading:
            try:
                self._buffer += await self._output.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return False
        if self._reading.cancelled_caught and self._discover is not None:
            from mcp_types import METHOD_NOT_FOUND, ErrorData

            self._answer(self._discover, ErrorData(code=METHOD_NOT_FOUND, message="not answered in time"))
        return True

    async def _skip(self) -> bool:
        """Read past a line that is too long, and answer whoever waits for it; false at the end."""
        first = bytes(self._buffer[:_EDGE])
        last = b""
        while (end := self._buffer.find(b"\n")) < 0:
            last = (last + bytes(self._buffer[-_EDGE:]))[-_EDGE:]
            self._buffer.clear()
            if not await self._more():
                return False
        last = (last + bytes(self._buffer[max(0, end - _EDGE) : end]))[-_EDGE:]
        del self._buffer[: end + 1]
        self._refuse(first, last)
        return True

    def _refuse(self, first: bytes, last: bytes) -> None:
        from mcp_types import INTERNAL_ERROR, ErrorData

        for id_ in self._answered_by(first, last):
            fault = Fault(
                "too_large",
                f"answered with more than {self._most >> 20} MiB, which is not taken",
                "Ask it for less at once.",
            )
            data = self._faults.note(fault)
            self._answer(id_, ErrorData(code=INTERNAL_ERROR, message=fault.what, data=data))

    def _answered_by(self, first: bytes, last: bytes) -> list[_RequestId]:
        """Which requests a line answers of which only the ends are known; all, if that does not say."""
        for match in [*_ID.finditer(first)][:1] + [*_ID.finditer(last)][-1:]:
            id_: _RequestId = int(match[1]) if match[1] else match[2].decode("utf-8", "replace")
            if id_ in self._asked:
                return [id_]
        return list(self._asked)

    def _answer(self, id_: _RequestId, error: ErrorData) -> None:
        """Answer a request in the child's place; what it says itself later is left unread."""
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError

        self.forget(id_)
        self._waiting.append(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))

    def _take(self, line: bytes) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if not self.pollution:
                self.pollution = line[:_SHOWN]
                _log.info("a server writes to its standard output what is no message of MCP")
            return
        if isinstance(message, JSONRPCResponse) and self._asked.get(message.id):
            message.result.setdefault("resultType", "complete")  # as the protocol wants it to be understood
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self.forget(message.id)
        self._waiting.append(SessionMessage(message))
