"""Async functions called from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from loom_core.blocking import run_blocking
from loom_core.errors import InvalidInputError, NotFoundError

_INTERRUPTED = """
import asyncio, signal, threading
from loom_core.blocking import run_blocking

async def interrupted():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)

try:
    run_blocking(interrupted)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

_speaker = contextvars.ContextVar("_speaker", default="unset")


async def _loop_and_thread() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()


def test_calls_share_one_loop_in_a_thread_of_their_own() -> None:
    first, second = run_blocking(_loop_and_thread), run_blocking(_loop_and_thread)
    assert first == second
    assert first[1] != threading.get_ident()


async def test_a_loop_that_runs_already_is_no_obstacle() -> None:
    loop, _ = run_blocking(_loop_and_thread)
    assert loop is not asyncio.get_running_loop()


def test_threads_may_call_at_once_and_their_calls_may_wait_for_each_other() -> None:
    gate = run_blocking(_barrier)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(run_blocking, gate.wait) for _ in range(2)]
        assert sorted(call.result(timeout=30) for call in calls) == [0, 1]


async def _barrier() -> asyncio.Barrier:
    return asyncio.Barrier(2)


def test_arguments_results_and_context_are_handed_over() -> None:
    async def said(text: str, *, times: int) -> str:
        return f"{_speaker.get()}: {text * times}"

    token = _speaker.set("王小明")
    try:
        assert run_blocking(said, "好", times=2) == "王小明: 好好"
    finally:
        _speaker.reset(token)


def test_what_is_raised_comes_out_as_it_is() -> None:
    error = NotFoundError("There is no such thing.", advice="Look elsewhere.")

    async def fail() -> None:
        raise error

    with pytest.raises(NotFoundError) as caught:
        run_blocking(fail)
    assert caught.value is error


def test_a_call_from_within_a_call_is_refused_instead_of_waiting_for_ever() -> None:
    async def nested() -> object:
        return run_blocking(_loop_and_thread)

    with pytest.raises(InvalidInputError, match="without `_sync`"):
        run_blocking(nested)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_an_interrupt_cancels_the_call_and_waits_until_it_has_cleaned_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n") == ["cleaned up", "interrupted", ""]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    program = (
        "import os, warnings\n"
        "from loom_core.blocking import run_blocking\n"
        "async def number(): return 7\n"
        "assert run_blocking(number) == 7\n"
        "warnings.simplefilter('ignore')\n"
        "child = os.fork()\n"
        "if not child: os._exit(run_blocking(number))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "7\n"
