"""The command `loom-flow-server`."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - no installer looks where the sources are on the path
    sys.exit(
        "loom-flow-server needs Python 3.11 or newer, and this is"
        f" {'.'.join(map(str, sys.version_info[:2]))}.\n"
        "  Install it with another Python: uv tool install --python 3.12 loom-flow-server"
    )

from loom_flow.cli import run

__all__ = ["main"]


def main() -> None:
    """Run the command with the process's arguments."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
