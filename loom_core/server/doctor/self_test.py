"""Self-test: start the server as a host does, and speak both protocol eras with it.

It sends raw JSON-RPC, without an SDK.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import anyio

from loom_core.jsonc import parse_object
from loom_core.server.cli.health import Finding, HealthSection, fine, problem, warning
from loom_core.server.install.launch import host_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anyio.abc import ByteReceiveStream, Process

__all__ = ["SELF_TEST_SECONDS", "HostTimeouts", "probe_server", "self_test_section"]

SELF_TEST_SECONDS = 45.0
"""The longest that a self-test can take: one start that does not answer, or two slow ones and their ends."""
# Claude Desktop refuses the whole server for one name that does not fit; Cursor and Claude Code cut or drop
# a tool whose name is too long together with the server's.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_TOGETHER = 60

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


@dataclass(frozen=True, slots=True)
class HostTimeouts:
    """Timeouts of hosts for a server.

    Attributes:
        slow: seconds from its start to its list of tools, above which a warning follows.
        gives_up: seconds after which hosts give up; Claude Code's default.
        again: seconds for the second start, when all files are cached.
        ends: seconds from the end of its input to its own end.
    """

    slow: float = 10.0
    gives_up: float = 30.0
    again: float = 20.0
    ends: float = 4.0


async def self_test_section(
    command: Sequence[str], *, program: str, timeouts: HostTimeouts | None = None
) -> HealthSection:
    """Start the server once for each era, and check that it answers and ends.

    No tool is called, so nothing is opened, locked or changed that the server does not open itself at its
    start.

    Args:
        command: the command that a host would start, with its arguments.
        program: the server's name in hosts, such as `loom-kb`.
        timeouts: timeouts of hosts; the usual ones if not given.
    """
    timeouts = timeouts or HostTimeouts()
    start = partial(probe_server, command, end_seconds=timeouts.ends)
    probes = [await start(era="handshake", seconds=timeouts.gives_up)]
    if not probes[0].failure and (probes[0].seconds or 0.0) <= timeouts.slow:  # else there is enough to tell
        probes.append(await start(era="modern", seconds=timeouts.again))
    facts = {"command": shlex.join(command), **{f"{probe.era}_era": _describe(probe) for probe in probes}}
    findings: dict[str, Finding] = {}
    for finding in (finding for probe in probes for finding in _findings(probe, program, timeouts)):
        findings.setdefault(finding.code, finding)  # a fault of both eras is reported once
    if not any(probe.failure for probe in probes) and probes[0].tools != probes[-1].tools:
        message = "It has other tools in one protocol era than in the other."
        findings["eras-differ"] = problem("eras-differ", message, f"Report it as a bug of {program}.")
    told = list(findings.values()) or [
        fine("self-test", "It starts, answers in both eras, and shuts down cleanly.")
    ]
    return HealthSection(name="self-test", facts=facts, findings=told)


def _describe(probe: ServerProbe) -> str:
    if probe.seconds is None:
        return probe.failure
    ended = "did not end" if probe.end_seconds is None else f"ended {probe.end_seconds:.1f} s after its input"
    return f"{probe.server}: {len(probe.tools)} tools in {probe.seconds:.1f} s, {ended}"


def _findings(probe: ServerProbe, program: str, timeouts: HostTimeouts) -> Iterator[Finding]:
    report = f"Report it as a bug of {program}, with the first bytes."
    if probe.pollution:
        message = (
            "It writes something other than MCP messages to standard output, first "
            f"{_show_bytes(probe.pollution)}."
        )
        remedy = f"Find what prints, such as a wrapper script or a sitecustomize.py; or else: {report}"
        yield problem("stdout-polluted", message, remedy)
    if probe.failure:
        yield _failure(probe, program)
        return
    if probe.seconds is not None and probe.seconds > timeouts.slow:
        message = f"It took {probe.seconds:.1f} s to answer; hosts give up after {timeouts.gives_up:g} s."
        yield warning("slow-start", message, _faster(program))
    yield from _name_findings(probe, program)
    if probe.end_seconds is None:
        message = "It does not end when its input does, so that hosts leave its process running."
        yield problem(
            "stays", message, f"Look in its log for what holds it; report it as a bug of {program}."
        )
    elif probe.exit_code:
        message = f"It ended with exit code {probe.exit_code}{_last_log_line(probe)}."
        yield warning("ends-badly", message, f"Report it as a bug of {program}, with its log.")


def _show_bytes(pollution: bytes) -> str:
    try:
        return repr(
            codecs.getincrementaldecoder("utf-8")().decode(pollution)
        )  # the last character may be cut
    except UnicodeDecodeError:
        return repr(pollution)[1:]


def _failure(probe: ServerProbe, program: str) -> Finding:
    if probe.exit_code is None and probe.failure.startswith("it did not answer"):
        message = f"In the {probe.era} era {probe.failure}; hosts do not wait longer{_last_log_line(probe)}."
        return problem("too-slow", message, _faster(program))
    ended = "" if probe.exit_code is None else f" (exit code {probe.exit_code})"
    message = f"In the {probe.era} era {probe.failure}{ended}{_last_log_line(probe)}."
    remedy = f"Run the command of this section by hand to see its log; then install {program} again."
    return problem("does-not-serve", message, remedy)


def _faster(program: str) -> str:
    return (
        "Try again while the machine is less busy; where uvx fetches it at each start, install it: "
        f"uv tool install {program}; or raise the host's limit (Claude Code: MCP_TIMEOUT)."
    )


def _last_log_line(probe: ServerProbe) -> str:
    last = next((line.strip() for line in reversed(probe.log) if line.strip()), "")
    return f"; its log ends with {last[:200]!r}" if last else ""


def _name_findings(probe: ServerProbe, program: str) -> Iterator[Finding]:
    report = f"Report it as a bug of {program}."
    repeated = sorted(name for name, times in Counter(probe.tools).items() if times > 1)
    if repeated:
        message = f"Several of its tools have the same name: {', '.join(repeated)}."
        yield problem("duplicate-tools", message, report)
    misfits = [name for name in dict.fromkeys(probe.tools) if not _TOOL_NAME.fullmatch(name)]
    if misfits:
        message = f"Claude Desktop refuses the whole server for these names of tools: {', '.join(misfits)}."
        yield problem("tool-names", message, report)
    surplus = max(map(len, probe.tools), default=0) + len(program) - _LONGEST_TOGETHER
    if surplus > 0:
        message = (
            f"With {program!r} before it, as hosts have it, a tool's name is {surplus} characters too long."
        )
        remedy = "Give the server a shorter name in the host's configuration."
        yield warning("long-tool-names", message, remedy)
    if not probe.tools:
        yield problem("no-tools", "It has no tools.", report)


@dataclass(slots=True)
class ServerProbe:
    """Result of a probe of a server.

    Attributes:
        era: the protocol era of the probe.
        seconds: seconds from its start to the last page of `tools/list`; None if it did not answer.
        server: its own name and version.
        tools: names of its tools, in its order, with repeats.
        pollution: the first bytes on standard output that are not JSON-RPC; empty if there are none.
        failure: why it did not answer, in one line; empty if it did.
        end_seconds: seconds from the end of its input to its own end; None if it did not end or answer.
        exit_code: exit code of the process; None if it was killed.
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
    """The server gave no usable answer; the message says why."""


async def probe_server(
    command: Sequence[str],
    *,
    era: Era,
    seconds: float,
    end_seconds: float = 4.0,
    environment: Mapping[str, str] | None = None,
) -> ServerProbe:
    """Start a server, list its tools, close its input, and wait for its end. It is killed if it does not end.

    No tool is called.

    Args:
        command: program and arguments, as a host's configuration has them.
        era: the protocol era to test.
        seconds: timeout of its answers.
        end_seconds: timeout of its end, after its input is closed.
        environment: variables from the host's configuration, in addition to those that hosts pass on.
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
    """JSON-RPC conversation with a server; output that is no message is noted in the probe."""

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
        await self.send({"id": self._last_id, "method": method, "params": self._wrap_params(params)})
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

    def _wrap_params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._probe.era == "handshake":
            return params
        facts = {"protocolVersion": _VERSIONS["modern"], "clientCapabilities": {}, "clientInfo": _CLIENT}
        return {**params, "_meta": {_META + name: value for name, value in facts.items()}}

    async def _line(self) -> bytes | None:
        """Read the next line, or the rest before the end; None at the end."""
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
                raise _NoAnswerError(f"its output does not end: {_MOST_BYTES >> 20} MiB and more")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _message(self, line: bytes) -> Mapping[str, Any] | None:
        """Parse a line as a JSON-RPC message; note it and return None if it is none."""
        message = parse_object(line)
        if message is not None and message.get("jsonrpc") == "2.0":
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
