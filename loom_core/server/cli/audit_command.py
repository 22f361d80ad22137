"""The command `audit verify | show`, the same for every server: they write one audit."""

from __future__ import annotations

import re
import time
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.paths import audit_path, loom_home

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["add_audit_options", "run_audit_command", "unkept_told"]

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_SPACES = re.compile(r"\s{2,}")
_HASH = re.compile(r"[0-9a-f]{64}")


def add_audit_options(command: argparse.ArgumentParser) -> None:
    """Add what `run_audit_command` reads.

    Args:
        command: the parser of the command `audit`.
    """
    command.add_argument(
        "action",
        choices=["verify", "show"],
        help="`verify`: see whether anything was changed, taken out or put in; `show`: list entries",
    )
    command.add_argument(
        "--since",
        default="",
        metavar="TIME",
        help="with show: 30m, 12h, 7d or 2w ago, or a date such as 2026-07-01T08:00 (default: the last ones)",
    )
    command.add_argument(
        "--limit", type=int, default=50, metavar="N", help="with show: the last N (default 50; 0 for all)"
    )
    command.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HASH",
        help="with verify: a head that it has told before and you have kept elsewhere (may be repeated)",
    )
    command.epilog = "Exit code of verify: 0 if the audit is whole, 1 if it is not."


def run_audit_command(args: argparse.Namespace) -> int:
    """Do what the arguments say, and print it; gives the exit code.

    Raises:
        InvalidInputError: a time or a hash is none.
        RecordError: the audit cannot be read.
    """
    path = audit_path(loom_home(args.home))
    return _verify(path, args) if args.action == "verify" else _show(path, args)


def _verify(path: Path, args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from loom_core.server.cli.console import out, out_json, say
    from loom_core.tools.auditing.report import verify

    for head in args.head:
        if not _HASH.fullmatch(head):
            raise InvalidInputError(
                f"--head {head[:80]} is no head.", advice="Give the 64 digits that `audit verify` has shown."
            )
    report = verify(path, heads=args.head)
    if args.json:
        out_json({"file": str(path), "whole": not report.problem, **asdict(report)})
    elif report.problem:
        out(f"The audit {path} is not as it was written: {report.problem}")
    else:
        out(f"The audit {path} is whole: {report.lines:,} lines.")
        if report.head:
            out(f"head {report.head}")
    if not args.json and report.torn:
        say(f"Lines that were cut off when a process died: {report.torn:,}.")
    if not args.json and report.unkept:
        say(f"{unkept_told(report.unkept)} See who has written them: audit show.")
    if not args.json and not report.complete:
        say("Its oldest files were put away: nothing is known of what they say.")
    return 1 if report.problem else 0


def unkept_told(lines: int) -> str:
    """What it means that nobody kept the end of some lines."""
    return (
        f"Lines whose end was not kept beside the audit: {lines:,}. A process died as it wrote them, or"
        " somebody has put them in."
    )


def _show(path: Path, args: argparse.Namespace) -> int:
    from loom_core.server.cli.console import out, out_json, say

    if args.limit < 0:
        raise InvalidInputError(f"--limit {args.limit} is below 0.", advice="Give 0 for all entries.")
    entries = deque(_since(path, args.since), maxlen=args.limit or None)
    if args.json:
        out_json({"file": str(path), "entries": list(entries)})
        return 0
    for entry in entries:
        out(_line(entry))
    if not entries:
        say("There is no such entry in the audit." if args.since else "Nothing is on the audit yet.")
    return 0


def _since(path: Path, since: str) -> Iterator[dict[str, Any]]:
    from loom_core.tools.auditing.file import read_entries

    begin = _moment(since) if since else 0.0
    return (entry for entry in read_entries(path) if _at(entry) >= begin)


def _at(entry: Mapping[str, Any]) -> float:
    at = entry.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _moment(text: str) -> float:
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        return time.time() - int(duration[1]) * _UNITS[duration[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"--since {text[:80]} is no time.", advice="Write 12h, 7d, or a date such as 2026-07-01T08:00."
        ) from error


def _line(entry: Mapping[str, Any]) -> str:
    """An entry for people: when, where, what, who, how. What a client has chosen looks like no field."""
    from loom_core.knowledge.text.control_characters import visible

    said = {name: _SPACES.sub(" ", visible(str(value))) for name, value in entry.items()}
    moment = datetime.fromtimestamp(_at(entry)).astimezone()
    how = said.get("decision") or said.get("outcome") or ""
    by = f"by {said['by']}" if said.get("by") else ""
    times = f"{said['times']} times" if said.get("times", "0") not in {"0", "1"} else ""
    run = f"in {said['run']}" if said.get("run") else ""
    what = (said.get(name, "") for name in ("server", "kind", "tool"))
    who = " ".join(said[name] for name in ("caller", "client", "source") if said.get(name))
    parts = (f"{moment:%Y-%m-%d %H:%M:%S}", *what, how, by, times, who, run)
    return "  ".join(filter(None, parts))
