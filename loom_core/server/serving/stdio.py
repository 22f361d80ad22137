"""stdio server: only protocol messages on standard output.

The SDK's own transport guards standard output only once it serves, and reads through a thread that a signal
cannot end while the host is silent. This one claims both descriptors first, reads in a daemon thread,
and treats a signal or the death of the parent process like the end of input: running calls are cancelled,
the lifespan is closed, the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, unwrap_group
from loom_core.server.protocol.handshake import Handshake

if TYPE_CHECKING:
    from anyio import CancelScope
    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError

    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.handshake import Introduction, RequestId

__all__ = ["LineReader", "Wire", "claim_stdio", "serve_stdio"]

_MARKS = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL
)  # texts, and where depth changes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wire:
    """Private duplicates of standard input and output, and the parent process.

    Attributes:
        reads: descriptor of the client's messages.
        writes: descriptor of the server's messages.
        parent: process id of the parent when the wire was claimed.
    """

    reads: int
    writes: int
    parent: int


def claim_stdio() -> Wire:
    """Take standard input and output for the protocol, before anything else can use them.

    Afterwards descriptor 0 is empty and descriptor 1 is standard error, for this process and all that it
    starts: a stray `print`, a C library or a child cannot write on the wire, nor read from it. Text that
    Python has printed but not flushed goes to standard error, too.

    Raises:
        ConfigError: standard input or output is closed.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:  # closed when this process started
        raise ConfigError(
            "Standard input or output is closed, and MCP over stdio needs both.",
            advice="Let an MCP client start this command, or serve over HTTP (--http).",
        )
    try:
        wire = Wire(_duplicate(0), _duplicate(1), os.getppid())
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
    except OSError as error:
        raise ConfigError(
            f"Standard input, output or error is not usable: {error.strerror}.",
            advice="Let an MCP client start this command, or serve over HTTP.",
        ) from error
    return wire


class LineReader:
    """Reader of the client's lines in a thread; it answers the handshake, and passes on all other lines.

    Args:
        wire: connection to the client.
        introduction: introduction for the handshake; None to leave the handshake to the server.
    """

    def __init__(self, wire: Wire, introduction: Introduction | None = None) -> None:
        self._wire = wire
        self._handshake = Handshake(introduction) if introduction else None
        self._has_receiver = threading.Event()
        self._deliver: Callable[[bytes], bool] = lambda _line: False
        self._end: Callable[[], None] = lambda: None

    @property
    def initialize_id(self) -> RequestId | None:
        """Id of the `initialize` that was answered here. The SDK gets it, too, but its answer is dropped."""
        return self._handshake.initialize_id if self._handshake else None

    def start(self) -> None:
        """Start reading in a daemon thread: it cannot be interrupted and must not keep the process alive.

        The thread imports nothing, as CPython 3.11 may fail where two threads import at once.
        """
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def deliver_to(self, deliver: Callable[[bytes], bool], end: Callable[[], None]) -> None:
        """Set the receiver of the lines; both functions are called in the reading thread.

        Args:
            deliver: receives a line; returns False to stop reading.
            end: called after the last line.
        """
        self._deliver, self._end = deliver, end
        self._has_receiver.set()

    def _read(self) -> None:
        try:
            with os.fdopen(self._wire.reads, "rb", closefd=False) as stream:
                for line in stream:
                    if self._is_done(line):
                        continue
                    self._has_receiver.wait()
                    if not self._deliver(line):
                        return
        except OSError as error:
            _log.warning("cannot read any more: %s", error.strerror)
        self._has_receiver.wait()
        self._end()

    def _is_done(self, line: bytes) -> bool:
        """Answer a line if it belongs to the handshake; return False if the server must get it."""
        if not (self._handshake and self._handshake.is_open):
            return False
        answer = self._handshake.answer(line)
        if answer:
            with suppress(OSError):  # the client has gone, which the server notices by itself
                _write(self._wire.writes, answer)
        return answer is not None and self._handshake.is_open


async def serve_stdio(
    server: LoomServer,
    wire: Wire,
    *,
    reader: LineReader | None = None,
    on_stop: Callable[[], None] = lambda: None,
    parent_interval: float = 1.0,
) -> None:
    """Serve one client until its end of input, SIGTERM, SIGINT, or the death of the parent process.

    Args:
        server: the server.
        wire: connection to the client; it is left open.
        reader: a reader that has started already; None to start one.
        on_stop: called once at the end, before running calls are cancelled.
        parent_interval: seconds between two checks of the parent process. If a host is killed, another
            process may hold the other end of the pipe open, so that the end of input never comes.

    Raises:
        Exception: whatever the server's lifespan raises.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage]()
    refusals = outgoing.clone()
    reading = anyio.CancelScope()  # cancelling it is the end of input for the server
    if reader is None:
        reader = LineReader(wire)
        reader.start()
    lines = reader

    async def read() -> None:
        with reading, incoming_send, refusals, suppress(anyio.BrokenResourceError):
            await _read_messages(lines, incoming_send, refusals)
        on_stop()

    try:
        async with anyio.create_task_group() as writer:
            writer.start_soon(_write_messages, wire.writes, outgoing_receive, reading, lines)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                tasks.start_soon(_watch_parent, wire.parent, parent_interval, reading)
                tasks.start_soon(_watch_signals, reading)
                with incoming, outgoing:  # `run` closes them, too, but only once the lifespan is open
                    await server.protocol.run(
                        incoming, outgoing, server.protocol.create_initialization_options()
                    )
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise unwrap_group(group) from group


async def _read_messages(
    reader: LineReader,
    incoming: ObjectSendStream[SessionMessage | Exception],
    refusals: ObjectSendStream[SessionMessage],
) -> None:
    import anyio
    from anyio import ClosedResourceError, RunFinishedError, from_thread
    from anyio.lowlevel import current_token
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    lines_send, lines = anyio.create_memory_object_stream[bytes]()
    token = current_token()

    def deliver(line: bytes) -> bool:
        try:
            from_thread.run(lines_send.send, line, token=token)
        except (ClosedResourceError, RunFinishedError):
            return False  # the server has ended before its input
        return True

    def end() -> None:
        with suppress(RunFinishedError):
            from_thread.run(lines_send.aclose, token=token)

    reader.deliver_to(deliver, end)
    ignored = 0
    with lines, lines_send:
        async for line in lines:
            text = line.decode("utf-8-sig", "replace")  # programs in .NET may begin with a byte order mark
            try:
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            except ValidationError:
                # Only the first is logged: a host that writes garbage may not be reading our log either.
                if not ignored:
                    _log.warning("ignored input that is not JSON-RPC: %r", text[:80])
                ignored += 1
                if refusal := _refusal(text):
                    await refusals.send(SessionMessage(refusal))
            else:
                await incoming.send(SessionMessage(message))
    _log.info("end of input; %d lines of it were ignored", ignored)


def _refusal(text: str) -> JSONRPCError | None:
    """Build the answer to an invalid request, if its id can be found.

    Without it a client would wait for ever, for example after a text with half a surrogate pair, which only a
    lenient parser accepts, or after a message that is nested too deeply.
    """
    from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

    try:
        request: object = json.loads(_outline(text))
    except ValueError:
        return None
    match request:
        case {"method": str(), "id": bool()}:
            return None
        case {"method": str(), "id": str() | int() as request_id} if str(request_id).isascii():
            error = ErrorData(code=INVALID_REQUEST, message="This is not a valid JSON-RPC request.")
            return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        case _:
            return None


def _outline(text: str) -> str:
    """Reduce a JSON text to its outermost object or array, with `null` for nested ones."""
    kept: list[str] = []
    depth = begin = 0
    for mark in _MARKS.finditer(text):
        if mark[0] in {"{", "["}:
            depth += 1
            if depth == 2:
                kept.append(text[begin : mark.start()])
                begin = len(text)
        elif mark[0] in {"}", "]"}:
            depth -= 1
            if depth == 1:
                kept.append("null")
                begin = mark.end()
    return "".join([*kept, text[begin:]])


async def _write_messages(
    descriptor: int, outgoing: ObjectReceiveStream[SessionMessage], reading: CancelScope, reader: LineReader
) -> None:
    from anyio import to_thread
    from mcp_types import JSONRPCError, JSONRPCResponse

    is_dropped = False
    try:
        async with outgoing:
            async for sent in outgoing:
                message = sent.message
                if (
                    not is_dropped
                    and isinstance(message, JSONRPCResponse | JSONRPCError)
                    and message.id is not None
                    and message.id == reader.initialize_id
                ):
                    is_dropped = True
                    continue
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
                await to_thread.run_sync(_write, descriptor, line.encode() + b"\n")
    except OSError as error:
        _log.info("the client does not read any more: %s", error.strerror)
        reading.cancel()


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


async def _watch_parent(parent: int, interval: float, reading: CancelScope) -> None:
    import anyio

    while os.getppid() == parent:  # noqa: ASYNC110 - nothing tells of it
        await anyio.sleep(interval)
    _log.info("the parent process has ended")
    reading.cancel()


async def _watch_signals(reading: CancelScope) -> None:
    import anyio

    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return  # no loop can receive them there; Ctrl+C arrives as a cancellation
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            _log.info("received %s", number.name)
            reading.cancel()


def _duplicate(descriptor: int) -> int:
    """Duplicate a descriptor: not inherited by children, and none of the standard ones."""
    copy = os.dup(descriptor)
    if copy > 2:
        return copy
    try:
        return _duplicate(descriptor)
    finally:
        os.close(copy)
