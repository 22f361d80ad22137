"""`loom-flow-server` at a terminal: it says what it is for, and how to go on after Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
pytestmark = pytest.mark.slow

_SECONDS = 30.0


@pytest.fixture
def terminal(home: Path) -> Callable[..., contextmanager]:
    """Starts a command at a terminal; gives what waits for a text there, what types, and the process."""
    home.mkdir()

    @contextmanager
    def start(
        *arguments: str,
    ) -> Generator[tuple[Callable[[str], str], Callable[[str], None], subprocess.Popen]]:
        ours, theirs = pty.openpty()
        line = [sys.executable, "-m", "loom_flow", *arguments, "--home", str(home)]
        process = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        os.set_blocking(ours, False)
        shown = bytearray()

        def until(text: str) -> str:
            end = time.monotonic() + _SECONDS
            while text.encode() not in shown:
                assert time.monotonic() < end, shown.decode(errors="replace")
                try:
                    shown.extend(os.read(ours, 4096))
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:  # the other end is closed
                    break
            return shown.decode(errors="replace")

        try:
            yield until, lambda text: os.write(ours, text.encode()) and None, process
        finally:
            process.kill()
            process.wait(_SECONDS)
            os.close(ours)

    return start


def test_a_server_at_a_terminal_says_what_people_can_do(terminal) -> None:
    with terminal() as (until, _, _process):
        told = until("--help")
        assert "speaks MCP on standard input" in told


def test_after_ctrl_c_the_run_is_named_and_can_be_gone_on_with(terminal, home: Path) -> None:
    flow = {"flow_id": "note", "steps": [{"stepId": "sure", "confirm": "Keep it?"}]}
    (home / "flow.json").write_text(json.dumps({"flows": [flow]}), encoding="utf-8")
    with terminal("run", "note") as (until, _type, process):
        until("[y]es")
        process.send_signal(2)
        told = until(" resume ")
        assert process.wait(_SECONDS) == 130
        told = until("--home")
    assert re.search(r"resume run_\w+ --home ", told.replace("\r\n", "\n"))
    assert told.count("Keep it?") == 1
