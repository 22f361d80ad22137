"""`ProcessLock`: one holder, and none once it is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from loom_core.storage import ProcessLock

HOLDER = """
import sys
import threading
from pathlib import Path
from loom_core.storage import ProcessLock

print(ProcessLock(Path(sys.argv[1])).acquire(), flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> tuple[subprocess.Popen[str], str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_a_lock_held_by_another_process_is_not_taken_until_that_is_killed(tmp_path: Path):
    lock = ProcessLock(tmp_path / "lock")
    child, acquired = start_holder(tmp_path / "lock")
    try:
        assert acquired == "True"
        assert lock.acquire() is False
        assert lock.held is False
        assert lock.holder() == child.pid
    finally:
        end(child)
    assert lock.acquire() is True
    assert lock.holder() == os.getpid()
    lock.release()


def test_a_held_lock_keeps_other_processes_out_until_it_is_released(tmp_path: Path):
    lock = ProcessLock(tmp_path / "lock")
    assert lock.acquire()
    child, acquired = start_holder(tmp_path / "lock")
    end(child)
    assert acquired == "False"
    assert lock.holder() == os.getpid()
    lock.release()
    child, acquired = start_holder(tmp_path / "lock")
    end(child)
    assert acquired == "True"


def test_taking_twice_and_releasing_twice_is_harmless(tmp_path: Path):
    lock = ProcessLock(tmp_path / "lock")
    assert lock.acquire()
    assert lock.acquire()
    assert lock.held
    lock.release()
    lock.release()
    assert not lock.held


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path):
    first, second = ProcessLock(tmp_path / "lock"), ProcessLock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_without_a_folder_there_is_no_lock(tmp_path: Path):
    lock = ProcessLock(tmp_path / "none" / "lock")
    with pytest.raises(OSError, match="No such file"):
        lock.acquire()
    assert lock.holder() is None


def test_a_lock_whose_file_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "锁.lock"

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            ProcessLock(path).acquire()

    lock = ProcessLock(path)
    assert lock.acquire()
    lock.release()


def test_a_lock_file_with_other_content_has_no_holder(tmp_path: Path):
    (tmp_path / "lock").write_text("someone", encoding="ascii")
    assert ProcessLock(tmp_path / "lock").holder() is None


def test_whether_a_lock_is_held_can_be_seen_without_taking_it(tmp_path: Path):
    lock, onlooker = ProcessLock(tmp_path / "lock"), ProcessLock(tmp_path / "lock")
    assert not onlooker.is_held()  # no such file
    assert lock.acquire()
    assert lock.is_held()
    assert onlooker.is_held()
    lock.release()
    assert not onlooker.is_held()
    child, _ = start_holder(tmp_path / "lock")
    assert onlooker.is_held()
    end(child)
    assert not onlooker.is_held()


def test_a_process_that_only_looks_does_not_block_the_lock(tmp_path: Path):
    lock = ProcessLock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()
    stop = threading.Event()

    def look() -> None:
        onlooker = ProcessLock(tmp_path / "lock")
        while not stop.wait(0.0005):
            onlooker.is_held()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    taken = []
    for _ in range(200):
        taken.append(lock.acquire())
        lock.release()
    stop.set()
    for thread in threads:
        thread.join()
    assert all(taken)


def test_while_someone_looks_no_one_takes_the_lock_and_it_counts_as_free(tmp_path: Path):
    lock, other = ProcessLock(tmp_path / "lock"), ProcessLock(tmp_path / "lock")
    with lock.block_acquirers() as free:
        assert free  # no one has ever held it
    assert other.acquire()
    other.release()
    with lock.block_acquirers() as free, other.block_acquirers() as also_free:
        assert free
        if sys.platform != "win32":  # whose locks cannot be shared
            assert also_free
            assert not other.is_held()
        assert not other.acquire()
    assert other.acquire()
    assert other.holder() == os.getpid()


def test_who_looks_at_a_lock_that_is_held_is_told_and_disturbs_no_one(tmp_path: Path):
    child, acquired = start_holder(tmp_path / "lock")
    try:
        assert acquired == "True"
        with ProcessLock(tmp_path / "lock").block_acquirers() as free:
            assert not free
        assert ProcessLock(tmp_path / "lock").holder() == child.pid
    finally:
        end(child)
