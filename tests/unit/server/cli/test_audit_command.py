from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from loom_core.errors import InvalidInputError
from loom_core.paths import audit_path
from loom_core.server.cli.audit_command import add_audit_options, run_audit_command, run_audited
from loom_core.server.doctor.checks import audit_section
from loom_core.tools.auditing.audit import AuditEntry
from loom_core.tools.auditing.file import AuditFile, read_entries

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `audit …` in a home of its own."""

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        parser.add_argument("--home", type=Path, default=tmp_path)
        parser.add_argument("--json", action="store_true")
        add_audit_options(parser)
        return run_audit_command(parser.parse_args(arguments))

    return run


def _write(home: Path, *entries: AuditEntry) -> None:
    AuditFile(audit_path(home)).append([entry.as_json() for entry in entries])


def test_show_lists_the_last_entries_or_those_since_a_time(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(
        tmp_path,
        AuditEntry(kind="end", server="loom-kb", tool="add", outcome="success", at=time.time() - 90_000),
        AuditEntry(kind="decision", tool="文件:写", decision="deny", by="王芳", run="run_1"),
        AuditEntry(kind="refused", tool="POST /mcp", outcome="bad_token", source="10.0.0.1", times=3),
    )

    assert run("show") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[2] for line in lines] == [
        "loom-kb  end  add  success",
        "decision  文件:写  deny  by 王芳  in run_1",
        "refused  POST /mcp  bad_token  3 times  10.0.0.1",
    ]
    assert run("show", "--since", "12h", "--json") == 0
    assert [entry["kind"] for entry in json.loads(capsys.readouterr().out)["entries"]] == [
        "decision",
        "refused",
    ]
    assert run("show", "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run("show", "--since", "2999-01-01") == 0
    assert capsys.readouterr().err.strip() == "There is no such entry in the audit log."


@pytest.mark.hostile("HTTP requests")
def test_what_a_client_has_chosen_looks_like_no_entry_and_no_field(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "c\n2026-11-23 09:00:00  loom-kb  decision  remove  allow  by admin\x1b[2K\u202e 客户"
    _write(
        tmp_path,
        AuditEntry(kind="start", server="loom-kb", tool="add", caller="local", client=forged, source="stdio"),
        AuditEntry(kind="decision", tool=f"{forged}\t  x", decision="ask", by="rules", call="1"),
    )

    assert run("show") == 0
    told = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    shown = r"c\n2026-11-23 09:00:00 loom-kb decision remove allow by admin\x1b[2K\u202e 客户"
    assert told == [
        f"loom-kb  start  add  local {shown} stdio",
        rf"decision  {shown}\t x  ask  by rules",
    ]


@pytest.mark.parametrize("since", ["gestern", "12", "-3h", "99999999999d", "2026-13-01"])
def test_a_time_that_is_none_is_refused(run: Run, since: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a time"):
        run("show", f"--since={since}")


def test_verify_says_whether_the_audit_is_whole_and_what_its_head_is(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify") == 0
    _write(tmp_path, AuditEntry(kind="command", tool="add"), AuditEntry(kind="command", tool="remove"))
    capsys.readouterr()
    assert run("verify", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["whole"], report["lines"]) == (True, 2)
    assert run("verify", "--head", report["head"]) == 0
    assert audit_section(tmp_path).findings[0].severity == "ok"

    path = audit_path(tmp_path)
    kept = path.with_suffix(".head").read_bytes()
    path.with_suffix(".head").unlink()
    capsys.readouterr()
    assert run("verify") == 0
    assert "Lines whose end was not kept next to the audit: 2." in capsys.readouterr().err
    findings = audit_section(tmp_path).findings
    assert [(each.code, each.severity) for each in findings] == [("audit", "ok"), ("audit-unkept", "warning")]

    path.write_bytes(path.read_bytes().replace(b"remove", b"nothing"))
    path.with_suffix(".head").write_bytes(kept)
    capsys.readouterr()
    assert run("verify") == 1
    assert "is not intact" in capsys.readouterr().out
    finding = audit_section(tmp_path).findings[0]
    assert (finding.code, finding.severity) == ("audit-broken", "problem")
    with pytest.raises(InvalidInputError, match="is not a valid head"):
        run("verify", "--head", "abc")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in its place is another error there")
def test_doctor_says_that_an_audit_cannot_be_read(tmp_path: Path) -> None:
    audit_path(tmp_path).mkdir(parents=True)

    assert audit_section(tmp_path).findings[0].code == "audit-unreadable"


def _args(home: Path, **given: Any) -> argparse.Namespace:
    return argparse.Namespace(home=home, **given)


def _said(home: Path) -> list[tuple[str, str, dict[str, Any]]]:
    found = read_entries(audit_path(home))
    return [(entry["tool"], entry.get("outcome", ""), entry["arguments"]) for entry in found]


def test_commands_that_matter_are_on_the_audit_with_what_is_no_secret(tmp_path: Path) -> None:
    env = [("API_KEY", "s3cret-value")]
    added = _args(tmp_path, command="mcp", action="add", name="demo", env=env, url="https://u:p@host")
    assert run_audited("loom-agent-server", added, lambda: 0) == 0
    removed = _args(tmp_path, command="remove", kb="笔记", ids=["a"], all=False)
    assert run_audited("loom-kb", removed, lambda: 1) == 1
    for harmless in (
        _args(tmp_path, command="mcp", action="list"),
        _args(tmp_path, command="check", kb="x", repair=False),
        _args(tmp_path, command="query", kb="x"),
    ):
        assert run_audited("loom-kb", harmless, lambda: 0) == 0

    assert _said(tmp_path) == [
        ("mcp add", "", {"name": "demo"}),
        ("mcp add", "success", {"name": "demo"}),
        ("remove", "", {"kb": "笔记", "ids": ["a"]}),
        ("remove", "exit code 1", {"kb": "笔记", "ids": ["a"]}),
    ]
    (entry, ended, *_) = read_entries(audit_path(tmp_path))
    assert entry["call"] == ended["call"] == str(os.getpid())
    assert (entry["server"], entry["source"], entry["kind"]) == ("loom-agent-server", "terminal", "command")
    assert entry["caller"]


def test_a_command_that_fails_or_is_interrupted_is_on_the_audit_as_that(tmp_path: Path) -> None:
    def fails() -> int:
        raise InvalidInputError("No.")

    def interrupted() -> int:
        raise KeyboardInterrupt

    args = _args(tmp_path, command="token", action="revoke", name="laptop")
    with pytest.raises(InvalidInputError):
        run_audited("loom-kb", args, fails)
    with pytest.raises(KeyboardInterrupt):
        run_audited("loom-kb", args, interrupted)

    assert [outcome for _, outcome, _ in _said(tmp_path)] == ["", "error", "", "cancelled"]


_LONG = """
import argparse, pathlib, signal, sys, time
import anyio
from loom_core.server.cli.audit_command import run_audited
from loom_core.server.cli.command_line import run_to_exit_code

def begun():
    sys.stdout.write("begun\\n")
    sys.stdout.flush()

async def waits():
    begun()
    await anyio.sleep_forever()

def computes():
    begun()
    while True:
        time.sleep(0.01)

if sys.argv[3] == "in the background":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
args = argparse.Namespace(home=pathlib.Path(sys.argv[1]), command="add", kb="笔记", paths=[])
run = computes if sys.argv[2] == "computes" else lambda: anyio.run(waits)
sys.exit(run_to_exit_code("loom-kb", lambda: run_audited("loom-kb", args, run), debug=False))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize(
    ("sent", "what", "where"),
    [
        ("SIGTERM", "waits", "at a terminal"),
        ("SIGHUP", "computes", "at a terminal"),
        ("SIGTERM", "waits", "in the background"),
    ],
)
def test_a_command_that_is_ended_is_on_the_audit_as_that(
    tmp_path: Path, sent: str, what: str, where: str
) -> None:
    with Popen(
        [sys.executable, "-c", _LONG, str(tmp_path), what, where], stdout=PIPE, stderr=PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert _said(tmp_path) == [("add", "", {"kb": "笔记"})], "nothing is known of one that is killed"
        process.send_signal(getattr(signal, sent))
        _, told = process.communicate(timeout=20)

    assert (process.returncode, told) == (130, b"")
    assert [outcome for _, outcome, _ in _said(tmp_path)] == ["", "cancelled"]


def test_a_command_is_done_although_the_audit_cannot_be_written_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit_path(tmp_path).mkdir(parents=True)
    args = _args(tmp_path, command="export", kb="default", file=Path("a.zip"))

    assert run_audited("loom-kb", args, lambda: 0) == 0
    assert "This command could not be written to the audit log" in capsys.readouterr().err
    assert not list(audit_path(tmp_path).iterdir())
