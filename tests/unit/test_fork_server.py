"""A process that the fork server starts is as one that the interpreter starts; only Linux has the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_FACTS = """
import json, os, sys
streams = [[s.encoding, s.errors, s.line_buffering, s.isatty()] for s in (sys.stdin, sys.stdout, sys.stderr)]
said = sys.stdin.read()
print(json.dumps([sys.argv, sys.orig_argv[-1], os.getcwd(), os.getppid(), os.environ["SAID"], streams, said]))
print("出错", file=sys.stderr)
sys.exit(3)
"""


def facts(folder: Path, *options: str) -> tuple[int, object, str]:
    done = subprocess.run(
        [sys.executable, *options, "-c", _FACTS, "一", "two"],
        input="说\n",
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env={**os.environ, "SAID": "值"},
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_process_is_as_the_interpreter_starts_it(tmp_path: Path):
    assert facts(tmp_path, "-I") == facts(tmp_path, "-I", "-B")  # -B: not by the fork server


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_process_ends_by_a_signal(end: signal.Signals):
    command = [sys.executable, "-I", "-c", "import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(end)
        assert process.wait(20) == -end


def test_a_process_that_fails_says_where():
    failing = [sys.executable, "-I", "-c", "import absent"]
    done = subprocess.run(failing, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'absent'\n")


def test_a_program_is_as_the_interpreter_starts_it(tmp_path: Path):
    def said(*options: str) -> tuple[int, str, str]:
        environment = {**os.environ, "LOOM_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, *options, "-m", "loom_kb", "list"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert said() == said("-B")
