"""The command `token`: who may use the server over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.knowledge.catalogue import Catalogue
from loom_core.paths import loom_home, token_path
from loom_core.server.command_line import show_report
from loom_core.server.token_command import run_token_command
from loom_core.server.tokens import TokenFile

if TYPE_CHECKING:
    import argparse

__all__ = ["token"]


def token(args: argparse.Namespace) -> int:
    """Make, list or revoke tokens; returns the exit code.

    Raises:
        InvalidInputError: a name cannot be what it is to be.
        LoomError: as `run_token_command`.
    """
    home = loom_home(args.home)
    catalogue = Catalogue(home)
    for name in args.token_sources:
        catalogue.folder(name)
    report = run_token_command(args, TokenFile(token_path(home, "loom-kb")))
    known = {entry.name for entry in catalogue.list()}
    missing = [name for name in args.token_sources if name not in known]
    notes = [*report.notes, *(f"There is no knowledge base {name!r} yet." for name in missing)]
    show_report(replace(report, notes=notes), as_json=args.json)
    return 0
