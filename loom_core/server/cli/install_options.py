"""The options of the commands `install` and `uninstall`, the same for every server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Literal, get_args

__all__ = ["CLIENT_IDS", "ClientId", "add_install_options", "add_uninstall_options", "split_arguments"]

ClientId = Literal[
    "claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini-cli", "goose", "zed", "windsurf"
]

CLIENT_IDS: tuple[ClientId, ...] = get_args(ClientId)


def add_install_options(command: argparse.ArgumentParser, *, program: str) -> None:
    """Give a command the options of `install`, of a server with this command."""
    _add_client(command, optional=True)
    _add_place(command, program=program)
    command.add_argument(
        "--print", action="store_true", dest="print_only", help="show what to paste, and change no file"
    )
    command.usage = f"{program} install [CLIENT] [options] [-- options of {program} serve]"
    command.epilog = (
        f"What stands after -- is given to `{program} serve` whenever the client starts it. A second run with"
        " other options changes the entry."
    )


def add_uninstall_options(command: argparse.ArgumentParser, *, program: str) -> None:
    """Give a command the options of `uninstall`, of a server with this command."""
    _add_client(command, optional=False)
    _add_place(command, program=program)
    command.add_argument(
        "--force", action="store_true", help="remove the entry even if it holds what `install` does not write"
    )


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line in two: what is for `install`, and what stands after `--`."""
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def _add_client(command: argparse.ArgumentParser, *, optional: bool) -> None:
    command.add_argument(
        "client",
        choices=CLIENT_IDS,
        nargs="?" if optional else None,
        metavar="CLIENT",
        help=f"one of {', '.join(CLIENT_IDS)}",
    )


def _add_place(command: argparse.ArgumentParser, *, program: str) -> None:
    command.add_argument(
        "--scope",
        choices=["user", "project"],
        default="user",
        help="everywhere (the default), or in the project in the current folder",
    )
    command.add_argument(
        "--name",
        default=program,
        metavar="NAME",
        help=f"what the client calls the server (default {program})",
    )
    command.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
