"""The command `loom-kb`."""

from __future__ import annotations

import sys

from loom_kb.cli import run

__all__ = ["main"]


def main() -> None:
    """Run the command with the process's arguments."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
