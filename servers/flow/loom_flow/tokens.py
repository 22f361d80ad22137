"""The command `token`: who may use the server over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.flow.config import read_flow_file
from loom_core.paths import token_path
from loom_core.server.command_line import show_report
from loom_core.server.token_command import run_token_command
from loom_core.server.tokens import TokenFile
from loom_flow.cli import PROGRAM

if TYPE_CHECKING:
    import argparse

    from loom_flow.settings import Settings

__all__ = ["token"]


def token(args: argparse.Namespace, settings: Settings) -> int:
    """Make, list or revoke tokens; returns the exit code.

    Raises:
        LoomError: as `run_token_command`; or the configuration cannot be read, for a token that is bound to
            flows.
    """
    report = run_token_command(args, TokenFile(token_path(settings.home, PROGRAM)))
    missing: list[str] = []
    if args.token_sources:
        file = read_flow_file(settings.config).file
        missing = [name for name in args.token_sources if file.flow(name) is None]
    notes = [*report.notes, *(f"There is no flow {name!r} yet." for name in missing)]
    show_report(replace(report, notes=notes), as_json=args.json)
    return 0
