"""The programs that the commands on a page begin with.

Loom's servers are those of this environment, however a page starts them: by name, by uvx, by `uv run`. One
that serves over HTTP gets a free port and is stopped as soon as it serves: it has to end well. The shell
finds stand-ins, for which the test's own process starts the servers: fork_server.py makes that quick.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

_SERVERS = {
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
}
_NAMES = (*_SERVERS, "uvx", "uv", "pip", "python")
_STAND_IN = Path(__file__).with_name("stand_in.py")
_PLACEHOLDERS = {"RUN", "ID"}  # where readers put what they have: there is at least such a command


class Programs:
    """Runs programs for stand-ins until it is closed.

    Attributes:
        folder: the stand-ins, for `PATH`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address = folder / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        for name in _NAMES:
            file = folder / name
            started = shlex.join([sys.executable, "-I", "-S", str(_STAND_IN), str(address), name])
            file.write_text(f'#!/bin/sh\nexec {started} "$@"\n', encoding="utf-8")
            file.chmod(0o755)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Run no more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listener.accept()
                Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Run a program, and end it if its stand-in ends before it."""
    with connection:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("rb") as lines:
            request = json.loads(lines.readline())
        line = _meant(*request["line"])
        try:
            with suppress(OSError):  # the stand-in has ended
                connection.sendall(str(_run(line, request, streams, connection) if line else 0).encode())
        finally:
            for stream in streams:
                os.close(stream)


def _meant(name: str, *arguments: str) -> list[str]:
    """The command that is meant; nothing where all is installed already."""
    words = list(arguments)
    if name == "uv" and words[0] == "run":
        del words[0]
        while words[0].startswith("-"):
            del words[: 2 if words[0] in {"--package", "--extra"} else 1]
        return _meant(*words) if words[0] != "pytest" else []  # this test is one of those
    if name in {"pip", "uv"}:
        return []
    if name == "uvx":
        return _meant(*words)
    if name == "python":
        return [sys.executable, *words]
    if _PLACEHOLDERS & set(words):
        words = [words[0], "--help"]
    if "--http" in words and "--port" in words:
        words[words.index("--port") + 1] = "0"
    elif "--http" in words:
        words += ["--port", "0"]
    return [sys.executable, "-m", _SERVERS[name], *words]


def _run(
    line: Sequence[str], request: dict[str, Any], streams: Sequence[int], connection: socket.socket
) -> int:
    serves = "--http" in line
    stdin, stdout, stderr = streams
    process = subprocess.Popen(
        line,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE if serves else stderr,
        cwd=request["cwd"],
        env=request["env"],
    )

    def end_with_stand_in() -> None:
        connection.recv(1)  # it sends nothing: it has ended
        process.terminate()

    Thread(target=end_with_stand_in, daemon=True).start()
    if process.stderr is not None:
        with process.stderr, open(stderr, "wb", buffering=0, closefd=False) as log:
            for said in process.stderr:
                if b" serves http" in said:
                    process.terminate()
                else:
                    log.write(said)
    return process.wait()
