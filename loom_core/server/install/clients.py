"""MCP clients: paths of their configuration, and the form of an entry.

Source: the page that each row names, read in November 2026.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from loom_core.server.cli.standard_commands import ClientId
from loom_core.server.install.json_text import JsonText
from loom_core.server.install.launch import InstalledServer
from loom_core.server.install.text_format import TextFormat
from loom_core.server.install.toml_text import TomlText
from loom_core.server.install.yaml_text import YamlText

__all__ = ["CLIENTS", "Client", "Machine", "Platform", "Scope"]

Scope = Literal["user", "project"]
_ANY_NAME = re.compile(r"[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]{0,62}[^\x00-\x20\x7f])?")
_ASCII_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOWER_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_MCP_SERVERS = "mcpServers"

Platform = Literal["linux", "macos", "windows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that starts MCP servers.

    Attributes:
        id: its id on the command line.
        title: its display name.
        format: text format of its configuration.
        section: key of the servers in it.
        user_file: path of the user's configuration.
        project_file: path of a project's configuration, relative to its folder; empty if there is none.
        typed: whether an entry says `"type": "stdio"`.
        reference: syntax of a reference to an environment variable, with `{}` for the name; empty if the
            client supports none.
        keys: keys of an entry's command, arguments, and list of variables that are passed on; the last one is
            empty if the client has no such list.
        fixed: further members of an entry.
        names: valid names of a server.
        afterwards: what to do so that a change takes effect.
        source: the page that documents this.
    """

    id: ClientId
    title: str
    format: TextFormat
    section: str
    user_file: Callable[[Machine], PurePath]
    project_file: tuple[str, ...] = ()
    typed: bool = False
    reference: str = ""
    keys: tuple[str, str, str] = ("command", "args", "")
    fixed: Callable[[InstalledServer], Mapping[str, Any]] = lambda _server: {}
    names: re.Pattern[str] = _ANY_NAME
    afterwards: str
    source: str

    def file(self, machine: Machine, scope: Scope) -> PurePath | None:
        """Return the path of a scope's configuration; None if the client has none."""
        if scope == "user":
            return self.user_file(machine)
        return machine.project.joinpath(*self.project_file) if self.project_file else None

    def entry(self, server: InstalledServer) -> dict[str, Any]:
        """Return a server's entry in the configuration. It holds no secret."""
        command, arguments, variables = self.keys
        entry: dict[str, Any] = dict(self.fixed(server))
        if self.typed:
            entry["type"] = "stdio"
        entry[command] = server.command
        entry[arguments] = list(server.arguments)
        if server.variables and variables:
            entry[variables] = list(server.variables)
        elif server.variables and self.reference:
            entry["env"] = {name: self.reference.format(name) for name in server.variables}
        return entry

    @property
    def supports_references(self) -> bool:
        """Whether an entry can name environment variables to pass on."""
        return bool(self.reference or self.keys[2])


def _goose(server: InstalledServer) -> Mapping[str, Any]:
    return {
        "enabled": True,
        "type": "stdio",
        "name": server.name,
        "description": server.description,
        "timeout": 300,
    }


_ROWS = (
    Client(
        id="claude-desktop",
        title="Claude Desktop",
        format=JsonText(comments=False),
        section=_MCP_SERVERS,
        user_file=lambda machine: machine.settings / "Claude" / "claude_desktop_config.json",
        afterwards="Quit Claude Desktop and start it again.",
        source="https://modelcontextprotocol.io/quickstart/user",
    ),
    Client(
        id="claude-code",
        title="Claude Code",
        format=JsonText(comments=False),
        section=_MCP_SERVERS,
        user_file=lambda machine: machine.folder("CLAUDE_CONFIG_DIR") / ".claude.json",
        project_file=(".mcp.json",),
        typed=True,
        reference="${{{}}}",
        names=_ASCII_NAME,
        afterwards="Start a new session of Claude Code; /mcp shows the server.",
        source="https://code.claude.com/docs/en/mcp",
    ),
    Client(
        id="cursor",
        title="Cursor",
        format=JsonText(comments=True),
        section=_MCP_SERVERS,
        user_file=lambda machine: machine.home / ".cursor" / "mcp.json",
        project_file=(".cursor", "mcp.json"),
        typed=True,
        reference="${{env:{}}}",
        afterwards="Reload Cursor's window, and switch the server on in its settings.",
        source="https://cursor.com/docs/mcp",
    ),
    Client(
        id="vscode",
        title="VS Code",
        format=JsonText(comments=True),
        section="servers",
        user_file=lambda machine: machine.settings / "Code" / "User" / "mcp.json",
        project_file=(".vscode", "mcp.json"),
        typed=True,
        reference="${{env:{}}}",
        afterwards="VS Code asks whether you trust the server; `MCP: List Servers` shows it.",
        source="https://code.visualstudio.com/docs/agents/reference/mcp-configuration",
    ),
    Client(
        id="codex",
        title="Codex",
        format=TomlText(),
        section="mcp_servers",
        user_file=lambda machine: machine.folder("CODEX_HOME", ".codex") / "config.toml",
        project_file=(".codex", "config.toml"),
        keys=("command", "args", "env_vars"),
        names=_ASCII_NAME,
        afterwards="Start a new session of Codex; /mcp shows the server.",
        source="https://github.com/openai/codex/blob/main/codex-rs/config/src/mcp_types.rs",
    ),
    Client(
        id="gemini-cli",
        title="Gemini CLI",
        format=JsonText(comments=True),
        section=_MCP_SERVERS,
        user_file=lambda machine: machine.home / ".gemini" / "settings.json",
        project_file=(".gemini", "settings.json"),
        reference="${{{}}}",
        afterwards="Start Gemini CLI again; /mcp shows the server.",
        source="https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md",
    ),
    Client(
        id="goose",
        title="goose",
        format=YamlText(),
        section="extensions",
        user_file=lambda machine: (
            machine.settings / "Block" / "goose" / "config" / "config.yaml"
            if machine.platform == "windows"
            else machine.dot_config / "goose" / "config.yaml"
        ),
        keys=("cmd", "args", "env_keys"),
        fixed=_goose,
        names=_LOWER_NAME,  # as goose makes names into keys
        afterwards="Start a new session of goose.",
        source="https://github.com/aaif-goose/goose/blob/main/documentation/docs/guides/config-files.md",
    ),
    Client(
        id="zed",
        title="Zed",
        format=JsonText(comments=True),
        section="context_servers",
        user_file=lambda machine: (
            machine.settings / "Zed" / "settings.json"
            if machine.platform == "windows"
            else (machine.home / ".config" if machine.platform == "macos" else machine.dot_config)
            / "zed"
            / "settings.json"
        ),
        project_file=(".zed", "settings.json"),
        afterwards="Zed starts the server at once; the settings of its agent show it.",
        source="https://zed.dev/docs/ai/mcp",
    ),
    Client(
        id="windsurf",
        title="Windsurf",
        format=JsonText(comments=True),
        section=_MCP_SERVERS,
        user_file=lambda machine: machine.home / ".codeium" / "windsurf" / "mcp_config.json",
        reference="${{env:{}}}",
        afterwards="Refresh the MCP servers in Cascade's settings.",
        source="https://docs.windsurf.com/windsurf/cascade/mcp",
    ),
)

CLIENTS: Mapping[str, Client] = {client.id: client for client in _ROWS}
"""All clients by id."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Platform and paths of a user's machine.

    Attributes:
        platform: its operating system.
        home: the user's home folder.
        project: the folder that a configuration of scope `project` is for.
        environment: variables that move folders, such as `XDG_CONFIG_HOME`.
    """

    platform: Platform
    home: PurePath
    project: PurePath
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> Machine:
        """Return this machine, with the current folder as project."""
        known: dict[str, Platform] = {"win32": "windows", "darwin": "macos"}
        return cls(known.get(sys.platform, "linux"), Path.home(), Path.cwd(), os.environ)

    @property
    def settings(self) -> PurePath:
        """Folder of the user's application settings."""
        if self.platform == "windows":
            return self.folder("APPDATA", "AppData", "Roaming")
        if self.platform == "macos":
            return self.home / "Library" / "Application Support"
        return self.dot_config

    @property
    def dot_config(self) -> PurePath:
        """The folder `.config`, which some applications use on macOS, too."""
        return self.folder("XDG_CONFIG_HOME", ".config")

    def folder(self, variable: str, *usual: str) -> PurePath:
        """Return a folder of the user that an environment variable may move."""
        moved = self.environment.get(variable, "")
        return type(self.home)(moved) if moved else self.home.joinpath(*usual)
