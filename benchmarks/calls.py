"""What `client.py calls` and `server.py calls` have in common: their options, the eras, what a call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loom_core.server.cli.command_line import Commands

__all__ = ["MODES", "Taken", "add_calls"]

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
"""What the SDK's client calls the eras of the protocol."""


class Taken(NamedTuple):
    """What something takes: until it is done, and of the processors."""

    waited: float
    worked: float


def add_calls(commands: Commands) -> None:
    """Declare `calls`."""
    calls = commands.add_parser("calls", help="against the bare SDK")
    calls.add_argument("--calls", type=int, default=200, metavar="N", help="in a round")
    calls.add_argument("--rounds", type=int, default=15)
    calls.add_argument("--era", choices=sorted(MODES), default="modern")
