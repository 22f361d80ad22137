"""The commands that are not servers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.server.cli.database_option import move_journal, move_target

if TYPE_CHECKING:
    import argparse

    from loom_flow.settings import Settings

__all__ = ["run_command"]


def run_command(args: argparse.Namespace, settings: Settings) -> int:
    """Run a parsed command, and return the exit code."""
    from loom_flow.command_line.config_commands import CONFIG_COMMANDS

    if args.command in CONFIG_COMMANDS:
        return CONFIG_COMMANDS[args.command](args, settings)
    if args.command == "move":
        target = replace(settings, database=move_target(args.to)).journal
        return move_journal(settings.journal, target, as_json=args.json)
    from loom_flow.command_line.run_commands import run_with_service

    return run_with_service(args, settings)
