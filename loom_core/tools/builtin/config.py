"""Configuration of the built-in tools."""

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
    """Configuration of the file tools.

    Attributes:
        root: the folder whose files the tools see; nothing outside of it.
        write: whether they may also create and change files there.
    """

    root: Path
    write: bool = False


class HttpToolsConfig(_Config):
    """Configuration of the HTTP tools; see `HttpAccess`.

    Attributes:
        write: whether there is also `http_request`, which can change things.
        only: the only allowed hosts.
        allow: hosts and networks that are allowed although they are not on the open internet.
        headers: further headers for a host, such as
            `{"api.example.com": {"Authorization": "Bearer env:TOKEN"}}`; or `keyring:TOKEN`.
        seconds: timeout of one request.
    """

    write: bool = False
    only: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    headers: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]], repr=False)
    seconds: float = Field(default=30.0, gt=0, le=600)

    def access(self) -> HttpAccess:
        """Return the network access of the tools."""
        return HttpAccess(self.only, self.allow, self.headers, seconds=self.seconds)


class ShellToolConfig(_Config):
    """Configuration of the shell tool. It exists only if `enabled`, and each call needs approval.

    Attributes:
        enabled: whether the tool exists; each call of it needs approval.
        root: the working folder of commands.
        seconds: default timeout of a command.
        output_bytes: maximum bytes of output that are kept.
        environment: variables of commands, in addition to those that programs need to run at all.
    """

    root: Path
    enabled: bool = False
    seconds: float = Field(default=60.0, gt=0, le=600)
    output_bytes: int = Field(default=200_000, ge=1000, le=10_000_000)
    environment: dict[str, str] = Field(default_factory=dict[str, str], repr=False)


class BuiltinToolsConfig(_Config):
    """Built-in tools of an agent; none by default.

    Attributes:
        files: the file tools; None for none.
        http: the HTTP tools; None for none.
        shell: the shell tool; None for none.
    """

    files: FileToolsConfig | None = None
    http: HttpToolsConfig | None = None
    shell: ShellToolConfig | None = None


def builtin_tools(config: BuiltinToolsConfig, *, folder: Path | None = None) -> tuple[Tool, ...]:
    """Create the configured tools. Blocks for a moment.

    Args:
        config: the configuration.
        folder: base of its relative paths; by default the working folder.

    Raises:
        ConfigError: a folder does not exist, a host is invalid, or this system cannot run commands.
    """
    base = folder or Path.cwd()
    tools: list[Tool] = []
    if config.files is not None:
        root = FileRoot(base / config.files.root.expanduser())
        tools += [read_file_tool(root), list_files_tool(root), search_files_tool(root)]
        if config.files.write:
            tools += [write_file_tool(root), edit_file_tool(root)]
    if config.http is not None:
        access = config.http.access()
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
