"""The programs that the commands on a page begin with.

Loom's servers are those of this environment, however a page starts them: by name, by uvx, by `uv run`. One
that serves over HTTP gets a free port and is stopped as soon as it serves: it has to end well. The shell
finds stand-ins (tests/fixtures/stand_ins.py).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from tests.fixtures.stand_ins import StandIns, start

_SERVERS = {
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
}
_NAMES = (*_SERVERS, "uvx", "uv", "pip", "python")
_PLACEHOLDERS = {"RUN", "ID"}  # where readers put what they have: there is at least such a command


class Programs:
    """Runs programs for stand-ins until it is closed.

    Attributes:
        folder: the stand-ins, for `PATH`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stand_ins = StandIns(folder / "socket", _start)
        for name in _NAMES:
            file = folder / name
            started = shlex.join(self._stand_ins.command(name))
            file.write_text(f'#!/bin/sh\nexec {started} "$@"\n', encoding="utf-8")
            file.chmod(0o755)

    def close(self) -> None:
        """Run no more."""
        self._stand_ins.close()


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


def _start(line: Sequence[str], *, stderr: int, **named: Any) -> subprocess.Popen[bytes] | None:
    meant = _meant(*line)
    if not meant:
        return None
    if "--http" not in meant:
        return start(meant, stderr=stderr, **named)
    process = start(meant, stderr=subprocess.PIPE, **named)
    log = os.dup(stderr)  # it is closed once the program has started
    Thread(target=_end_when_serving, args=(process, log), daemon=True).start()
    return process


def _end_when_serving(process: subprocess.Popen[bytes], log: int) -> None:
    """Copy what a server says, and stop it as soon as it serves."""
    assert process.stderr is not None
    with process.stderr, open(log, "wb", buffering=0) as copy:
        for said in process.stderr:
            if b" serves http" in said:
                process.terminate()
            else:
                copy.write(said)
