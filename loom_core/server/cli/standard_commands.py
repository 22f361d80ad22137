"""The commands that every server has, declared; what they do is in `server_program`.

A server has others of its own beside them, and leaves out what makes no sense for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeAlias

from loom_core.server.cli.audit_command import add_audit_options
from loom_core.server.cli.command_line import Commands
from loom_core.server.cli.http_options import add_http_options
from loom_core.server.cli.install_options import add_install_options, add_uninstall_options
from loom_core.server.cli.mcp_options import add_mcp_options
from loom_core.server.cli.token_command import add_token_options

if TYPE_CHECKING:
    from loom_core.server.auth.caller import Scope

__all__ = [
    "Declare",
    "add_audit",
    "add_doctor",
    "add_install",
    "add_mcp",
    "add_profile",
    "add_serve",
    "add_token",
    "program_parser",
]

Declare: TypeAlias = Callable[[str, str], argparse.ArgumentParser]
"""Declares a command by its name and what it does, with the options that all commands of a server have."""


def program_parser(program: str, *, description: str) -> tuple[argparse.ArgumentParser, Commands]:
    """The parser of a server's command line, and where its commands go.

    Args:
        program: the server's command, and the name of its distribution.
        description: what the server does.
    """
    top = argparse.ArgumentParser(prog=program, description=description)
    top.add_argument("--version", action="version", version=f"{program} {version(program)}")
    return top, top.add_subparsers(dest="command", metavar="COMMAND", required=True)


def add_serve(declare: Declare) -> argparse.ArgumentParser:
    """Declare `serve`; gives its parser, for what else a server takes."""
    serve = declare("serve", "serve MCP over stdio (the default), or over HTTP")
    add_http_options(serve)
    return serve


def add_profile(serve: argparse.ArgumentParser) -> None:
    """Let a server that searches be one with the two tools that ChatGPT wants."""
    serve.add_argument(
        "--profile", choices=["full", "chatgpt"], default="full", help="`chatgpt`: exactly search and fetch"
    )


def add_mcp(declare: Declare) -> None:
    """Declare `mcp`, for a server that uses other servers."""
    add_mcp_options(declare("mcp", "list, add, remove, test, trust, approve or import other MCP servers"))


def add_install(declare: Declare, *, program: str) -> argparse.ArgumentParser:
    """Declare `install` and `uninstall`; gives the parser of `install`."""
    install = declare("install", "put this server into the configuration of an MCP client")
    add_install_options(install, program=program)
    uninstall = declare("uninstall", "take this server out of the configuration of an MCP client")
    add_uninstall_options(uninstall, program=program)
    return install


def add_token(
    declare: Declare, *, source_option: str, source: str, key: str = "sources", scope: Scope = "read"
) -> argparse.ArgumentParser:
    """Declare `token`; gives its parser. The arguments are those of `add_token_options`."""
    token = declare("token", "make, list or revoke tokens for `serve --http --tokens`")
    add_token_options(token, source_option=source_option, source=source, key=key, scope=scope)
    return token


def add_audit(declare: Declare) -> None:
    """Declare `audit`."""
    add_audit_options(declare("audit", "show what was done that matters, or see whether that was changed"))


def add_doctor(declare: Declare, *, named: str) -> None:
    """Declare `doctor`.

    Args:
        declare: as for the others.
        named: names of what stand in its answer, such as `sources and folders`.
    """
    doctor = declare("doctor", "look quickly whether anything is wrong, and change nothing")
    doctor.add_argument("--port", type=int, default=8765, help="what `serve --http` would use (default 8765)")
    doctor.epilog = (
        "Exit code 0 if there is no problem (there may be warnings), 1 if there is one. The answer holds no"
        f" key and can be pasted into an issue; names of {named} stand in it."
    )
