"""`shell`: run commands on this machine, if enabled. A person approves each."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
from anyio import to_thread
from pydantic import Field

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.files.encoding import decode
from loom_core.plugin_registry import register
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.environment import child_environment
from loom_core.tools.function_tool import tool, tool_threads
from loom_core.tools.interface import CallContext, ToolOutput
from loom_core.tools.plain_text import strip_control

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.tools.interface import Tool

__all__ = ["CommandResult", "ShellCommand", "shell_tool", "terminal_text"]

_STOP_SECONDS = 5.0
# No one can answer prompts, page or edit; colours are for people.
_UNATTENDED = {
    "DEBIAN_FRONTEND": "noninteractive",
    "EDITOR": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


@register("tool", "shell")
def shell_tool(
    root: FileRoot | Path,
    *,
    seconds: float = 60.0,
    most_seconds: float = 600.0,
    output_bytes: int = 200_000,
    environment: Mapping[str, str] | None = None,
) -> Tool:
    """Create the tool. A person has to approve each call (`Tool.needs_approval`).

    A command can do anything that the user of Loom can do: the folder is its working folder, not a sandbox.
    It gets only those variables of Loom's environment that programs need to run at all.

    Args:
        root: working folder of commands.
        seconds: default timeout of a command.
        most_seconds: maximum timeout of a command.
        output_bytes: bytes of output that are kept, half of them from the beginning and half from the end.
        environment: further variables of commands.

    Raises:
        ConfigError: the folder does not exist, or the system is Windows.
    """
    folder = FileRoot.of(root).folder
    if sys.platform == "win32":
        raise ConfigError("Commands cannot be run on Windows.", advice="Run Loom in WSL.")
    program = shutil.which("bash") or "/bin/sh"
    variables = {**_without_passwords(child_environment({})), **_UNATTENDED, **(environment or {})}

    async def shell(
        context: CallContext,
        command: Annotated[str, Field(min_length=1, max_length=100_000)],
        timeout: Annotated[float | None, Field(gt=0, le=most_seconds)] = None,  # noqa: ASYNC109 - of the program
    ) -> ToolOutput:
        """Run a command in a shell, in the working folder. A person has to approve it.

        Each call starts a new shell: `cd` and variables are forgotten. Nothing can be typed in, and what
        still runs in the background when the command ends is ended. Returns what it wrote, and its exit code.

        Args:
            context: Of the call.
            command: What to run, such as `git status`.
            timeout: Seconds after which it is ended.
        """
        limit = min(timeout or seconds, context.seconds or most_seconds)
        running = ShellCommand(
            [program, "-c", command],
            folder=folder,
            environment=variables,
            seconds=limit,
            most_bytes=output_bytes,
        )
        try:
            result = await to_thread.run_sync(running.run, abandon_on_cancel=True, limiter=tool_threads())
        except anyio.get_cancelled_exc_class():
            running.stop()
            with anyio.CancelScope(shield=running.has_begun):  # otherwise there is nothing to wait for
                await to_thread.run_sync(running.done.wait, _STOP_SECONDS)
            raise
        return _output(result, limit)

    return tool(
        shell,
        approval_reason="It runs a command on this machine.",
        needs_seconds=most_seconds + _STOP_SECONDS,
    )


def _output(result: CommandResult, limit: float) -> ToolOutput:
    text = terminal_text(decode(result.head)[0])
    if result.left_out:
        text += f"\n[… {result.left_out:,} bytes are left out here …]\n"
    text += terminal_text(decode(result.tail)[0])
    if result.ended == "time":
        how = (
            f"ended after {limit:g} seconds, with all processes that it had started: set `timeout`, or do "
            "less at once"
        )
    elif result.code < 0:
        how = f"ended by signal {-result.code} after {result.seconds:.1f} seconds"
    else:
        how = f"exit code {result.code} after {result.seconds:.1f} seconds"
    lines = [*([text.rstrip()] if text.strip() else []), f"[{how}]"]
    return ToolOutput(
        "\n".join(lines), is_error=bool(result.code or result.ended), metadata={"exit_code": result.code}
    )


def _without_passwords(variables: Mapping[str, str]) -> dict[str, str]:
    """Drop variables with a proxy address that has a password in it."""
    return {name: value for name, value in variables.items() if not ("://" in value and "@" in value)}


_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours and cursor movement
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles and links
    "|\x1b[ -/]*[0-~]?"  # character sets
)


def terminal_text(text: str) -> str:
    """Strip terminal escape sequences; of an overwritten line keep the last content."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
    return strip_control(plain)


_MARK = "LOOM_COMMAND"
"""Environment variable that marks all processes started by a command, to find them later."""

_PIECE = 1 << 16
_LOOK_SECONDS = 0.1  # interval of checks for its exit and for a stop request
_GRACE_SECONDS = 0.5  # from SIGTERM to SIGKILL
_LAST_SECONDS = 0.3  # for reading the rest of its output after its exit
_REAP_SECONDS = 2.0
_ROUNDS = 5  # of killing leftover processes, which may start others in between


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Attributes:
        head: beginning of its output, standard output and error together.
        tail: end of its output; empty if `head` is all.
        left_out: number of dropped bytes between them.
        code: its exit code, negative for the signal that ended it.
        seconds: its duration.
        ended: why it was killed; empty if it exited by itself.
    """

    head: bytes
    tail: bytes
    left_out: int
    code: int
    seconds: float
    ended: str = ""


class ShellCommand:
    """A shell command, run once. Needs a POSIX system.

    Args:
        arguments: the program and its arguments.
        folder: its working folder.
        environment: its complete environment.
        seconds: its timeout.
        most_bytes: bytes of output that are kept, half of them from the beginning and half from the end.

    Attributes:
        has_begun: whether `run` was called.
        done: set when none of its processes runs any more.

    Raises:
        ConfigError: the system has no process groups.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        most_bytes: int,
    ) -> None:
        if sys.platform == "win32":
            raise ConfigError("Commands cannot be run on Windows.", advice="Run Loom in WSL.")
        self._arguments = list(arguments)
        self._folder = folder
        self._mark = secrets.token_hex(16)
        self._environment = {**environment, _MARK: self._mark}
        self._seconds = seconds
        self._kept = _HeadAndTail(most_bytes // 2)
        self._stop = threading.Event()
        self.done = threading.Event()
        self.has_begun = False

    def stop(self) -> None:
        """Stop it soon, from another thread, or prevent its start; `done` is set when it is over."""
        self._stop.set()

    def run(self) -> CommandResult:
        """Run it. Blocks until it and all of its child processes have exited or were killed.

        Raises:
            InvalidInputError: it cannot be started.
        """
        begun = time.monotonic()
        self.has_begun = True  # before the check for a stop request: `stop` checks in the reverse order
        if self._stop.is_set():
            self.done.set()
            return CommandResult(b"", b"", 0, 0, 0.0, "stopped")
        try:
            process = self._start()
            ended = ""
            try:
                ended = self._watch(process, begun + self._seconds)
            finally:
                self._end(process, gently=bool(ended))
            code = _reap(process)
        finally:
            self.done.set()
        kept = self._kept
        seconds = time.monotonic() - begun
        return CommandResult(bytes(kept.head), bytes(kept.tail), kept.left_out, code, seconds, ended)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._arguments,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a separate process group, and no terminal for prompts
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InvalidInputError(f"The command cannot be started: {why}.", advice="Shorten it.") from error

    def _watch(self, process: subprocess.Popen[bytes], until: float) -> str:
        """Read its output until it exits; return why it has to be killed, or an empty text."""
        output = process.stdout
        if output is None:
            raise AssertionError("the process has no pipe")
        os.set_blocking(output.fileno(), False)
        with output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if self._stop.is_set():
                    return "stopped"
                now = time.monotonic()
                if now >= until:
                    return "time"
                if selector.select(min(_LOOK_SECONDS, until - now)):
                    data = output.read(_PIECE)
                    if data == b"":  # all processes have closed it
                        return self._wait_for_exit(process, until)
                    self._kept.add(data or b"")
                elif process.poll() is not None:  # child processes hold its output open
                    self._drain(selector, output.fileno())
                    return ""

    def _wait_for_exit(self, process: subprocess.Popen[bytes], until: float) -> str:
        """Wait for the exit of a program that has closed its output."""
        while process.poll() is None:
            if self._stop.wait(0.01):
                return "stopped"
            if time.monotonic() >= until:
                return "time"
        return ""

    def _drain(self, selector: selectors.BaseSelector, descriptor: int) -> None:
        until = time.monotonic() + _LAST_SECONDS
        while selector.select(0) and time.monotonic() < until:
            if not (data := os.read(descriptor, _PIECE)):
                return
            self._kept.add(data)

    def _end(self, process: subprocess.Popen[bytes], *, gently: bool) -> None:
        """Kill its process group, and processes that have left the group."""
        if gently:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        _signal_group(process.pid, signal.SIGKILL)
        for _ in range(_ROUNDS):
            if not _end_marked(f"{_MARK}={self._mark}".encode()):
                return


class _HeadAndTail:
    def __init__(self, each: int) -> None:
        self._each = each
        self.head = bytearray()
        self.tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self._each - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room else data
        if (over := len(self.tail) - self._each) > 0:
            del self.tail[:over]
            self.left_out += over


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, and exits when that returns
        return -signal.SIGKILL


def _signal_group(group: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, which)


def _end_marked(mark: bytes) -> int:
    """Kill the processes with a mark in their environment; return their number. Linux only."""
    if sys.platform != "linux":
        return 0
    ended = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            process = os.pidfd_open(int(entry.name))  # from here on the pid cannot be reused
            try:
                if mark in Path(entry.path, "environ").read_bytes():
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    ended += 1
            finally:
                os.close(process)
    return ended
