"""Starts loom-kb for a host that runs this bundle. Its arguments are the folders that the user has chosen."""

from __future__ import annotations

import sys

from loom_kb.cli import run

if __name__ == "__main__":
    # Where no folder is chosen, a host may leave the reference to them as it is.
    chosen = [folder for folder in sys.argv[1:] if folder and not folder.startswith("${user_config.")]
    sys.exit(run(["serve", *(part for folder in chosen for part in ("--root", folder))]))
