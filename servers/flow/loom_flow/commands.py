"""The commands that are not servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_flow.settings import Settings

__all__ = ["run_command"]


def run_command(args: argparse.Namespace, settings: Settings, served: Sequence[str] = ()) -> int:
    """Run a parsed command; returns the exit code.

    Args:
        args: the command and its options.
        settings: of the process.
        served: what stands behind `--`, for `mcp add`.
    """
    if args.command == "mcp":
        from loom_core.server.mcp_front import run_mcp
        from loom_flow.installing import THIS_PROGRAM

        return run_mcp(THIS_PROGRAM, args, served)
    if args.command == "token":
        from loom_flow.tokens import token

        return token(args, settings)
    if args.command == "doctor":  # it examines what keeps the others from working
        from loom_flow.doctor import doctor

        return anyio.run(doctor, settings, args)
    from loom_flow.config_commands import CONFIG_COMMANDS

    if args.command in CONFIG_COMMANDS:
        return CONFIG_COMMANDS[args.command](args, settings)
    from loom_flow.run_commands import run_with_service

    return run_with_service(args, settings)
