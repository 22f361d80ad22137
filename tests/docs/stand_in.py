"""Stands in for the programs that a page's commands begin with: `python stand_in.py NAME ARGUMENTS…`.

Loom's servers are those of this environment, however a page starts them: by name, by uvx, by `uv run`. One
that serves over HTTP gets a free port, and is told to stop as soon as it serves: it has to end well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

SERVERS = {
    "loom-kb": "loom_kb",
    "loom-query-server": "loom_query",
    "loom-agent-server": "loom_agent",
    "loom-flow-server": "loom_flow",
}
PROGRAMS = (*SERVERS, "uvx", "uv", "pip", "python")

_PLACEHOLDERS = {"RUN", "ID"}  # where readers put what they have: there is at least such a command


def command(name: str, arguments: Sequence[str]) -> list[str]:
    """The server that is meant, with its arguments; nothing where all is installed already."""
    words = list(arguments)
    if name == "pip":
        return []
    if name == "uvx":
        return words
    if name == "uv":
        if words[0] != "run":
            return []
        del words[0]
        while words[0].startswith("-"):
            del words[: 2 if words[0] in {"--package", "--extra"} else 1]
        return words if words[0] != "pytest" else []  # this test is one of those
    return [name, *words]


def main() -> int:
    name, *arguments = sys.argv[1:]
    if not (line := command(name, arguments)):
        return 0
    program, *rest = line
    if program == "python":
        return _become([sys.executable, *rest])
    if _PLACEHOLDERS & set(rest):
        rest = [rest[0], "--help"]
    started = [sys.executable, "-m", SERVERS[program], *rest]
    if "--http" in rest:
        return _serves(started)
    return _become(started)


def _become(started: list[str]) -> NoReturn:
    os.execv(started[0], started)


def _serves(started: list[str]) -> int:
    if "--port" in started:
        started[started.index("--port") + 1] = "0"
    else:
        started += ["--port", "0"]
    process = subprocess.Popen(started, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = [line for line in iter(process.stderr.readline, "") if not _stop(line, process)]
    code = process.wait(30)
    sys.stderr.write("".join(told))
    return code


def _stop(line: str, process: subprocess.Popen[str]) -> bool:
    if " serves http" in line:
        process.terminate()
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
