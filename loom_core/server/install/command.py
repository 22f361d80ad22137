"""The commands `install` and `uninstall`, for any server. Nothing is printed here.

A change of a client's configuration is planned, shown, and then written.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel

from loom_core.errors import ConfigError, InvalidInputError, UnreadableTextError
from loom_core.server.install.clients import CLIENTS, Client, Machine, Scope
from loom_core.server.install.config_file import ConfigFile
from loom_core.server.install.launch import InstalledServer, Interpreter, check_launch, launch_of, runs
from loom_core.server.install.text_format import UneditableTextError

__all__ = ["InstallReport", "Program", "install", "uninstall"]

Action = Literal["added", "updated", "unchanged", "removed", "absent"]
_VALUES = ("env", "envs", "headers")
"""Parts of entries whose values may be secrets: they are kept, and not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of a server.

    Attributes:
        name: its command, and the name of its package.
        module: the module for `python -m`.
        description: description of the server, in a sentence.
        interpreter: the interpreter that runs it.
        machine: the machine with the clients' files.
    """

    name: str
    module: str
    description: str
    interpreter: Interpreter = field(default_factory=Interpreter.this)
    machine: Machine = field(default_factory=Machine.this)


class InstallReport(BaseModel):
    """Outcome of a command.

    Attributes:
        action: action on the entry; `printed` if it is only shown.
        client: id of the client; empty for any that reads `mcpServers`.
        file: path of the client's configuration; empty without a client.
        name: name of the entry.
        dry_run: whether nothing was written.
        diff: diff of the entry; empty if nothing changes.
        backup: path of the backup; None if there was no file or nothing is written.
        snippet: text to paste, for `printed`.
        notes: notes for the user.
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
        """Format lines for people, after the diff."""
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
    """Add a server to a client's configuration, or show the entry.

    Args:
        program: the server.
        args: options of `add_install_options`.
        arguments: the server's arguments in the entry.
        variables: environment variables with secrets that it needs with these arguments.
        show: called with the diff before anything is written.

    Raises:
        InvalidInputError: no client is named, or it does not support the scope or the name.
        ConfigError: the server would not start, or the configuration cannot be changed; the message says why.
        StoreBusyError: another process changed it just now.
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
    change = plan_install(client, server, ConfigFile.read(path))
    if change.action != "unchanged":
        notes.append(client.afterwards)
    return _apply_change(change, client, args, notes, show)


def uninstall(program: Program, args: argparse.Namespace, *, show: Callable[[str], None]) -> InstallReport:
    """Remove a server from a client's configuration.

    Args:
        program: the server.
        args: options of `add_uninstall_options`.
        show: called with the diff before anything is written.

    Raises:
        InvalidInputError: the client does not support the scope or the name.
        ConfigError: its configuration cannot be changed; the message says where and why.
        StoreBusyError: another process changed it just now.
    """
    client = CLIENTS[args.client]
    file = ConfigFile.read(_file(client, args, program.machine))
    within = program.machine.project if args.scope == "project" else program.machine.home
    change = plan_uninstall(
        client,
        args.name,
        file,
        program=program.name,
        module=program.module,
        within=Path(within),
        force=args.force,
    )
    notes = [] if change.deletes_within is None else ["Nothing else was in the file: it is deleted."]
    return _apply_change(change, client, args, notes, show)


def _file(client: Client, args: argparse.Namespace, machine: Machine) -> Path:
    """Return the path of the client's configuration, and check the options."""
    scope = cast("Scope", args.scope)
    path = client.file(machine, scope)
    if path is None:
        raise InvalidInputError(
            f"{client.title} has no configuration of its own for a project.", advice="Leave --scope out."
        )
    if not client.names.fullmatch(args.name):
        raise InvalidInputError(
            f"{client.title} does not accept a server called {args.name!r}.",
            advice="Give --name with letters, digits, - and _, at most 64 of them.",
        )
    return Path(path)


def _apply_change(
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
        if client.supports_references:
            notes.append(f"The entry refers to {name}: it has to be set where {client.title} is started.")
        else:
            notes.append(
                f"An entry of {client.title} cannot refer to {name}. Put the key into the keyring, if that"
                f" program does not pass the variable on: keyring set loom {name}"
            )
    notes += [
        f"{name} is not set here, and the entry does not refer to it. Put the key into the keyring (keyring"
        f" set loom {name}), or set it and install again."
        for name in missing
    ]
    return notes


@dataclass(frozen=True, slots=True)
class Change:
    """Planned change of one entry.

    Attributes:
        action: action on the entry.
        file: the file.
        text: the file's new text; None if nothing changes, or the file is deleted.
        diff: unified diff of the entry, without the values of environment variables.
        deletes_within: if the file, which `install` created, is deleted: the folder that stays; else None.
    """

    action: Action
    file: ConfigFile
    text: str | None = None
    diff: str = ""
    deletes_within: Path | None = None

    def write(self) -> Path | None:
        """Apply the change; return the backup of the file, if there is one. See `ConfigFile.write`."""
        if self.deletes_within is not None:
            self.file.remove(within=self.deletes_within)
        return None if self.text is None else self.file.write(self.text)


def plan_install(client: Client, server: InstalledServer, file: ConfigFile) -> Change:
    """Plan the installation of a server in a client's configuration, or the update of its entry.

    Additions by others stay: settings that `install` does not know, and further variables.

    Raises:
        ConfigError: the file is broken, or in a form that cannot be edited; or the name is taken.
    """
    old, servers = _find_entry(client, server.name, file)
    new = client.entry(server)
    if old is not None:
        if not runs(old, program=server.program, module=server.module):
            raise ConfigError(
                f"{client.title} already has something else that is called {server.name!r}.",
                advice="Choose another name with --name.",
            )
        new = _merge_entry(client, old, new)
        if new == old:
            return Change("unchanged", file)
    text = _edit_text(client, file, server.name, {**servers, server.name: new})
    action = "added" if old is None else "updated"
    return Change(action, file, text, _diff(client, server.name, file.path, old, new))


def plan_uninstall(
    client: Client,
    name: str,
    file: ConfigFile,
    *,
    program: str,
    module: str,
    within: Path,
    force: bool = False,
) -> Change:
    """Plan the removal of a server from a client's configuration.

    If nothing else has changed since `install`, the previous file is restored byte for byte, or deleted.

    Args:
        client: the client.
        name: name of the entry.
        file: the client's configuration.
        program: the server's command.
        module: the module behind it.
        within: the folder that stays if `install` created the file and its folders.
        force: whether to remove an entry with additions, too.

    Raises:
        ConfigError: the file is broken, or in a form that cannot be edited; the entry is of another program,
            or has additions that would be lost.
    """
    old, servers = _find_entry(client, name, file)
    if old is None:
        return Change("absent", file)
    if not runs(old, program=program, module=module):
        raise ConfigError(
            f"What {client.title} calls {name!r} is not {program}. It was left as it is.",
            advice="Name the entry with --name.",
        )
    more = _additions(client, old)
    if more and not force:
        raise ConfigError(
            f"The entry {name!r} of {client.title} holds what `install` does not write: {', '.join(more)}.",
            advice="Give --force to remove it with all that. The file as it was is kept next to it.",
        )
    diff = _diff(client, name, file.path, old, None)
    before = _before_install(client, name, file, old)
    if before is not None and before.raw is None and not more:
        return Change("removed", file, None, diff, within)
    left = {key: entry for key, entry in servers.items() if key != name}
    text = _edit_text(client, file, name, left) if before is None or before.raw is None else before.text
    return Change("removed", file, text, diff)


def _before_install(
    client: Client, name: str, file: ConfigFile, entry: Mapping[str, Any]
) -> ConfigFile | None:
    """Find the state of the file before the installation: a backup or no file; None if unknown."""
    for backup in (*file.backups(), None):
        with suppress(ConfigError):  # an unreadable backup is skipped
            before = ConfigFile.read(backup) if backup else ConfigFile(file.path, file.real, None)
            old, _ = _find_entry(client, name, before)
            if old is None and client.format.put(before.text, client.section, name, entry) == file.text:
                return before
    return None


def _find_entry(client: Client, name: str, file: ConfigFile) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the entry of a name, if there is one, and all entries."""
    servers = _read(client, file, file.text).get(client.section)
    if servers is None:
        return None, {}
    if not isinstance(servers, dict):
        raise _uneditable(file, f"{client.section!r} holds no servers.")
    entries = cast("dict[str, Any]", servers)
    if name in entries and not isinstance(entries[name], dict):
        raise _uneditable(file, f"{name!r} is not an entry of a server.")
    return entries.get(name), entries


def _read(client: Client, file: ConfigFile, text: str) -> dict[str, Any]:
    try:
        return client.format.read(text)
    except UnreadableTextError as error:
        raise ConfigError(
            f"{file.path}:{error.line}:{error.column}: {error.reason}.",
            advice="Correct it there. The file was left as it is.",
        ) from None


def _edit_text(client: Client, file: ConfigFile, name: str, servers: Mapping[str, Any]) -> str:
    """Edit the file's text to have these servers; check by reading that everything else is unchanged."""
    before = file.text
    try:
        if name in servers:
            text = client.format.put(before, client.section, name, servers[name])
        else:
            text = client.format.drop(before, client.section, name)
        says = client.format.read(text)
    except UneditableTextError as error:
        raise _uneditable(file, error.message) from None
    except UnreadableTextError:
        raise _uneditable(file, "Its formatting is not supported.") from None
    expected = {**client.format.read(before), client.section: servers}
    if {**says, client.section: says.get(client.section) or {}} != expected:
        raise _uneditable(file, "Its formatting is not supported.")
    return text


def _uneditable(file: ConfigFile, reason: str) -> ConfigError:
    return ConfigError(
        f"{file.path} was left as it is: {reason[:1].lower()}{reason[1:]}",
        advice="Edit it yourself: `install --print` shows what to write there.",
    )


def _merge_entry(client: Client, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge an entry: replace what `install` writes, and keep everything else."""
    merged = {**old, **new}
    variables = client.keys[2]
    if variables and isinstance(known := old.get(variables), list):
        kept = cast("list[Any]", known)
        merged[variables] = kept + [name for name in new.get(variables, []) if name not in kept]
    if client.reference and isinstance(old.get("env"), dict):
        merged["env"] = {**_own_values(client, old), **new.get("env", {})}
        if not merged["env"] and old["env"]:
            del merged["env"]
    return merged


def _own_values(client: Client, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of an entry that are not just references to the same name."""
    values = entry.get("env")
    if not isinstance(values, dict):
        return {}
    members = cast("dict[str, Any]", values).items()
    return {key: value for key, value in members if value != client.reference.format(key)}


def _additions(client: Client, entry: Mapping[str, Any]) -> list[str]:
    """Return the names in an entry that `install` does not write, without empty values, which clients add."""
    server = InstalledServer(name="", program="", module="", description="", command="")
    written = {*client.entry(server), client.keys[2]}
    more = [
        key
        for key, value in entry.items()
        if key not in written and key != "env" and value not in (None, [], {})
    ]
    return more + [f"env.{key}" for key in _own_values(client, entry)]


def _diff(
    client: Client, name: str, path: Path, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> str:
    def lines(entry: Mapping[str, Any] | None) -> list[str]:
        if entry is None:
            return []
        return client.format.snippet(client.section, name, _without_values(client, entry)).splitlines()

    return "\n".join(difflib.unified_diff(lines(old), lines(new), str(path), str(path), n=99, lineterm=""))


def _without_values(client: Client, entry: Mapping[str, Any]) -> dict[str, Any]:
    hidden: dict[str, Any] = dict(entry)
    for key in _VALUES:
        if isinstance(values := entry.get(key), dict):
            members = cast("dict[str, Any]", values).items()
            hidden[key] = {
                name: value if client.reference and value == client.reference.format(name) else "…"
                for name, value in members
            }
    return hidden
