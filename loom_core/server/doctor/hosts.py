"""What the configurations of MCP clients on this machine say of a server. They are read, never written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.server.cli.health import Finding, Section, fine, problem, told_by, warning
from loom_core.server.install.clients import CLIENTS, Client, Scope
from loom_core.server.install.config_file import ConfigFile
from loom_core.server.install.machine import Machine
from loom_core.server.install.server import runs

__all__ = ["hosts_section"]

_SECTIONS = {client.section for client in CLIENTS.values()}
"""What clients call the part that holds the servers; people take the one of another client."""


@dataclass(slots=True)
class _Host:
    """A client, and the entries of all its files that start the server, by name."""

    client: Client
    files: int = 0
    entries: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    findings: list[Finding] = field(default_factory=list[Finding])


def hosts_section(program: str, module: str, *, machine: Machine | None = None) -> Section:
    """Look into the configuration files of all known clients, of the user and of the current folder. Blocks.

    Of an entry only its name and its command are shown: there may be secrets in the rest.

    Args:
        program: the server's command, such as `loom-kb`.
        module: the module behind it, such as `loom_kb`.
        machine: where the files are; this machine if not given.
    """
    machine = machine or Machine.this()
    hosts = [_host(client, machine, program, module) for client in CLIENTS.values()]
    facts: dict[str, object] = {
        host.client.title: f"starts it as {', '.join(map(repr, host.entries))}"
        if host.entries
        else "does not start it"
        for host in hosts
        if host.files
    }
    facts["without_configuration"] = [host.client.title for host in hosts if not host.files]
    findings = [finding for host in hosts for finding in (*host.findings, *_entry_findings(host, program))]
    if not findings and any(host.entries for host in hosts):
        findings = [fine("hosts", "All clients that start it can do so.")]
    return Section(name="clients", facts=facts, findings=findings)


def _host(client: Client, machine: Machine, program: str, module: str) -> _Host:
    host = _Host(client)
    for scope in get_args(Scope):
        place = client.file(machine, scope)
        if place is None:
            continue
        path = Path(place)
        try:
            file = ConfigFile.read(path)
            if file.raw is None:
                continue
            host.files += 1
            configuration = client.format.read(file.text)
        except UnreadableTextError as error:
            message = f"{client.title} cannot read {path}:{error.line}:{error.column}: {error.reason}."
            host.findings.append(problem("broken-config", message, "Correct that line, and start it again."))
            continue
        except ConfigError as error:
            host.findings.append(told_by(error, "broken-config", remedy="Correct the file."))
            continue
        host.findings += _section_findings(client, path, configuration)
        for name, entry in _mapping(configuration.get(client.section)).items():
            if runs(_mapping(entry), program=program, module=module):
                host.entries[name] = _mapping(entry)  # a project's entry takes the place of the user's
    return host


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _section_findings(client: Client, path: Path, configuration: Mapping[str, Any]) -> Iterator[Finding]:
    others = sorted((_SECTIONS - {client.section}) & configuration.keys())
    if others and client.section not in configuration:
        message = f"{path} has {others[0]!r}, which {client.title} does not read."
        yield warning("wrong-section", message, f"Call it {client.section!r}.")


def _entry_findings(host: _Host, program: str) -> Iterator[Finding]:
    client, title = host.client, host.client.title
    anew = f"Write the entry anew: {program} install {client.id}"
    for name, entry in host.entries.items():
        command = str(entry.get("command", entry.get("cmd")))
        if shutil.which(Path(command).expanduser()) is None:
            message = f"{title} starts {name!r} by {command}, and there is no such command."
            yield problem("command-missing", message, anew)
        if not client.names.fullmatch(name):
            yield warning("host-name", f"{title} may refuse a server of the name {name!r}.", anew)
    if len(host.entries) > 1:
        names = ", ".join(map(repr, host.entries))
        first, *rest = (_started(entry) for entry in host.entries.values())
        how = "with other options" if any(other != first for other in rest) else "in the same way"
        message = f"{title} starts {program} {len(host.entries)} times, as {names}, {how}."
        remedy = "Keep one: models see each tool as often, and each is a process of its own."
        yield warning("duplicate-entries", message, f"{remedy} {program} uninstall {client.id} --name NAME")


def _started(entry: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(entry.get(key) for key in ("command", "cmd", "args", "env", "envs"))
