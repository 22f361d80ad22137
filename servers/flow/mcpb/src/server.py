"""Starts loom-flow-server for a host that runs this bundle; it is given the file and the model."""

from __future__ import annotations

import sys

from loom_flow.cli import run

if __name__ == "__main__":
    # What is not chosen, a host may leave as the reference to it, or as an empty text.
    chosen = ["" if given.startswith("${user_config.") else given for given in sys.argv[1:]]
    options = zip(("--config", "--provider"), chosen, strict=False)
    sys.exit(run(["serve", *(part for name, given in options if given for part in (name, given))]))
