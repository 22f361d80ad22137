from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import StoreError
from loom_core.storage.lock import ProcessLock
from loom_core.tools.auditing.audit import AuditEntry, AuditLog
from loom_core.tools.auditing.file import AuditFile, verify


def _entry(call: str = "call_1", **more: Any) -> AuditEntry:
    return AuditEntry(
        kind="decision", run="run_1", call=call, tool="文件:写", decision="allow", by="rules", **more
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _raw(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def _rewrite(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"\n".join(lines) + b"\n")


def _die_while_writing(path: Path, entry: dict[str, Any]) -> None:
    """Leave what a process leaves that dies in the middle of a line: the end before it is the one kept."""
    head = path.with_suffix(".head")
    before = head.read_bytes() if head.exists() else None
    AuditFile(path).append([entry])
    os.truncate(path, path.stat().st_size - 20)
    if before is None:
        head.unlink()
    else:
        head.write_bytes(before)


def _is_private(path: Path) -> bool:
    return sys.platform == "win32" or not path.stat().st_mode & 0o077


def _block(path: Path) -> None:
    """Put a folder where the file should be."""
    path.mkdir(parents=True)


def _unblock(path: Path) -> None:
    path.rmdir()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "审计" / "audit.jsonl"


async def test_each_line_says_what_was_decided_and_is_sealed_by_the_one_before(path: Path) -> None:
    log = AuditLog(path, secrets=lambda: [SecretStr("hunter2")])

    await log.write(
        _entry(arguments={"path": "笔记.md", "password": "p", "text": "it is hunter2"}, rule="allow 文件:*"),
        AuditEntry(kind="end", call="call_1", tool="文件:写", outcome="success", seconds=0.25),
    )
    await log.write(_entry("call_2"))

    first, second, third = _lines(path)
    assert first["arguments"] == {"path": "笔记.md", "password": "[secret]", "text": "it is [secret]"}
    assert (first["kind"], first["tool"], first["decision"], first["by"], first["rule"], first["run"]) == (
        "decision", "文件:写", "allow", "rules", "allow 文件:*", "run_1",
    )  # fmt: skip
    assert len(first["digest"]) == 64
    assert (second["outcome"], second["seconds"]) == ("success", 0.25)
    assert "arguments" not in second
    raw = _raw(path)
    assert third["prev"] == hashlib.sha256(raw[1]).hexdigest()
    report = await log.verify()
    assert (report.lines, report.problem, report.complete) == (3, "", True)
    assert report.head == hashlib.sha256(raw[2]).hexdigest()
    assert not log.has_waiting
    assert _is_private(path)


@pytest.mark.parametrize(
    "id_",
    [
        "token:9f86d081884c7d65",
        "oauth:https://issuer.example:app:ada2@example.org",
        "oauth:https://港口.example:a:密钥：x9876543",
    ],
    ids=["token", "address", "assigned"],
)
def test_what_tells_callers_apart_is_written_as_it_is_but_for_secrets_that_are_known(id_: str) -> None:
    assert AuditEntry(kind="start", tool="t", caller_id=id_).as_json()["caller_id"] == id_
    entry = AuditEntry(kind="start", tool="t", caller_id=f"{id_} Quartz-99x", client="token=abc778830")
    written = entry.as_json([SecretStr("Quartz-99x")])
    assert (written["caller_id"], written["client"]) == (f"{id_} [secret]", "token=[secret]")


@pytest.mark.parametrize(
    "tamper",
    [
        lambda lines: [*lines[:2], lines[2].replace(b"allow", b"deny "), *lines[3:]],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
    ],
    ids=["changed", "taken out", "swapped", "put in"],
)
async def test_who_changes_a_line_is_found_out(
    path: Path, tamper: Callable[[list[bytes]], list[bytes]]
) -> None:
    await AuditLog(path).write(*(_entry(f"call_{number}") for number in range(6)))
    _rewrite(path, tamper(_raw(path)))

    assert "does not follow from the line before it" in verify(path).problem


@pytest.mark.parametrize("taken", [1, 4, 6])
def test_who_takes_off_the_last_lines_is_found_out_also_when_others_follow(path: Path, taken: int) -> None:
    AuditFile(path).append([{"call": f"call_{number}"} for number in range(6)])
    _rewrite(path, _raw(path)[:-taken]) if taken < 6 else path.write_bytes(b"")

    assert verify(path).problem == "Lines are missing at its end that were there before."
    AuditFile(path).append([{"call": "after"}])
    AuditFile(path).append([{"call": "and after"}])

    problem = f"Lines are missing before audit.jsonl:{7 - taken} that were there when it was written."
    assert verify(path).problem == problem


def test_a_head_that_was_kept_elsewhere_finds_out_who_changes_all_of_it(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}, {"call": "b"}])
    kept = verify(path).head
    AuditFile(path).append([{"call": "c"}])
    assert verify(path, heads=[kept]).problem == ""
    path.unlink()
    path.with_suffix(".head").unlink()
    AuditFile(path).append([{"call": "another"}])

    assert verify(path).problem == ""
    assert "Lines are missing at its end" in verify(path, heads=[kept]).problem


def test_a_process_that_dies_between_a_line_and_its_note_next_to_it_leaves_no_breach(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}])
    before = path.with_suffix(".head").read_bytes()
    AuditFile(path).append([{"call": "b"}])
    path.with_suffix(".head").write_bytes(before)

    assert verify(path).problem == ""
    AuditFile(path).append([{"call": "c"}])
    assert verify(path).problem == ""
    assert _lines(path)[2]["seen"] == before.decode().strip()


def test_the_note_next_to_an_audit_cannot_be_overwritten_unseen(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}])
    path.with_suffix(".head").write_bytes("不是哈希".encode())

    assert "Lines are missing" in verify(path).problem


def test_no_audit_is_a_whole_audit(path: Path) -> None:
    report = verify(path)

    assert (report.lines, report.head, report.problem, report.complete) == (0, "", "", True)


def test_a_full_file_is_put_away_and_the_chain_goes_on(path: Path) -> None:
    file = AuditFile(path, most_bytes=300)
    for number in range(8):
        file.append([{"call": f"第{number}次", "text": "x" * 90}])
    AuditFile(path, most_bytes=300).append([{"call": "另一个进程"}])

    files = sorted(each.name for each in path.parent.glob("*.jsonl"))
    assert files[:2] == ["audit.000001.jsonl", "audit.000002.jsonl"]
    report = verify(path)
    assert (report.lines, report.problem, report.complete) == (9, "", True)
    (path.parent / files[0]).unlink()
    report = verify(path)
    assert (report.problem, report.complete) == ("", False)
    (path.parent / files[1]).unlink()
    (path.parent / files[1]).write_bytes(b'{"file": 2, "prev": ""}\n')
    assert "audit.000003.jsonl:1" in verify(path).problem


def test_a_file_that_was_just_put_away_is_gone_on_from(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}])
    path.rename(path.with_name("audit.000001.jsonl"))

    AuditFile(path).append([{"call": "b"}])

    report = verify(path)
    assert (report.lines, report.problem, report.complete) == (2, "", True)


def test_a_line_that_was_cut_off_stays_and_the_chain_goes_on_behind_it(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}])
    _die_while_writing(path, {"call": "b"})

    AuditFile(path).append([{"call": "c"}])

    report = verify(path)
    assert (report.lines, report.torn, report.problem) == (3, 1, "")


def test_a_line_longer_than_what_is_read_at_once_is_followed_rightly(path: Path) -> None:
    AuditFile(path).append([{"call": "a"}, {"text": "长" * 60_000}])

    AuditFile(path).append([{"call": "b"}])

    assert verify(path).problem == ""


def test_several_processes_write_one_chain(path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from loom_core.tools.auditing.file import AuditFile\n"
        "file = AuditFile(pathlib.Path(sys.argv[1]), most_bytes=2000)\n"
        "for number in range(20): file.append([{'by': sys.argv[2], 'number': number}])\n"
    )
    path.parent.mkdir()
    file = AuditFile(path, most_bytes=2000)
    file.append([{"by": "me"}])
    done = run([sys.executable, "-c", program, str(path), "other"], check=False, timeout=30)
    file.append([{"by": "me"}])

    assert done.returncode == 0
    report = verify(path)
    assert (report.lines, report.problem) == (22, "")


async def test_many_tasks_write_one_chain(path: Path) -> None:
    log = AuditLog(path)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(log.write, _entry(f"call_{number}"))

    assert {line["call"] for line in _lines(path)} == {f"call_{number}" for number in range(50)}
    assert verify(path).problem == ""


async def test_what_cannot_be_written_is_said_and_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _block(path)
    log = AuditLog(path)

    with pytest.raises(StoreError, match="cannot be written"):
        await log.write(_entry("call_1"))
    await log.try_write(_entry("call_2"))
    assert "cannot be written" in caplog.text
    assert log.has_waiting

    _unblock(path)
    await log.write(_entry("call_3"))

    assert [line["call"] for line in _lines(path)] == ["call_1", "call_2", "call_3"]


def test_half_of_what_was_to_be_written_is_not_left_when_the_disk_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(path)
    file.append([{"call": "a"}])
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if bytes(data).isdigit():  # the lock
            return write(handle, data)
        if not bytes(data).startswith(b"{"):
            raise OSError(28, "No space left on device")
        return write(handle, data[:50])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            file.append([{"call": "b"}])

    file.append([{"call": "c"}])
    assert [line["call"] for line in _lines(path)] == ["a", "c"]
    assert verify(path).problem == ""


def test_a_file_that_is_put_away_while_it_is_verified_is_no_breach(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(path, most_bytes=200)
    file.append([{"call": "一" * 100}])
    read_bytes = Path.read_bytes
    turns = iter([True])

    def meanwhile(file_read: Path) -> bytes:
        if next(turns, False):
            file.append([{"call": "b" * 200}])
            file.append([{"call": "c"}])
        return read_bytes(file_read)

    monkeypatch.setattr(Path, "read_bytes", meanwhile)

    assert verify(path).problem == ""
    assert verify(path).lines == 3


def test_an_audit_whose_first_line_was_cut_off_still_begins_there(path: Path) -> None:
    _die_while_writing(path, {"call": "a"})
    AuditFile(path).append([{"call": "b"}])

    report = verify(path)

    assert (report.problem, report.torn, report.complete) == ("", 1, True)


def test_another_process_that_does_not_let_go_is_named(path: Path) -> None:
    path.parent.mkdir()
    lock = ProcessLock(path.with_suffix(".lock"))
    assert lock.acquire()

    with pytest.raises(StoreError, match="Another process holds"):
        AuditFile(path, lock_seconds=0.02).append([{}])
    lock.release()


async def test_an_audit_that_cannot_be_written_for_long_keeps_the_latest(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(path, most_waiting=3)

    log.note(*(_entry(f"call_{number}") for number in range(5)))
    await log.write()

    assert "2 entries of the audit are lost" in caplog.text
    assert _lines(path)[0]["call"] == "call_2"


def test_an_audit_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(StoreError, match="cannot be read"):
        verify(path)


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize("before", [250, 285, 290, 299])
def test_a_text_is_cut_after_secrets_are_out(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz-99x")
    entry = AuditEntry(kind="start", tool="t", client="长" * before + "Hunter2-Quartz-99x" + "长" * 100)
    assert len(entry.as_json()["client"]) == 300
    assert not any(part in entry.as_json()["client"] for part in ("Hun", "Quartz", "99x"))


async def test_entries_are_redacted_outside_of_the_event_loop(tmp_path: Path) -> None:
    threads: list[int] = []

    def secrets() -> list[SecretStr]:
        threads.append(threading.get_ident())
        return [SecretStr("planted-0")]

    audit = AuditLog(tmp_path / "audit.jsonl", secrets=secrets)
    await audit.write(_entry(arguments={"text": "planted-0" * 100}))
    assert threads != [threading.get_ident()]
    assert "planted" not in audit.path.read_text(encoding="utf-8")


async def test_an_entry_of_a_cancelled_call_is_kept(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await audit.write(_entry())
    await audit.write()
    assert [line["call"] for line in _lines(audit.path)] == ["call_1"]
