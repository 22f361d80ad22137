"""The command `token`: who may use the server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.catalogue import Catalogue
from loom_core.paths import loom_home, token_path
from loom_core.server.token_command import run_token_command
from loom_core.server.tokens import TokenFile
from loom_kb.console import out, out_json, say

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
    if args.json:
        out_json(report.data)
    else:
        for line in report.lines:
            out(line)
    known = {entry.name for entry in catalogue.list()}
    missing = [name for name in args.token_sources if name not in known]
    for note in [*report.notes, *(f"There is no knowledge base {name!r} yet." for name in missing)]:
        say(note)
    return 0
