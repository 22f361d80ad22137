"""The command `loom-flow-server`."""

from __future__ import annotations

import sys

from loom_core.python_version import require_python

__all__ = ["main"]


def main() -> None:
    """Run the command with the process's arguments."""
    require_python("loom-flow-server")
    from loom_flow.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
