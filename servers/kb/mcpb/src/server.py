"""Entry point of the MCP bundle; its arguments are the folders that the user has chosen."""

from __future__ import annotations

import sys
from itertools import repeat

from loom_kb.cli import run

from loom_core.server.cli.command_line import bundle_line

if __name__ == "__main__":
    sys.exit(run(bundle_line(sys.argv[1:], options=repeat("--root"))))
