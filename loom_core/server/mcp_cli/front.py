"""The command `mcp` at a terminal."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from loom_core.mcp_client.configuration.command_names import named_by
from loom_core.paths import loom_home
from loom_core.server.cli.command_line import show_report
from loom_core.server.cli.console import agreed, say
from loom_core.server.mcp_cli.command import run_mcp_command
from loom_core.server.mcp_cli.trust import Asking

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Sequence

    from loom_core.server.install.command import Program

__all__ = ["run_mcp"]


def run_mcp(program: Program, args: argparse.Namespace, served: Sequence[str]) -> int:
    """Run a verb of `mcp`; returns the exit code. Blocks.

    Args:
        program: the server whose command this is.
        args: options of `mcp_options.add_mcp_options`.
        served: what stands behind `--`.

    Raises:
        LoomError: as `run_mcp_command`.
    """
    asking = Asking(show=say, agreed=agreed)
    with named_by(program.name), nullcontext() if args.debug else _told_once():
        report = run_mcp_command(program, args, served, home=loom_home(args.home), asking=asking)
    show_report(report, as_json=args.json)
    return report.code


@contextmanager
def _told_once() -> Generator[None]:
    """Keeps what the report tells from being logged at the terminal, too."""
    log = logging.getLogger("loom_core.mcp_client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
