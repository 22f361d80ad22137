"""Child process of a stdio server: start, log and stop."""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from loom_core.keys import redact
from loom_core.mcp_client.connections.errors import Fault, FaultError

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process
    from pydantic import SecretStr

    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["ChildLog", "ChildProcess", "program_of"]

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0  # from the end of its input to SIGTERM, and from there to SIGKILL
_REAP_SECONDS = 2.0  # from SIGKILL, or the end of its output, to the end
_EOF_SECONDS = 0.5  # from its end to that of its output, which a grandchild may hold open
_POLL_SECONDS = 0.02  # during a wait for its end: `wait` would also wait for other holders of its pipes
_WATCH_SECONDS = 0.25  # while it runs

_LOG_LINES = 50
_SHOWN_LINES = 4
_LINE_CHARACTERS = 400


def program_of(config: ServerConfig, *, path: str | None) -> str | None:
    """Find the program that an entry starts: in the folders of `path`, or by its path relative to `cwd`."""
    if config.cwd is not None and Path(config.command).name != config.command:
        return shutil.which(str(config.cwd.absolute() / config.command))
    return shutil.which(config.command, path=path)


class ChildLog:
    """The last lines that a child wrote to standard error, without secrets."""

    def __init__(self, server: str, secrets: Iterable[SecretStr] = ()) -> None:
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._server = server
        self._secrets = tuple(secrets)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add output of the child; a line without an end is truncated."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: 4 * _LINE_CHARACTERS]
        for line in lines:
            self._add(line)

    def finish(self) -> None:
        """Add a last line without a line break."""
        self._add(self._rest)
        self._rest = b""

    def tail(self) -> str:
        """Return the last lines as one, for a message; empty if there are none."""
        return " / ".join(list(self.lines)[-_SHOWN_LINES:])

    def _add(self, line: bytes) -> None:
        text = redact(line[: 4 * _LINE_CHARACTERS].decode("utf-8", "replace"), self._secrets)
        text = "".join(c if c.isprintable() else " " for c in text).strip()[:_LINE_CHARACTERS]
        if text:
            self.lines.append(text)
            _log.debug("%s: %s", self._server, self.lines[-1])


class ChildProcess:
    """A child process in its own process group; both are ended together.

    Attributes:
        input: its standard input.
        output: its standard output.
        log: the last lines of its standard error.
    """

    def __init__(self, process: Process, log: ChildLog) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("the process has no pipes")
        self.input: ByteSendStream = process.stdin
        self.output: ByteReceiveStream = process.stdout
        self.log = log
        self._errors: ByteReceiveStream = process.stderr
        self._process = process
        self._logged = anyio.Event()
        self._forced = False

    @classmethod
    async def start(cls, config: ServerConfig, environment: Mapping[str, str]) -> ChildProcess:
        """Start the program of an entry, with exactly this environment.

        Raises:
            FaultError: there is no such program or folder, or it may not be started.
        """
        command = program_of(config, path=environment.get("PATH", os.defpath))
        if command is None:
            raise FaultError(
                Fault(
                    "start",
                    f"cannot be started: there is no program {config.command!r}",
                    "Install it, or write its whole path into `command`; its folder may not be in PATH.",
                    ran="no",
                )
            )
        try:
            process = await anyio.open_process(
                [command, *config.args],
                env=environment,
                cwd=config.cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=sys.platform != "win32",  # so that its descendants can be ended with it
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            advice = "Check `command`, `args` and `cwd` of its entry."
            raise FaultError(Fault("start", f"cannot be started: {why}", advice, ran="no")) from error
        return cls(process, ChildLog(config.name, config.secrets))

    async def read_log(self) -> None:
        """Read its standard error to the end, so that a full pipe never blocks the process."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while True:
                self.log.feed(await self._errors.receive())
        self.log.finish()
        self._logged.set()

    async def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` once the child has ended, even if another process holds its output open."""
        await self._wait_for_exit(math.inf, every=_WATCH_SECONDS)
        with anyio.move_on_after(_EOF_SECONDS):
            await self._logged.wait()
        on_end()

    async def describe_exit(self) -> str:
        """Describe how the child ended, with its last log lines, as in “ended with exit code 3”."""
        ended = await self._wait_for_exit(_REAP_SECONDS)
        with anyio.move_on_after(_EOF_SECONDS):
            await self._logged.wait()
        code = self._process.returncode
        if not ended or code is None or self._forced:
            what = "closed its output"
        elif code < 0:
            what = f"was ended by signal {-code}"
        else:
            what = f"ended with exit code {code}"
        said = self.log.tail()
        return f"{what}; it said: {said}" if said else what

    async def stop(self) -> None:
        """Stop the child and its group: close its input, then SIGTERM, then SIGKILL. Every wait has a limit.

        If this task is cancelled meanwhile, the child is killed at once.
        """
        try:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.input.aclose()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain)  # a child that blocks on a full pipe cannot end
                if not await self._wait_for_exit(_GRACE_SECONDS):
                    self._forced = True
                    self._signal("SIGTERM")
                    if not await self._wait_for_exit(_GRACE_SECONDS):
                        _log.info("process %d does not end; it is ended by force", self._process.pid)
                tasks.cancel_scope.cancel()
        finally:
            self._signal("SIGKILL")  # also what it may have left behind in its group
        if not await self._wait_for_exit(_REAP_SECONDS):
            _log.warning("process %d cannot be ended", self._process.pid)
        await self.output.aclose()
        await self._errors.aclose()
        self._release()

    async def _drain(self) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while True:
                await self.output.receive()

    async def _wait_for_exit(self, seconds: float, *, every: float = _POLL_SECONDS) -> bool:
        deadline = anyio.current_time() + seconds
        while self._process.returncode is None:
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(every)
        return True

    def _signal(self, name: str) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                if self._process.returncode is None:
                    self._process.kill()
            else:
                os.killpg(self._process.pid, getattr(signal, name))

    def _release(self) -> None:
        """Close our ends of the pipes; the event loop waits for end of file, and others may hold them."""
        close = getattr(getattr(getattr(self._process, "_process", None), "_transport", None), "close", None)
        if callable(close):
            with suppress(PermissionError):
                close()
