"""A program that is run to its end, with all that it starts, within limits of time and output."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Command", "CommandResult"]

_MARK = "LOOM_COMMAND"
"""Variable of the environment by which what a command has started is found, wherever it has gone."""

_PIECE = 1 << 16
_LOOK_SECONDS = 0.1  # whether it has ended although others hold its output open, or is to be stopped
_GRACE_SECONDS = 0.5  # from SIGTERM to SIGKILL
_LAST_SECONDS = 0.3  # for what is still in its output when it has ended
_REAP_SECONDS = 2.0
_ROUNDS = 5  # of looking for what a command has left: what is ended may have started more meanwhile


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of a command.

    Attributes:
        head: what it wrote first, standard output and error together.
        tail: what it wrote last; empty where `head` is all.
        left_out: bytes between them that were dropped.
        code: its exit code, negative for the signal that ended it.
        seconds: how long it took.
        ended: why it was ended before it had ended by itself; empty if it was not.
    """

    head: bytes
    tail: bytes
    left_out: int
    code: int
    seconds: float
    ended: str = ""


class Command:
    """One command, run once. Needs a POSIX system.

    Args:
        arguments: the program and what it is told.
        folder: where it works.
        environment: all of its environment.
        seconds: how long it may take.
        most_bytes: of its output that are kept, half of them its beginning and half its end.

    Attributes:
        has_begun: whether `run` was called.
        done: set when nothing of it runs any more.

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
        self._kept = _Kept(most_bytes // 2)
        self._stop = threading.Event()
        self.done = threading.Event()
        self.has_begun = False

    def stop(self) -> None:
        """Have it ended soon, from another thread, or never begun; `done` tells when nothing of it runs."""
        self._stop.set()

    def run(self) -> CommandResult:
        """Run it. Blocks until it and all that it has started has ended or was ended.

        Raises:
            InvalidInputError: it cannot be started.
        """
        begun = time.monotonic()
        self.has_begun = True  # before it looks whether to stop: who has it stopped looks the other way round
        if self._stop.is_set():
            self.done.set()
            return CommandResult(b"", b"", 0, 0, 0.0, "stopped")
        try:
            process = self._started()
            ended = ""
            try:
                ended = self._watch(process, begun + self._seconds)
            finally:
                self._end(process, gently=bool(ended))
            code = _reaped(process)
        finally:
            self.done.set()
        kept = self._kept
        seconds = time.monotonic() - begun
        return CommandResult(bytes(kept.head), bytes(kept.tail), kept.left_out, code, seconds, ended)

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._arguments,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, and no terminal to ask questions on
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InvalidInputError(f"The command cannot be started: {why}.", advice="Shorten it.") from error

    def _watch(self, process: subprocess.Popen[bytes], until: float) -> str:
        """Take its output until it has ended; why it has to be ended, or empty."""
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
                    if data == b"":  # all have closed it
                        return self._outlived(process, until)
                    self._kept.add(data or b"")
                elif process.poll() is not None:  # what it has started holds its output open
                    self._drain(selector, output.fileno())
                    return ""

    def _outlived(self, process: subprocess.Popen[bytes], until: float) -> str:
        """Wait for a program that has closed its output."""
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
        """End its group, and whatever has left the group."""
        if gently:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        _signal_group(process.pid, signal.SIGKILL)
        for _ in range(_ROUNDS):
            if not _end_marked(f"{_MARK}={self._mark}".encode()):
                return


class _Kept:
    """The beginning and the end of an output."""

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


def _reaped(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, and goes as soon as that lets it
        return -signal.SIGKILL


def _signal_group(group: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, which)


def _end_marked(mark: bytes) -> int:
    """End the processes that have something in their environment; how many there were. Linux only."""
    if sys.platform != "linux":
        return 0
    ended = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            process = os.pidfd_open(int(entry.name))  # from here on the number means no other process
            try:
                if mark in Path(entry.path, "environ").read_bytes():
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    ended += 1
            finally:
                os.close(process)
    return ended
