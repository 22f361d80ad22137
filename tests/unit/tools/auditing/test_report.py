"""Verification of an audit that was changed: lines that are missed, added, or cut off."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.tools.auditing.file import AuditFile, verify

_MISSING_FIRST = "Lines are missing before audit.jsonl:1: no file begins with it."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "审计" / "audit.jsonl"
    for number in range(10):
        AuditFile(path).append([{"tool": f"工具{number}"}])
    return path


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def _put(path: Path, *lines: bytes) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _forged(before: bytes, **said: Any) -> bytes:
    return json.dumps({"tool": "forged", **said, "prev": hashlib.sha256(before).hexdigest()}).encode()


def _rotated(folder: Path) -> tuple[Path, list[Path]]:
    """An audit of several files, and the full ones."""
    path = folder / "audit.jsonl"
    for number in range(30):
        AuditFile(path, most_bytes=500).append([{"tool": f"工具{number}"}])
    return path, sorted(folder.glob("audit.0*.jsonl"))


@pytest.mark.parametrize("taken", [1, 5, 9])
def test_who_takes_off_the_first_lines_is_found_out_also_when_others_follow(path: Path, taken: int) -> None:
    _put(path, *_lines(path)[taken:])

    assert verify(path).problem == _MISSING_FIRST
    AuditFile(path).append([{"tool": "after"}])
    assert verify(path).problem == _MISSING_FIRST


def test_a_line_that_is_made_the_first_of_a_file_breaks_the_chain(path: Path) -> None:
    lines = _lines(path)[5:]
    begun = {**json.loads(lines[0]), "file": 2}
    _put(path, json.dumps(begun, ensure_ascii=False, separators=(",", ":")).encode(), *lines[1:])

    assert "audit.jsonl:2 does not follow" in verify(path).problem


def test_files_that_were_put_away_in_their_order_leave_a_whole_audit_that_says_so(tmp_path: Path) -> None:
    path, full = _rotated(tmp_path)
    assert verify(path).complete

    for put_away in full:
        put_away.unlink()
        report = verify(path)
        assert (report.problem, report.unkept, report.complete) == ("", 0, False)
    for number in range(30):
        AuditFile(path, most_bytes=500).append([{"tool": f"后来{number}"}])
    assert min(tmp_path.glob("audit.0*.jsonl")).name > full[-1].name, "a number was given twice"
    assert verify(path).problem == ""


def test_who_takes_off_lines_of_an_audit_whose_oldest_files_were_put_away_is_found_out(
    tmp_path: Path,
) -> None:
    path, full = _rotated(tmp_path)
    full[0].unlink()
    AuditFile(path).append([{"tool": f"新{number}"} for number in range(6)])
    lines = _lines(path)
    _put(path, *lines[:-3])

    assert "Lines are missing at its end" in verify(path).problem
    AuditFile(path).append([{"tool": "after"}])
    assert f"Lines are missing before audit.jsonl:{len(lines) - 2}" in verify(path).problem
    _put(full[1], *_lines(full[1])[1:])
    assert f"Lines are missing before {full[1].name}:1" in verify(path).problem


@pytest.mark.parametrize("kept", [b"", b"x"], ids=["nothing", "a torn line"])
def test_an_audit_started_over_after_the_old_one_is_detected(path: Path, kept: bytes) -> None:
    path.write_bytes(kept)
    AuditFile(path).append([{"tool": "after"}])

    problem = verify(path).problem
    assert (
        problem
        == f"Lines are missing before audit.jsonl:{1 + len(kept)} that were there when it was written."
    )


def test_lines_that_no_one_kept_the_end_of_are_told_also_when_others_follow(path: Path) -> None:
    lines = _lines(path)
    first = _forged(lines[-1])
    _put(path, *lines, first, _forged(first))

    assert (verify(path).problem, verify(path).unkept) == ("", 2)
    AuditFile(path).append([{"tool": "after"}])
    AuditFile(path).append([{"tool": "and after"}])
    assert (verify(path).problem, verify(path).unkept) == ("", 2)


def test_an_audit_without_its_kept_end_says_that_nothing_is_known_of_its_lines(path: Path) -> None:
    path.with_suffix(".head").unlink()
    _put(path, *_lines(path)[:-3])

    assert (verify(path).problem, verify(path).unkept) == ("", 7)
    AuditFile(path).append([{"tool": "after"}])
    assert (verify(path).problem, verify(path).unkept) == ("", 7)


@pytest.mark.parametrize(
    "line", [b"garbage", b"", b"[]", b"\xff\xfe", b"[" * 100_000, "垃圾".encode(), b"{"], ids=range(7)
)
def test_a_whole_line_that_says_nothing_was_not_cut_off_by_an_accident(path: Path, line: bytes) -> None:
    lines = _lines(path)
    _put(path, *lines, line)

    problem = "audit.jsonl:11 is not a line of an audit log, and was not cut off when a process died."
    assert (verify(path).problem, verify(path).torn) == (problem, 0)
    AuditFile(path).append([{"tool": "after"}])
    assert verify(path).problem == problem
    _put(path, *lines[:4], line, *lines[5:])
    assert verify(path).problem == problem.replace("11", "5")


def test_lines_that_were_cut_off_one_after_the_other_are_told_as_that(path: Path) -> None:
    for _ in range(2):
        head = path.with_suffix(".head").read_bytes()
        AuditFile(path).append([{"tool": "died"}])
        path.with_suffix(".head").write_bytes(head)
        os.truncate(path, path.stat().st_size - 20)
    assert (verify(path).problem, verify(path).torn) == ("", 2)

    AuditFile(path).append([{"tool": "after"}])

    report = verify(path)
    assert (report.problem, report.torn, report.unkept, report.lines) == ("", 2, 0, 13)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    lines=st.lists(
        st.dictionaries(
            st.sampled_from(["prev", "seen", "file", "torn", "at"]),
            st.none() | st.booleans() | st.integers() | st.text(max_size=70) | st.just([{}]),
        ),
        max_size=4,
    )
)
def test_whatever_lines_an_audit_has_the_answer_is_a_report(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "audit.jsonl"
    _put(path, *(json.dumps(line).encode() for line in lines))

    assert verify(path).lines <= len(lines)
    AuditFile(path).append([{"tool": "after"}])
    assert verify(path).lines <= len(lines) + 1


@pytest.mark.parametrize(
    "tamper",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[1:],
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines, b"garbage"],
        lambda lines: [*lines[:-1], lines[-1].replace("工具9".encode(), "工具X".encode())],
    ],
)  # fmt: skip
def test_a_line_of_the_same_process_hides_no_change(
    tmp_path: Path, tamper: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path)
    for number in range(10):
        file.append([{"tool": f"工具{number}"}])
    _put(path, *tamper(_lines(path)))
    file.append([{"tool": "after"}])

    assert verify(path).problem
