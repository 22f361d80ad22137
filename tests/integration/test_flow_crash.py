"""Flows in processes that are killed go on, and do nothing twice without a person's word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.fork_server import starts_quickly

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_SECONDS = 240


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_flows_that_are_killed_again_and_again_do_everything_once() -> None:
    starts_quickly(_BENCHMARKS / "flow_crash_actor.py")
    program = starts_quickly(_BENCHMARKS / "flow_crash.py")
    command = [sys.executable, program, "--kills", "4", "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing done twice, nothing lost, every run at its end" in done.stdout
