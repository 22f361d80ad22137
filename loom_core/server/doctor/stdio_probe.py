"""A server started as a host starts it, and spoken with in raw JSON-RPC: no SDK between it and the wire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import anyio

from loom_core.server.install.launch import host_environment

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process

__all__ = ["Era", "ServerProbe", "probe_server"]

Era: TypeAlias = Literal["handshake", "modern"]

_VERSIONS: dict[Era, str] = {"handshake": "2025-11-25", "modern": "2026-07-28"}
_CLIENT = {"name": "loom-doctor", "version": "1"}
_META = "io.modelcontextprotocol/"

_MOST_BYTES = 64 << 20  # on standard output; a server that writes more does so without end
_SHOWN = 80  # bytes of what pollutes it
_MOST_PAGES = 50  # of tools
_LOG_LINES = 20
_MOST_LOG = 1 << 16  # bytes of one line
_CLOSE_SECONDS = 1.0


@dataclass(slots=True)
class ServerProbe:
    """How a server behaved.

    Attributes:
        era: which protocol it was spoken to in.
        seconds: from its start to the last page of `tools/list`; None if that did not come.
        server: what it calls itself.
        tools: names of its tools, in its order, with repeats.
        pollution: the first bytes on standard output that are no JSON-RPC; empty if there are none.
        failure: why it did not answer, in one line; empty if it did.
        end_seconds: from the end of its input to its own end; None if it did not end, or did not answer.
        exit_code: of the process; None where it had to be killed.
        log: the last lines of standard error.
    """

    era: Era
    seconds: float | None = None
    server: str = ""
    tools: list[str] = field(default_factory=list[str])
    pollution: bytes = b""
    failure: str = ""
    end_seconds: float | None = None
    exit_code: int | None = None
    log: deque[str] = field(default_factory=lambda: deque[str](maxlen=_LOG_LINES))


class _NoAnswerError(Exception):
    """There will be no answer; the message says why."""


async def probe_server(
    command: Sequence[str],
    *,
    era: Era,
    seconds: float,
    end_seconds: float = 4.0,
    environment: Mapping[str, str] | None = None,
) -> ServerProbe:
    """Start a server, ask it for its tools, close its input and see it end. It is killed if it does not.

    No tool is called.

    Args:
        command: program and arguments, as a host's configuration has them.
        era: which protocol to open with.
        seconds: until it counts as not answering.
        end_seconds: from the end of its input until it counts as not ending.
        environment: variables that the host's configuration sets besides what hosts hand on.
    """
    probe = ServerProbe(era)
    began = time.monotonic()
    try:
        process = await anyio.open_process(
            list(command),
            env={**host_environment(), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=sys.platform != "win32",  # so that what it starts can be ended with it
        )
    except OSError as error:
        probe.failure = f"it cannot be started: {error.strerror}"
        return probe
    logged = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_log, process.stderr, probe, logged)
            await _speak(process, probe, began=began, seconds=seconds, end_seconds=end_seconds)
            _kill(process)
            with anyio.move_on_after(_CLOSE_SECONDS):  # a child of it may keep the pipe open
                await logged.wait()
            tasks.cancel_scope.cancel()
    finally:
        _kill(process)
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await process.aclose()
    return probe


class _Conversation:
    """Requests to a server, and its answers; what is no message is noted in the probe."""

    def __init__(self, process: Process, probe: ServerProbe) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the process has no pipes")
        self._input, self._output, self._probe = process.stdin, process.stdout, probe
        self._buffer = bytearray()
        self._received = 0
        self._last_id = 0

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its result.

        Raises:
            _NoAnswerError: the answer is an error, or none will come.
        """
        self._last_id += 1
        await self.send({"id": self._last_id, "method": method, "params": self._enveloped(params)})
        while (line := await self._line()) is not None:
            message = self._message(line)
            if message is None or message.get("id") != self._last_id or "method" in message:
                continue
            if isinstance(result := message.get("result"), dict):
                return cast("dict[str, Any]", result)
            raise _NoAnswerError(f"it answers {method} with {json.dumps(message.get('error'))[:200]}")
        raise _NoAnswerError(f"it ended before it answered {method}")

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        try:
            await self._input.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _NoAnswerError("it ended before it was asked anything") from None

    async def finish(self) -> None:
        """Close the server's input and read its output to the end."""
        await self._input.aclose()
        while (line := await self._line()) is not None:
            self._message(line)

    def _enveloped(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._probe.era == "handshake":
            return params
        facts = {"protocolVersion": _VERSIONS["modern"], "clientCapabilities": {}, "clientInfo": _CLIENT}
        return {**params, "_meta": {_META + name: value for name, value in facts.items()}}

    async def _line(self) -> bytes | None:
        """The next line, or what is left before the end; None at the end."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            try:
                data = await self._output.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                rest, self._buffer = bytes(self._buffer), bytearray()
                return rest or None
            self._received += len(data)
            if self._received > _MOST_BYTES:
                self._note(bytes(self._buffer[:_SHOWN]))
                raise _NoAnswerError(f"it writes without end: {_MOST_BYTES >> 20} MiB and more")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _message(self, line: bytes) -> Mapping[str, Any] | None:
        """A line as a JSON-RPC message; None where it is none, which is noted."""
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            message = cast("dict[str, Any]", value)
            if message.get("jsonrpc") == "2.0":
                return message
        self._note(line or b"\n")
        return None

    def _note(self, pollution: bytes) -> None:
        self._probe.pollution = self._probe.pollution or pollution[:_SHOWN]


async def _speak(
    process: Process, probe: ServerProbe, *, began: float, seconds: float, end_seconds: float
) -> None:
    conversation = _Conversation(process, probe)
    try:
        with anyio.fail_after(seconds):
            await _ask_for_tools(conversation, probe)
        probe.seconds = time.monotonic() - began
        asked = time.monotonic()
        with anyio.move_on_after(end_seconds):
            await conversation.finish()
            probe.exit_code = await process.wait()
            probe.end_seconds = time.monotonic() - asked
    except TimeoutError:
        probe.failure = f"it did not answer within {seconds:g} s"
    except _NoAnswerError as error:
        probe.failure = str(error)
        with anyio.move_on_after(_CLOSE_SECONDS):
            probe.exit_code = await process.wait()


async def _ask_for_tools(conversation: _Conversation, probe: ServerProbe) -> None:
    if probe.era == "modern":
        opened = await conversation.ask("server/discover", {})
        info: object = opened.get("_meta", {}).get(f"{_META}serverInfo") or opened.get("serverInfo")
    else:
        hello = {"protocolVersion": _VERSIONS["handshake"], "capabilities": {}, "clientInfo": _CLIENT}
        opened = await conversation.ask("initialize", hello)
        info = opened.get("serverInfo")
        await conversation.send({"method": "notifications/initialized"})
    if isinstance(info, dict):
        told = cast("dict[str, object]", info)
        probe.server = f"{told.get('name')} {told.get('version')}"
    cursor: object = None
    for _ in range(_MOST_PAGES):
        page = await conversation.ask("tools/list", {"cursor": cursor} if cursor else {})
        listed = page.get("tools")
        if not isinstance(listed, list):
            raise _NoAnswerError("it answers tools/list with no list")
        for tool in cast("list[object]", listed):
            name = cast("dict[str, object]", tool).get("name") if isinstance(tool, dict) else None
            probe.tools.append(str(name))
        cursor = page.get("nextCursor")
        if not cursor:
            return
    raise _NoAnswerError(f"its list of tools has more than {_MOST_PAGES} pages")


async def _read_log(stream: ByteReceiveStream | None, probe: ServerProbe, done: anyio.Event) -> None:
    rest = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while stream is not None:
            *lines, rest = (rest + await stream.receive()).split(b"\n")
            rest = rest[-_MOST_LOG:]
            probe.log.extend(line.decode("utf-8", "replace") for line in lines)
    if rest:
        probe.log.append(rest.decode("utf-8", "replace"))
    done.set()


def _kill(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)  # the group is its own, see `start_new_session`
