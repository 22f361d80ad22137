import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import loom_core.knowledge.indexes.engines.child_call as child
from loom_core.knowledge.indexes.engines.child_call import ChildCall, ChildError, run_in_child

BEHAVIOURS = """
import os, signal, sys, time

def doubled(*, value):
    print("noise on stdout")
    return value * 2

def raising(): raise ValueError("first line.\\nsecond")
def hanging(): time.sleep(600)
def crashing(): os.kill(os.getpid(), signal.SIGSEGV)
def exiting():
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)
def silent(): os._exit(0)
def niceness(): return os.getpriority(os.PRIO_PROCESS, 0)
def greedy(): return len(bytearray(1 << 32))
"""


@pytest.fixture
def behaviours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A module that only this process's path leads to, as for a program run from its source tree."""
    (tmp_path / "behaviours.py").write_text(BEHAVIOURS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import behaviours

    yield behaviours
    del sys.modules["behaviours"]


def test_a_function_answers_whatever_else_it_prints(behaviours) -> None:
    assert run_in_child(behaviours.doubled, {"value": "知识"}, timeout=20) == "知识知识"


@pytest.mark.slow
def test_a_hanging_function_is_killed_at_its_deadline(behaviours) -> None:
    with pytest.raises(ChildError, match=r"no answer within 0\.5 s"):
        run_in_child(behaviours.hanging, {}, timeout=0.5)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raising", r"^ValueError: first line$"),
        ("crashing", "killed by SIGSEGV"),
        ("exiting", "exit code 3: last words"),
        ("silent", "without an answer"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(behaviours, name: str, reason: str) -> None:
    with pytest.raises(ChildError, match=reason):
        run_in_child(getattr(behaviours, name), {}, timeout=20)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
def test_memory_is_limited(behaviours) -> None:
    with pytest.raises(ChildError, match="MemoryError"):
        run_in_child(behaviours.greedy, {}, timeout=20, memory=1 << 31)


def test_a_child_that_is_killed_or_still_at_it_is_told_apart(behaviours) -> None:
    call = ChildCall(behaviours.hanging, {}, timeout=20, background=True)
    assert not call.has_ended()
    call.kill()
    call.kill()
    assert call.has_ended()
    with pytest.raises(ChildError, match="killed by SIGKILL"):
        call.result()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no niceness")
def test_a_child_in_the_background_gives_way(behaviours) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    nice = [
        ChildCall(behaviours.niceness, {}, timeout=20, background=background).result()
        for background in (False, True)
    ]
    assert nice == [own, min(19, own + 10)]


def test_a_process_that_cannot_be_started_is_told(behaviours, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(ChildError, match=r"no process can be started: .*absent"):
        run_in_child(behaviours.silent, {}, timeout=20)


def test_a_child_that_ended_by_itself_without_words_is_described() -> None:
    assert child._describe_exit(9, "") == "the child ended with exit code 9"
    assert child._describe_exit(-signal.SIGKILL, "noise") == "the child was killed by SIGKILL"


def test_the_child_writes_its_reply_and_nothing_else_to_stdout(
    capfd: pytest.CaptureFixture[str],
) -> None:
    request: Any = {
        "module": "os.path",
        "name": "basename",
        "arguments": {"p": "/a/知"},
        "memory": None,
        "background": False,
    }
    stdout = os.dup(1)
    try:
        child.answer(request)
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert json.loads(capfd.readouterr().out) == {"result": "知"}
    failing = {**request, "arguments": {"p": 3}}
    assert child._reply(failing)["error"].startswith("TypeError: ")
