"""The commands `audit verify | show` of every server, and the audit of commands.

A command that changes something is recorded on the audit before it begins, with its arguments that are not
secret, and after its end with its outcome.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.paths import audit_path, loom_home

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from loom_core.errors import LoomError

__all__ = [
    "AUDITED_COMMANDS",
    "AuditedCommand",
    "add_audit_options",
    "explain_unkept",
    "run_audit_command",
    "run_audited",
]

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_SPACES = re.compile(r"\s{2,}")
_HASH = re.compile(r"[0-9a-f]{64}")
_ENDING = ("SIGTERM", "SIGHUP")


def add_audit_options(command: argparse.ArgumentParser) -> None:
    """Add the options that `run_audit_command` reads.

    Args:
        command: the parser of the command `audit`.
    """
    command.add_argument(
        "action",
        choices=["verify", "show"],
        help="`verify`: check that no entry was changed, removed or inserted; `show`: list entries",
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
        help="with verify: a head that an earlier verify printed and you kept elsewhere (may be repeated)",
    )
    command.epilog = "Exit code of verify: 0 if the audit log is intact, 1 if it is not."


def run_audit_command(args: argparse.Namespace) -> int:
    """Run `audit`, print the result, and return the exit code.

    Raises:
        InvalidInputError: a time or a hash is invalid.
        StoreError: the audit cannot be read.
    """
    path = audit_path(loom_home(args.home))
    return _verify(path, args) if args.action == "verify" else _show(path, args)


def _verify(path: Path, args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from loom_core.server.cli.console import out, out_json, say
    from loom_core.tools.auditing.file import verify

    for head in args.head:
        if not _HASH.fullmatch(head):
            raise InvalidInputError(
                f"--head {head[:80]} is not a valid head.",
                advice="Give the 64 digits that `audit verify` has shown.",
            )
    report = verify(path, heads=args.head)
    if args.json:
        out_json({"file": str(path), "whole": not report.problem, **asdict(report)})
    elif report.problem:
        out(f"The audit log {path} is not intact: {report.problem}")
    else:
        out(f"The audit log {path} is intact: {report.lines:,} lines.")
        if report.head:
            out(f"head {report.head}")
    if not args.json and report.torn:
        say(f"Lines that were cut off when a process died: {report.torn:,}.")
    if not args.json and report.unkept:
        say(f"{explain_unkept(report.unkept)} See who has written them: audit show.")
    if not args.json and not report.complete:
        say("Its oldest files were moved away, so they were not verified.")
    return 1 if report.problem else 0


def explain_unkept(lines: int) -> str:
    """Explain audit lines that the head file does not cover."""
    return (
        f"Lines whose end was not kept next to the audit: {lines:,}. A process died as it wrote them, or"
        " another program inserted them."
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
        say("There is no such entry in the audit log." if args.since else "The audit log is empty.")
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
            f"--since {text[:80]} is not a time.", advice="Write 12h, 7d, or a date such as 2026-07-01T08:00."
        ) from error


def _line(entry: Mapping[str, Any]) -> str:
    """Format an entry: time, server, action, outcome, caller, run. A client's text cannot imitate a field."""
    from loom_core.knowledge.text.control_characters import escape_controls

    said = {name: _SPACES.sub(" ", escape_controls(str(value))) for name, value in entry.items()}
    moment = datetime.fromtimestamp(_at(entry)).astimezone()
    how = said.get("decision") or said.get("outcome") or ""
    by = f"by {said['by']}" if said.get("by") else ""
    times = f"{said['times']} times" if said.get("times", "0") not in {"0", "1"} else ""
    run = f"in {said['run']}" if said.get("run") else ""
    what = (said.get(name, "") for name in ("server", "kind", "tool"))
    who = " ".join(said[name] for name in ("caller", "client", "source") if said.get(name))
    parts = (f"{moment:%Y-%m-%d %H:%M:%S}", *what, how, by, times, who, run)
    return "  ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class AuditedCommand:
    """The facts of a command that its audit entry has.

    Attributes:
        arguments: arguments that are recorded; others may be secret, such as the environment in `mcp add`.
        actions: values of `action` for which it is recorded; empty for all.
        when: options of which one must be set; empty for always.
    """

    arguments: tuple[str, ...]
    actions: frozenset[str] = frozenset()
    when: tuple[str, ...] = ()

    def concerns(self, args: argparse.Namespace) -> bool:
        """Return whether a command line of this command is recorded."""
        if self.actions and getattr(args, "action", "") not in self.actions:
            return False
        return not self.when or any(getattr(args, option, None) for option in self.when)


AUDITED_COMMANDS: Mapping[str, AuditedCommand] = MappingProxyType(
    {
        "add": AuditedCommand(("kb", "paths")),
        "remove": AuditedCommand(("kb", "ids", "all")),
        "sync": AuditedCommand(("kb", "folders", "allow_empty")),
        "rebuild": AuditedCommand(("kb", "index", "embedder", "all_from_text")),
        "import": AuditedCommand(("kb", "file")),
        "export": AuditedCommand(("kb", "file")),
        "check": AuditedCommand(("kb", "repair"), when=("repair",)),
        "aliases": AuditedCommand(
            ("kb", "names", "merge", "split", "undecide"), when=("merge", "split", "undecide")
        ),
        "jobs": AuditedCommand(("id", "cancel"), when=("cancel",)),
        "token": AuditedCommand(
            ("name", "scope", "token_sources", "expires"), actions=frozenset({"create", "revoke"})
        ),
        "mcp": AuditedCommand(
            ("name", "names", "client", "file", "revoke", "force"),
            actions=frozenset({"add", "remove", "login", "logout", "trust", "approve", "import"}),
        ),
        "move": AuditedCommand(("kb", "to")),
        "shard": AuditedCommand(("kb", "into", "to", "delete_original")),
        "runs": AuditedCommand(
            ("run_id", "decided", "decision", "reason"),
            actions=frozenset({"resume", "pause", "abort", "decide", "answer", "retry", "forget"}),
        ),
    }
)
"""Audited commands by name; a server need not have all of them."""


def run_audited(program: str, args: argparse.Namespace, run: Callable[[], int]) -> int:
    """Run a command; if it belongs on the audit, record its start and its outcome.

    If the audit cannot be written, a message says so, and the command runs all the same: the user at the
    terminal owns the files. SIGTERM, and SIGHUP when the terminal is closed, interrupt the command as Ctrl-C
    does.

    Args:
        program: the server whose command it is.
        args: the command and its options.
        run: runs the command, and returns its exit code.

    Returns:
        Its exit code.
    """
    command = AUDITED_COMMANDS.get(args.command)
    if command is None or not command.concerns(args):
        return run()
    outcome = "error"
    with _interrupt_on_signals():
        _write(program, args, command, "")
        try:
            code = run()
            outcome = "success" if code == 0 else f"exit code {code}"
            return code
        except KeyboardInterrupt:
            outcome = "cancelled"
            raise
        finally:
            # A failed command has reported its error already, which may be the same.
            if (error := _write(program, args, command, outcome)) and outcome != "error":
                from loom_core.server.cli.console import say

                say(f"This command could not be written to the audit log: {error}")


@contextmanager
def _interrupt_on_signals() -> Generator[None]:
    """Treat termination signals as Ctrl-C, so that a command ends in an orderly way."""
    numbers = [number for name in _ENDING if (number := getattr(signal, name, None)) is not None]
    ending = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ending = []  # only the main thread may set signal handlers
    for number in ending:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if not callable(signal.getsignal(signal.SIGINT)):  # SIGINT is ignored, as in a script's background job
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _write(program: str, args: argparse.Namespace, command: AuditedCommand, outcome: str) -> LoomError | None:
    """Record a command on the audit; return the error if that fails."""
    from loom_core.errors import LoomError
    from loom_core.tools.auditing.audit import AuditEntry
    from loom_core.tools.auditing.file import AuditFile

    given = {name: getattr(args, name, None) for name in command.arguments}
    told = {name: _plain(value) for name, value in given.items() if value not in (None, "", False, [])}
    if args.command == "rebuild" and told.get("embedder") == "auto":
        del told["embedder"]
    entry = AuditEntry(
        kind="command",
        server=program,
        call=str(os.getpid()),
        tool=" ".join(filter(None, (args.command, getattr(args, "action", "") if command.actions else ""))),
        caller=_user(),
        source="terminal",
        arguments=told,
        outcome=outcome,
    )
    try:
        AuditFile(audit_path(loom_home(args.home))).append([entry.as_json()])
    except LoomError as error:
        return error
    return None


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [str(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _user() -> str:
    """Return the user at the terminal, from the operating system, not from the environment."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
