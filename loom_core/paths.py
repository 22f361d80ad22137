"""Where Loom keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["loom_home"]


def loom_home(override: Path | None = None) -> Path:
    """The folder of everything Loom keeps: the one given, `$LOOM_HOME`, or `~/.loom`."""
    if override is not None:
        return override.expanduser().absolute()
    configured = os.environ.get("LOOM_HOME", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".loom"
