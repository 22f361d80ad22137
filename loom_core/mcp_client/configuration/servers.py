"""All servers that are configured: those of the user, and those of a project that the user trusts."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.command_names import verb, verb_in
from loom_core.mcp_client.configuration.config_file import ServerFile, user_file
from loom_core.mcp_client.configuration.entry import EntryError
from loom_core.mcp_client.configuration.expansion import Expansion
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.configuration.trust import TrustedFiles

if TYPE_CHECKING:
    from loom_core.mcp_client.configuration.trust import TrustState

__all__ = ["ServerProblem", "Servers", "read_servers"]


@dataclass(frozen=True, slots=True)
class ServerProblem:
    """Problem of an entry or of a whole file, without secrets.

    Attributes:
        message: the problem, in a sentence.
        advice: what to do about it, in a sentence; may be empty.
        where: `file:line:column`, or the file; empty if no file has the entry.
        untrusted: whether the only problem is that the user has not reviewed the file.
    """

    message: str
    advice: str = ""
    where: str = ""
    untrusted: bool = False

    @property
    def placed(self) -> str:
        """The message with its position in front."""
        told = not self.where or self.message.startswith(self.where)
        return self.message if told else f"{self.where}: {self.message}"

    def __str__(self) -> str:
        return f"{self.placed} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True)
class Servers:
    """Configured servers, read from files. A bad entry costs that entry only, a broken file that file only.

    Attributes:
        ready: the servers that can be started.
        problems: why others cannot, by the server's name. A problem of a whole file is under its path; if
            certain servers are asked for, under the name of each that no other file has.
        disabled: names of disabled servers.
        notes: harmless facts that the user should know, such as repeated names.
    """

    ready: tuple[ServerConfig, ...] = ()
    problems: Mapping[str, ServerProblem] = field(default_factory=dict[str, ServerProblem])
    disabled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_servers(
    home: Path,
    *,
    project: Path | None = None,
    names: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    keyring: bool = True,
) -> Servers:
    """Read the servers of a user's `mcp.json` and of a trusted project's `.mcp.json`.

    Blocks, also while the keyring is read: async code calls it in a thread. An entry is not expanded if it is
    not asked for, is disabled, or is in an untrusted file.

    Args:
        home: Loom's folder, with `mcp.json` and what is trusted.
        project: the project's `.mcp.json`, see `config_file.project_file`; it counts once it is trusted. Of
            two servers with one name the user's counts.
        names: only these, including disabled ones, whose `enabled` is False; None for all enabled ones.
        environment: environment variables; those of this process if not given.
        keyring: whether the keyring is read; without it, servers that need it cannot be started.
    """
    reading = _ConfigReader(names, os.environ if environment is None else environment, keyring=keyring)
    reading.read(user_file(home), home, None)
    if project is not None:
        reading.read(project, home, project.absolute().parent)
    return reading.servers()


class _ConfigReader:
    """Accumulated result of reading files, the file of highest precedence first."""

    def __init__(self, names: Sequence[str] | None, environment: Mapping[str, str], *, keyring: bool) -> None:
        self._names = names
        self._environment = environment
        self._keyring = keyring
        self._seen: dict[str, str] = {}
        self._ready: list[ServerConfig] = []
        self._problems: dict[str, ServerProblem] = {}
        self._broken: dict[str, ServerProblem] = {}
        self._disabled: list[str] = []
        self._notes: list[str] = []

    def read(self, path: Path, home: Path, folder: Path | None) -> None:
        """Read the entries of a file. A project's must be trusted; its folder is their default `cwd`."""
        try:
            file = ServerFile.read(path)
            if file.raw is None:
                return
            state = "trusted" if folder is None else TrustedFiles(home).state(path, file.raw)
            entries = file.entries
        except ConfigError as error:
            self._broken[str(path)] = ServerProblem(error.message, error.advice, str(path))
            return
        for name, first, last in file.duplicates:
            self._notes.append(f"{first}: the name {name!r} is repeated at {last}, which takes precedence.")
        for name, written in entries.items():
            if (other := self._seen.get(name)) is not None:
                self._notes.append(
                    f"{file.where(name)}: {name!r} is also in {other}, which takes precedence."
                )
                continue
            self._seen[name] = file.where(name)
            if self._names is not None and name not in self._names:
                continue
            if state == "trusted":
                self._take(file, name, written, folder)
            else:
                self._problems[name] = _untrusted_problem(path, home, state, file.where(name))

    def servers(self) -> Servers:
        for name in self._names or ():
            if name not in self._seen:
                self._problems[name] = self._unknown(name)
        problems = self._problems | (self._broken if self._names is None else {})
        return Servers(tuple(self._ready), problems, tuple(self._disabled), tuple(self._notes))

    def _take(self, file: ServerFile, name: str, written: object, folder: Path | None) -> None:
        if not isinstance(written, dict):
            message = f"The entry {name!r} is not an object."
            advice = 'Write {"command": "…", "args": […]} or {"url": "…"}.'
            self._problems[name] = ServerProblem(message, advice, file.where(name))
            return
        entry = cast("dict[str, Any]", written)
        if entry.get("disabled") is True and self._names is None:
            self._disabled.append(name)
            return
        if folder is not None:
            entry = {**entry, "cwd": entry.get("cwd") or "."}
        try:
            config = ServerConfig.of_entry(
                name,
                entry,
                expansion=Expansion(self._environment, keyring=self._keyring),
                folder=folder or file.path.absolute().parent,
                where=file.where(name),
            )
        except EntryError as error:
            message = f"The server {name!r}: {error.message}"
            advice = error.advice or "Correct it there."
            self._problems[name] = ServerProblem(message, advice, file.where(name, error.path))
        else:
            self._ready.append(config)

    def _unknown(self, name: str) -> ServerProblem:
        for broken in self._broken.values():  # it may be in there
            return broken
        near = difflib.get_close_matches(name, self._seen, n=3)
        advice = (
            f"Did you mean {', '.join(near)}?" if near else f"{verb('list')} shows the servers there are."
        )
        return ServerProblem(f"There is no server {name!r}.", advice)


def _untrusted_problem(path: Path, home: Path, state: TrustState, where: str) -> ServerProblem:
    why = "was changed after you trusted it" if state == "changed" else "is a project's, and not trusted"
    return ServerProblem(
        f"The file {path} {why}: nothing in it is started.",
        f"Review it, and trust it: {verb_in(home, 'trust', str(path))}.",
        where,
        untrusted=True,
    )
