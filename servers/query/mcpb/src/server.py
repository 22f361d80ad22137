"""Starts loom-query-server for a host that runs this bundle; its argument is the configuration, if any."""

from __future__ import annotations

import sys

from loom_query.cli import run

if __name__ == "__main__":
    # Where no file is chosen, a host may leave the reference to it as it is.
    chosen = [file for file in sys.argv[1:] if file and not file.startswith("${user_config.")]
    sys.exit(run(["serve", *(part for file in chosen[:1] for part in ("--config", file))]))
