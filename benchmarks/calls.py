"""Common parts of `client.py calls` and `server.py calls`: options, eras, cost of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loom_core.server.cli.command_line import Commands

__all__ = ["MODES", "Taken", "add_calls"]

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
"""The SDK client's names of the protocol's eras."""


class Taken(NamedTuple):
    """Cost of an operation: wall time and processor time."""

    waited: float
    worked: float


def add_calls(commands: Commands) -> None:
    """Declare `calls`."""
    calls = commands.add_parser("calls", help="against the bare SDK")
    calls.add_argument("--calls", type=int, default=200, metavar="N", help="in a round")
    calls.add_argument("--rounds", type=int, default=15)
    calls.add_argument("--era", choices=sorted(MODES), default="modern")
