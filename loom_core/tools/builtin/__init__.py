"""Built-in tools: files below a folder, HTTP requests, and, if enabled, shell commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.tools.builtin.config import BuiltinToolsConfig, builtin_tools
    from loom_core.tools.builtin.file_root import FileRoot
    from loom_core.tools.builtin.http_request import HttpAccess, http_get_tool, http_request_tool
    from loom_core.tools.builtin.list_files import list_files_tool
    from loom_core.tools.builtin.read_file import read_file_tool
    from loom_core.tools.builtin.search_files import search_files_tool
    from loom_core.tools.builtin.shell import shell_tool
    from loom_core.tools.builtin.write_file import edit_file_tool, write_file_tool

__all__ = [
    "BuiltinToolsConfig",
    "FileRoot",
    "HttpAccess",
    "builtin_tools",
    "edit_file_tool",
    "http_get_tool",
    "http_request_tool",
    "list_files_tool",
    "read_file_tool",
    "search_files_tool",
    "shell_tool",
    "write_file_tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
