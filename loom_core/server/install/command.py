"""What the commands `install` and `uninstall` do, for any server. Nothing is printed here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel

from loom_core.errors import InvalidInputError
from loom_core.server.install.change import Action, Change, planned_install, planned_uninstall
from loom_core.server.install.clients import CLIENTS, Client, Scope
from loom_core.server.install.config_file import ConfigFile
from loom_core.server.install.launch import Interpreter, check_launch, launch_of
from loom_core.server.install.machine import Machine
from loom_core.server.install.server import InstalledServer

__all__ = ["InstallReport", "Program", "install", "uninstall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server's program, as its own command knows it.

    Attributes:
        name: its command, which is its package, too.
        module: what `python -m` runs.
        description: what the server does, in a sentence.
        interpreter: what runs it.
        machine: where the clients' files are.
    """

    name: str
    module: str
    description: str
    interpreter: Interpreter = field(default_factory=Interpreter.this)
    machine: Machine = field(default_factory=Machine.this)


class InstallReport(BaseModel):
    """What a command did.

    Attributes:
        action: what happened to the entry; `printed` where it is only shown.
        client: id of the client; empty for any that reads `mcpServers`.
        file: the client's configuration; empty without a client.
        name: what the client calls the server.
        dry_run: whether it only would have happened.
        diff: the entry before and after; empty where nothing changes.
        backup: the file as it was; None where there was none or nothing is written.
        snippet: what is to be pasted, for `printed`.
        notes: what the user should know.
    """

    action: Action | Literal["printed"]
    client: str
    file: str
    name: str
    dry_run: bool = False
    diff: str = ""
    backup: str | None = None
    snippet: str = ""
    notes: list[str] = []

    def lines(self) -> list[str]:
        """What a person is told, after the diff."""
        title = CLIENTS[self.client].title if self.client in CLIENTS else "any client that reads mcpServers"
        would = "would be " if self.dry_run else ""
        said = {
            "added": f"{self.name!r} {would}added to {title}: {self.file}",
            "updated": f"{self.name!r} {would}updated in {title}: {self.file}",
            "unchanged": f"{self.name!r} is in {title} already, and nothing changes: {self.file}",
            "removed": f"{self.name!r} {would}removed from {title}: {self.file}",
            "absent": f"{self.name!r} is not in {title}, and nothing changes: {self.file}",
            "printed": f"For {title}{f': {self.file}' if self.file else ''}",
        }
        kept = [f"The file as it was: {self.backup}"] if self.backup else []
        return [said[self.action], *kept, *self.notes]


def install(
    program: Program,
    args: argparse.Namespace,
    *,
    arguments: Sequence[str],
    variables: Sequence[str] = (),
    show: Callable[[str], None],
) -> InstallReport:
    """Put a server into a client's configuration, or show what would be put there.

    Args:
        program: the server.
        args: options of `options.add_install_options`.
        arguments: what the client is to give to the server.
        variables: environment variables with secrets that it needs with these arguments.
        show: is given the diff before anything is written.

    Raises:
        InvalidInputError: no client is named; it has no such scope, or takes no such name.
        ConfigError: the server would not start, or the configuration cannot be changed; the message says why.
        StoreBusyError: somebody else changed it just now.
    """
    if args.client is None and not args.print_only:
        raise InvalidInputError("Which client?", advice=f"Name one: {', '.join(CLIENTS)}; or give --print.")
    client = CLIENTS[args.client or "claude-desktop"]
    path = _file(client, args, program.machine)
    launch = launch_of(program.name, program.module, interpreter=program.interpreter)
    check_launch(launch, program.name)
    there = [name for name in variables if os.environ.get(name)]
    server = InstalledServer(
        name=args.name,
        program=program.name,
        module=program.module,
        description=program.description,
        command=launch.command,
        arguments=(*launch.arguments, *arguments),
        variables=tuple(there),
    )
    notes = [launch.note] if launch.note else []
    notes += _notes_on_variables(client, there, [name for name in variables if name not in there])
    if args.scope == "project":
        notes.append("Its paths are this machine's: others who share the project install it for themselves.")
    if args.print_only:
        return InstallReport(
            action="printed",
            client=args.client or "",
            file=str(path) if args.client else "",
            name=args.name,
            snippet=client.format.snippet(client.section, args.name, client.entry(server)),
            notes=notes,
        )
    if not path.parent.is_dir():
        notes.append(f"{path.parent} was not there: is {client.title} installed?")
    change = planned_install(client, server, ConfigFile.read(path))
    if change.action != "unchanged":
        notes.append(client.afterwards)
    return _carried_out(change, client, args, notes, show)


def uninstall(program: Program, args: argparse.Namespace, *, show: Callable[[str], None]) -> InstallReport:
    """Take a server out of a client's configuration.

    Args:
        program: the server.
        args: options of `options.add_uninstall_options`.
        show: is given the diff before anything is written.

    Raises:
        InvalidInputError: the client has no such scope, or takes no such name.
        ConfigError: its configuration cannot be changed; the message says where and why.
        StoreBusyError: somebody else changed it just now.
    """
    client = CLIENTS[args.client]
    file = ConfigFile.read(_file(client, args, program.machine))
    within = program.machine.project if args.scope == "project" else program.machine.home
    change = planned_uninstall(
        client,
        args.name,
        file,
        program=program.name,
        module=program.module,
        within=Path(within),
        force=args.force,
    )
    notes = [] if change.deletes_within is None else ["Nothing else was in the file: it is deleted."]
    return _carried_out(change, client, args, notes, show)


def _file(client: Client, args: argparse.Namespace, machine: Machine) -> Path:
    """The client's configuration; the options are checked with it."""
    scope = cast("Scope", args.scope)
    path = client.file(machine, scope)
    if path is None:
        raise InvalidInputError(
            f"{client.title} has no configuration of its own for a project.", advice="Leave --scope out."
        )
    if not client.names.fullmatch(args.name):
        raise InvalidInputError(
            f"{client.title} takes no server that is called {args.name!r}.",
            advice="Give --name with letters, digits, - and _, at most 64 of them.",
        )
    return Path(path)


def _carried_out(
    change: Change, client: Client, args: argparse.Namespace, notes: list[str], show: Callable[[str], None]
) -> InstallReport:
    if change.diff:
        show(change.diff)
    backup = None if args.dry_run else change.write()
    return InstallReport(
        action=change.action,
        client=client.id,
        file=str(change.file.path),
        name=args.name,
        dry_run=args.dry_run,
        diff=change.diff,
        backup=str(backup) if backup else None,
        notes=notes,
    )


def _notes_on_variables(client: Client, there: Sequence[str], missing: Sequence[str]) -> list[str]:
    notes: list[str] = []
    for name in there:
        if client.refers:
            notes.append(f"The entry refers to {name}: it has to be set where {client.title} is started.")
        else:
            notes.append(
                f"An entry of {client.title} cannot refer to {name}. Put the key into the keyring, if that"
                f" program does not hand the variable on: keyring set loom {name}"
            )
    notes += [
        f"{name} is not set here, and the entry does not refer to it. Put the key into the keyring (keyring"
        f" set loom {name}), or set it and install again."
        for name in missing
    ]
    return notes
