"""Start loom-query-server for a host that runs this bundle; its argument, if any, is the configuration."""

from __future__ import annotations

import sys

from loom_query.cli import run

from loom_core.server.cli.command_line import bundle_line

if __name__ == "__main__":
    sys.exit(run(bundle_line(sys.argv[1:], options=["--config"])))
