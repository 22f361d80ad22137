"""Which built-in tools there are, as configurations say it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.http_request import HttpAccess, http_get_tool, http_request_tool
from loom_core.tools.builtin.list_files import list_files_tool
from loom_core.tools.builtin.read_file import read_file_tool
from loom_core.tools.builtin.search_files import search_files_tool
from loom_core.tools.builtin.shell import shell_tool
from loom_core.tools.builtin.write_file import edit_file_tool, write_file_tool

if TYPE_CHECKING:
    from loom_core.tools.interface import Tool

__all__ = ["BuiltinToolsConfig", "FileToolsConfig", "HttpToolsConfig", "ShellToolConfig", "builtin_tools"]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileToolsConfig(_Config):
    """The tools for files.

    Attributes:
        root: the folder whose files the tools see; nothing outside of it.
        write: whether they may make and change files there, too.
    """

    root: Path
    write: bool = False


class HttpToolsConfig(_Config):
    """The tools for the web; see `HttpAccess`.

    Attributes:
        write: whether there is `http_request`, which can change things, besides `http_get`.
        only: hosts that may be asked, and no others.
        allow: hosts and networks inside, which may be asked although they are not on the open internet.
        headers: what is sent to a host besides, such as
            `{"api.example.com": {"Authorization": "Bearer env:TOKEN"}}`; or `keyring:TOKEN`.
        seconds: how long one request may take.
    """

    write: bool = False
    only: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    headers: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]], repr=False)
    seconds: float = Field(default=30.0, gt=0, le=600)


class ShellToolConfig(_Config):
    """The tool that runs commands. It is there only where `enabled` says so, and each call is asked about.

    Attributes:
        enabled: whether there is a tool that runs commands; each call of it is asked about.
        root: the folder where commands begin.
        seconds: how long a command may take that asks for nothing else.
        output_bytes: how much of its output is kept.
        environment: variables that commands find besides what programs need to run at all.
    """

    root: Path
    enabled: bool = False
    seconds: float = Field(default=60.0, gt=0, le=600)
    output_bytes: int = Field(default=200_000, ge=1000, le=10_000_000)
    environment: dict[str, str] = Field(default_factory=dict[str, str], repr=False)


class BuiltinToolsConfig(_Config):
    """Which tools of Loom's own an agent has; none by default.

    Attributes:
        files: those for files; None for none.
        http: those for the web; None for none.
        shell: that for commands; None for none.
    """

    files: FileToolsConfig | None = None
    http: HttpToolsConfig | None = None
    shell: ShellToolConfig | None = None


def builtin_tools(config: BuiltinToolsConfig, *, folder: Path | None = None) -> tuple[Tool, ...]:
    """The tools that a configuration asks for. Blocks for a moment.

    Args:
        config: which ones.
        folder: where its relative paths count from; the working folder if not given.

    Raises:
        ConfigError: a folder does not exist, a host is none, or commands cannot be run on this system.
    """
    base = folder or Path.cwd()
    tools: list[Tool] = []
    if config.files is not None:
        root = FileRoot(base / config.files.root.expanduser())
        tools += [read_file_tool(root), list_files_tool(root), search_files_tool(root)]
        if config.files.write:
            tools += [write_file_tool(root), edit_file_tool(root)]
    if config.http is not None:
        access = HttpAccess(
            config.http.only, config.http.allow, config.http.headers, seconds=config.http.seconds
        )
        tools.append(http_get_tool(access))
        if config.http.write:
            tools.append(http_request_tool(access))
    if config.shell is not None and config.shell.enabled:
        tools.append(
            shell_tool(
                base / config.shell.root.expanduser(),
                seconds=config.shell.seconds,
                output_bytes=config.shell.output_bytes,
                environment=config.shell.environment,
            )
        )
    return tuple(tools)
