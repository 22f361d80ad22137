"""Guards of the test suite: no test hangs, leaves a process behind, or depends on how pytest was started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_HANGS = """
import subprocess

SLEEP = ["sleep", "600"]

def test_it_waits_for_a_process():
    with subprocess.Popen(SLEEP):
        pass

def test_the_next_one_runs():
    assert subprocess.run(["cat", "/proc/self/status"], capture_output=True).returncode == 0
"""
_LEAVES = """
import subprocess

KEPT = []

def test_it_leaves_a_process():
    KEPT.append(subprocess.Popen(["sleep", "601"], start_new_session=True))

def test_it_leaves_one_whose_parent_is_gone():
    subprocess.run(["sh", "-c", "sleep 602 & sleep 603 &"])
"""
_HOLDS = """
import ctypes
import subprocess

def test_it_hangs_in_c():
    subprocess.Popen(["sleep", "604"])
    ctypes.PyDLL(None).sleep(600)  # other than CDLL it lets no other thread run, and no handler of a signal

def test_the_next_one_runs():
    pass
"""
_INHERITS = """
import os
import signal
import subprocess

def test_what_a_child_inherits():
    status = subprocess.run(["cat", "/proc/self/status"], stdout=subprocess.PIPE, text=True).stdout
    masks = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line[:3] == "Sig"
        and line[3:6] in ("Blk", "Ign")}
    assert masks == {"SigBlk:": 0, "SigIgn:": 0}
    assert os.fstat(0)

def test_the_run_outlives_its_terminal():
    os.kill(os.getpid(), signal.SIGHUP)
"""
_SKIPS = """
import pytest

@pytest.mark.parametrize("number", range(40))
def test_a_tool(number):
    pytest.skip("Node.js is missing: install it")

def test_others():
    pytest.skip("There is no peer: install it")

@pytest.mark.skipif("True", reason="root may read everything")
@pytest.mark.parametrize("number", range(3))
def test_of_root(number):
    pass

@pytest.mark.skip(reason="no pipes here")
def test_of_pipes():
    pass
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are seen in /proc"),
]

RunTests = Callable[..., str]


@pytest.fixture
def run_tests(tmp_path: Path) -> RunTests:
    """Runs modules of tests in a run of their own, with these options; gives what it tells."""
    (tmp_path / "impatient.py").write_text(
        "import tests.conftest\n\n"
        "tests.conftest._GRACE_SECONDS = 0.2\n"
        "tests.conftest.fork_server.install = lambda: None\n",
        encoding="utf-8",
    )

    def run(*options: str, prefix: str = "", **modules: str) -> str:
        for name, text in modules.items():
            (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
        options = ("-p", "impatient", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0", *options)
        command = [sys.executable, "-m", "pytest", "-c", str(_ROOT / "pyproject.toml"), "-v", *options]
        command += ["--rootdir", str(tmp_path), str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(tmp_path)])}
        done = subprocess.run(
            ["sh", "-c", f'{prefix} exec "$@"', "sh", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        return done.stdout

    return run


def test_a_test_that_hangs_fails_and_what_is_left_running_is_named_and_ended(run_tests: RunTests) -> None:
    said = run_tests("-o", "timeout=2", hangs=_HANGS, leaves=_LEAVES)

    assert "Failed: Timeout (>2.0s) from pytest-timeout" in said, said
    assert "1 failed, 3 passed" in said
    left = re.findall(r"(\d+) `(sleep \d+)`, started by test_leaves.py::(\w+)", said)
    assert {(command, test) for _, command, test in left} == {
        ("sleep 601", "test_it_leaves_a_process"),
        ("sleep 602", "test_it_leaves_one_whose_parent_is_gone"),
        ("sleep 603", "test_it_leaves_one_whose_parent_is_gone"),
    }
    assert not any(_runs(pid) for pid, _, _ in left)


def test_a_test_that_hangs_in_c_ends_its_worker_with_the_stacks(run_tests: RunTests) -> None:
    said = run_tests("-n", "1", "-o", "faulthandler_timeout=3", holds=_HOLDS)

    assert 'test_holds.py", line 7 in test_it_hangs_in_c' in said, said
    assert re.search("worker 'gw0' crashed while running '.*test_it_hangs_in_c'", said)
    assert "1 failed, 1 passed" in said
    left = re.search(r"still running: (\d+) `sleep 604`, started by test_holds.py::test_it_hangs_in_c", said)
    assert left
    assert not _runs(left[1])


def test_what_tests_start_inherits_neither_ignored_signals_nor_a_closed_input(run_tests: RunTests) -> None:
    said = run_tests(prefix="trap '' HUP INT QUIT TERM ALRM CHLD; exec <&-;", inherits=_INHERITS)

    assert "2 passed" in said, said


def test_what_is_skipped_is_told_in_three_lines(run_tests: RunTests) -> None:
    _, _, told = run_tests(skips=_SKIPS).partition("skipped; -rs says where")

    lines = [line for line in told.splitlines()[1:] if line]
    assert lines[:3] == [
        "40: Node.js is missing: install it",
        "3: root may read everything",
        "2: There is no peer; no pipes here",
    ], told
    assert "45 skipped" in lines[3]
    assert told.count("SKIPPED") == 0


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
