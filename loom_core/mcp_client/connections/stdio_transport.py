"""stdio transport of the SDK's client, over the standard input and output of a child process.

The SDK has such a transport; this one bounds the memory that a child can use, knows how the child ended and
what it logged, reports an unsent request to its caller, and needs no task between a call and the pipe.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import anyio
import anyio.lowlevel

from loom_core.json_repair import repair
from loom_core.mcp_client.connections.errors import ANSWER_BYTES, Fault, FaultError, Faults

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, TaskGroup
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCMessage, JSONRPCRequest

    from loom_core.mcp_client.connections.process import ChildProcess

__all__ = ["StdioReader", "StdioTransport"]

_COURTESY_SECONDS = 0.2  # that a notification waits for a child that does not read


class StdioTransport:
    """Transport to a child process. Enter and leave it in the same task.

    Attributes:
        faults: the faults behind the errors that are sent in the child's place.
        process: the child; None before it is started.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[ChildProcess]],
        *,
        on_end: Callable[[], None],
        server: str = "",
        discover_seconds: float = 5.0,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        """Prepare a transport.

        Args:
            start: starts the child.
            on_end: called when the child or its output has ended.
            server: the server's id in the configuration, for traces.
            discover_seconds: timeout of `server/discover`, after which the method counts as unknown to the
                child. `initialize` follows, for old servers that ignore unknown requests; one that is only
                slow to start answers both.
            answer_bytes: maximum length of a line.
        """
        self.faults = Faults()
        self.process: ChildProcess | None = None
        self._start = start
        self._on_end = on_end
        self._server = server
        self._discover_seconds = discover_seconds
        self._answer_bytes = answer_bytes
        self._tasks: TaskGroup | None = None
        self._reader: StdioReader | None = None

    async def __aenter__(self) -> tuple[Any, Any]:  # the SDK has no public names for its streams
        process = self.process = await self._start()
        # No wait between the start and the task group: a cancellation there would leave the child behind.
        tasks = self._tasks = anyio.create_task_group()
        await tasks.__aenter__()
        tasks.start_soon(process.read_log)
        tasks.start_soon(process.watch, self._on_end)
        reader = self._reader = StdioReader(
            process.output, faults=self.faults, on_end=self._on_end, most=self._answer_bytes
        )
        return reader, _Writer(reader, process, self._discover_seconds, self._server)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self.process is None or self._tasks is None:
            raise AssertionError("it was not entered")
        try:
            with anyio.CancelScope(shield=True):  # every wait in there has a limit
                await self.process.stop()
        finally:
            self._tasks.cancel_scope.cancel()
            ended = await self._tasks.__aexit__(kind, error, trace)
        return ended

    @property
    def pollution(self) -> bytes:
        """The beginning of the first line on standard output that is no message; empty if all are."""
        return self._reader.pollution if self._reader else b""


class _Writer:
    """Writer to the child's standard input."""

    def __init__(
        self, reader: StdioReader, process: ChildProcess, discover_seconds: float, server: str
    ) -> None:
        self._reader = reader
        self._input = process.input
        self._discover_seconds = discover_seconds
        self._server = server

    async def send(self, item: SessionMessage) -> None:
        """Send a message. Its line is sent whole: cancellation only ends the wait for the child to read.

        Raises:
            FaultError: a request cannot be sent, as the child is gone.
            anyio.BrokenResourceError: another kind of message cannot be sent.
        """
        from mcp_types import JSONRPCNotification, JSONRPCRequest

        from loom_core.mcp_client.connections.tracing import trace_stdio_request

        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(message, JSONRPCRequest):
            trace_stdio_request(server=self._server)
            self._reader.expect(message, self._discover_seconds)
            try:
                await self._input.send(line)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                self._reader.forget(message.id)
                raise FaultError(
                    Fault("connection", "has gone", ran="no", lost=True, passing=True)
                ) from error
            return
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._reader.forget((message.params or {}).get("requestId"))
        try:
            with anyio.move_on_after(_COURTESY_SECONDS):
                await self._input.send(line)
        except (OSError, anyio.ClosedResourceError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Nothing: the pipe is closed with the child."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_AT_ONCE = 20  # messages before other tasks run: reading buffered messages does not yield
_SHOWN = 80  # bytes of what is no message
_EDGE = 300  # bytes of both ends of a line that is too long, where its id may be

_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")')
_MESSAGE = re.compile(rb'\s*\{\s*"(?:jsonrpc|result)"')  # a line of a log in JSON begins with another key

_REVISION = "io.modelcontextprotocol/protocolVersion"  # in every request of the modern era

_RequestId: TypeAlias = "int | str"


class StdioReader:
    """Reader of the child's messages; a line that is no message is skipped.

    Args:
        output: the child's standard output.
        faults: stores the faults behind the errors that are sent in the child's place.
        on_end: called when the output has ended.
        most: maximum length of a line, in bytes.

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
        self._asked: dict[_RequestId, bool] = {}  # whether the answer must have a `resultType`
        self._discover: _RequestId | None = None
        self._give_up_at = math.inf
        self._reading = anyio.CancelScope()

    def expect(self, request: JSONRPCRequest, discover_seconds: float) -> None:
        """Register a request that is being sent."""
        meta: object = (request.params or {}).get("_meta")
        self._asked[request.id] = isinstance(meta, dict) and _REVISION in meta
        if request.method == "server/discover":
            self._discover = request.id
            self._give_up_at = self._reading.deadline = anyio.current_time() + discover_seconds

    def forget(self, id_: object) -> None:
        """Unregister a request that was answered, could not be sent, or was cancelled."""
        if isinstance(id_, int | str):
            self._asked.pop(id_, None)
            if self._discover == id_:
                self._discover = None
                self._give_up_at = self._reading.deadline = math.inf

    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            anyio.EndOfStream: the output has ended.
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
        """Read the next line; empty if an answer is waiting; None at the end."""
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
        """Skip a line that is too long, and answer its request with an error; false at the end."""
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
        """Answer the request of a line that is too long with an error; all, if its ends do not say which."""
        fault = Fault(
            "too_large",
            f"answered with more than {self._most >> 20} MiB, which is not accepted",
            "Ask it for less at once.",
        )
        answered = self._find_answered(first, last)
        for id_ in list(self._asked) if answered is None else [answered]:
            self._answer_with(fault, id_)

    def _find_answered(self, first: bytes, last: bytes) -> _RequestId | None:
        """Find the request that a line answers, from its ends; None if they do not say."""
        for match in [*_ID.finditer(first)][:1] + [*_ID.finditer(last)][-1:]:
            id_: _RequestId = int(match[1]) if match[1] else match[2].decode("utf-8", "replace")
            if id_ in self._asked:
                return id_
        return None

    def _answer_with(self, fault: Fault, id_: _RequestId) -> None:
        from mcp_types import INTERNAL_ERROR, ErrorData

        data = self._faults.note(fault)
        self._answer(id_, ErrorData(code=INTERNAL_ERROR, message=fault.what, data=data))

    def _answer(self, id_: _RequestId, error: ErrorData) -> None:
        """Answer a request with an error in the child's place."""
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError

        self.forget(id_)
        self._waiting.append(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))

    def _take(self, line: bytes) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse

        if not line.strip():
            return
        message = _parse(line) or _parse(repair(line))
        if message is None:
            self._pass_over(line)
            return
        if isinstance(message, JSONRPCResponse) and self._asked.get(message.id):
            message.result.setdefault("resultType", "complete")  # the protocol's default
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self.forget(message.id)
        self._waiting.append(SessionMessage(message))

    def _pass_over(self, line: bytes) -> None:
        """Skip a line that is no message; a broken answer ends its request."""
        if not self.pollution:
            self.pollution = line[:_SHOWN]
            _log.info("a server writes something to its standard output that is not an MCP message")
        id_ = self._find_answered(line[:_EDGE], line[-_EDGE:]) if _MESSAGE.match(line) else None
        if id_ is not None:
            fault = Fault("unreadable", "answered with something that is not an MCP message", "Update it.")
            self._answer_with(fault, id_)


def _parse(line: bytes) -> JSONRPCMessage | None:
    from mcp_types import jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None
