"""Starts loom-flow-server for a host that runs this bundle; it is given the file and the model."""

from __future__ import annotations

import sys

from loom_flow.cli import run

from loom_core.server.cli.command_line import bundle_line

if __name__ == "__main__":
    sys.exit(run(bundle_line(sys.argv[1:], options=["--config", "--provider"])))
