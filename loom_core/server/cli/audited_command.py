"""Commands of people at a terminal that belong on the audit, the same for every server."""

from __future__ import annotations

import getpass
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from loom_core.paths import audit_path, loom_home

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from loom_core.errors import LoomError

__all__ = ["AUDITED_COMMANDS", "AuditedCommand", "audited"]

_ENDING = ("SIGTERM", "SIGHUP")


@dataclass(frozen=True, slots=True)
class AuditedCommand:
    """What of a command is on the audit.

    Attributes:
        arguments: these of its arguments; others may be secret, as what `mcp add` puts into an environment.
        actions: only with one of these as `action`; empty for always.
        when: only with one of these options; empty for always.
    """

    arguments: tuple[str, ...]
    actions: frozenset[str] = frozenset()
    when: tuple[str, ...] = ()

    def concerns(self, args: argparse.Namespace) -> bool:
        """Whether a command line is one of those."""
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
        "runs": AuditedCommand(
            ("run_id", "decided", "decision", "reason"),
            actions=frozenset({"resume", "pause", "abort", "decide", "answer", "retry", "forget"}),
        ),
    }
)
"""By name; of a server that has no such command nothing comes of it."""


def audited(program: str, args: argparse.Namespace, run: Callable[[], int]) -> int:
    """Run a command, and have it on the audit if it belongs there: before, and how it ended.

    Where the audit cannot be written that is said, and the command counts all the same: who is at the
    terminal owns the files. Who ends the process (SIGTERM, or SIGHUP as its terminal is closed) interrupts
    the command as Ctrl-C does.

    Args:
        program: the server whose command it is.
        args: the command and its options.
        run: does it.

    Returns:
        Its exit code.
    """
    command = AUDITED_COMMANDS.get(args.command)
    if command is None or not command.concerns(args):
        return run()
    outcome = "error"
    with _interrupted_when_ended():
        _write(program, args, command, "")
        try:
            code = run()
            outcome = "success" if code == 0 else f"exit code {code}"
            return code
        except KeyboardInterrupt:
            outcome = "cancelled"
            raise
        finally:
            # What is wrong is told already where the command has failed, and may be the same.
            if (error := _write(program, args, command, outcome)) and outcome != "error":
                from loom_core.server.cli.console import say

                say(f"This command is not on the audit: {error}")


@contextmanager
def _interrupted_when_ended() -> Generator[None]:
    """Let signals that would end the process at once be Ctrl-C, which a command knows how to end by."""
    numbers = [number for name in _ENDING if (number := getattr(signal, name, None)) is not None]
    ending = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ending = []  # only that one may say what becomes of signals
    for number in ending:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if not callable(signal.getsignal(signal.SIGINT)):  # as in what a script runs in the background
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _write(program: str, args: argparse.Namespace, command: AuditedCommand, outcome: str) -> LoomError | None:
    """Put a command on the audit; gives why it could not be."""
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
    """Who is at the terminal, as the system knows them, not as their environment says."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
