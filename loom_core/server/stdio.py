"""Serving over standard input and output, with nothing but the protocol on the wire.

The SDK's own transport guards standard output only once it serves, and reads through a thread that a signal
cannot end while the host is silent. This one claims both descriptors first of all, reads in a daemon thread,
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

from loom_core.errors import ConfigError, unwrapped

if TYPE_CHECKING:
    from anyio import CancelScope
    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from anyio.lowlevel import EventLoopToken
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError

    from loom_core.server.factory import LoomServer

__all__ = ["Wire", "claim_stdio", "serve_stdio"]

_MARKS = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL
)  # texts, and where depth changes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wire:
    """Private duplicates of standard input and output, and who was at the other end.

    Attributes:
        reads: descriptor that the client's messages come from.
        writes: descriptor that our messages go to.
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


async def serve_stdio(
    server: LoomServer,
    wire: Wire,
    *,
    on_stop: Callable[[], None] = lambda: None,
    parent_interval: float = 1.0,
) -> None:
    """Serve one client until its end of input, SIGTERM, SIGINT, or the death of the parent process.

    Args:
        server: what to serve.
        wire: where the client is; it is left open.
        on_stop: called once when the end has come, before running calls are cancelled.
        parent_interval: seconds between two looks at the parent process. A host that dies by force can leave
            the other end of the wire open in some other process, so that the end of input never comes.

    Raises:
        Exception: whatever the server's lifespan raises.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage]()
    refusals = outgoing.clone()
    reading = anyio.CancelScope()  # cancelling it is the end of input for the server

    async def read() -> None:
        with reading, incoming_send, refusals, suppress(anyio.BrokenResourceError):
            await _read_messages(wire.reads, incoming_send, refusals)
        on_stop()

    try:
        async with anyio.create_task_group() as writer:
            writer.start_soon(_write_messages, wire.writes, outgoing_receive, reading)
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
        raise unwrapped(group) from group


async def _read_messages(
    descriptor: int,
    incoming: ObjectSendStream[SessionMessage | Exception],
    refusals: ObjectSendStream[SessionMessage],
) -> None:
    import anyio
    from anyio.lowlevel import current_token
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    lines_send, lines = anyio.create_memory_object_stream[bytes]()
    # A daemon thread, for it cannot be interrupted and must not keep the process alive.
    read = _line_reader(descriptor, lines_send, current_token())
    threading.Thread(target=read, name="stdin", daemon=True).start()
    ignored = 0
    with lines, lines_send:
        async for line in lines:
            text = line.decode("utf-8", "replace")
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


def _line_reader(
    descriptor: int, lines: ObjectSendStream[bytes], token: EventLoopToken
) -> Callable[[], None]:
    # Imported before the thread begins: CPython 3.11 may fail where two threads compile modules at once.
    from anyio import ClosedResourceError, RunFinishedError, from_thread

    def read() -> None:
        try:
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                for line in stream:
                    from_thread.run(lines.send, line, token=token)
        except OSError as error:
            _log.warning("cannot read any more: %s", error.strerror)
        except (ClosedResourceError, RunFinishedError):
            return  # the server has ended before its input
        with suppress(RunFinishedError):
            from_thread.run(lines.aclose, token=token)

    return read


def _refusal(text: str) -> JSONRPCError | None:
    """The answer to a request that is not valid, where it can be seen which one that is.

    Without it a client would wait for ever: for instance after it has cut a text in the middle of a
    surrogate pair, which is valid for a lenient parser only, or has sent what is nested too deeply.
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
    """An object or array in JSON with `null` in place of the objects and arrays in it."""
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
    descriptor: int, outgoing: ObjectReceiveStream[SessionMessage], reading: CancelScope
) -> None:
    from anyio import to_thread

    try:
        async with outgoing:
            async for message in outgoing:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
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
    """A copy that children do not inherit and that is none of the standard descriptors."""
    copy = os.dup(descriptor)
    if copy > 2:
        return copy
    try:
        return _duplicate(descriptor)
    finally:
        os.close(copy)
