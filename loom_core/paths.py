"""Where Loom keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["audit_path", "loom_home", "token_path"]


def loom_home(override: Path | None = None) -> Path:
    """The folder of everything Loom keeps: the one given, `$LOOM_HOME`, or `~/.loom`."""
    if override is not None:
        return override.expanduser().absolute()
    configured = os.environ.get("LOOM_HOME", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".loom"


def audit_path(home: Path) -> Path:
    """Where the audit of all servers is: one file, so that one chain tells what happened in which order."""
    return home / "audit" / "audit.jsonl"


def token_path(home: Path, server: str) -> Path:
    """Where the tokens of a server are: each server has its own, so that one opens no other."""
    return home / "tokens" / f"{server}.json"
