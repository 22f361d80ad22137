"""Start loom-flow-server for an MCP bundle host, with the configured file and model."""

from __future__ import annotations

import sys

from loom_flow.cli import run

from loom_core.server.cli.command_line import bundle_line

if __name__ == "__main__":
    sys.exit(run(bundle_line(sys.argv[1:], options=["--config", "--provider"])))
