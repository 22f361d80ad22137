"""Paths of Loom's files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["audit_path", "loom_home", "token_path"]


def loom_home(override: Path | None = None) -> Path:
    """Return Loom's folder: the given one, `$LOOM_HOME`, or `~/.loom`."""
    if override is not None:
        return override.expanduser().absolute()
    configured = os.environ.get("LOOM_HOME", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".loom"


def audit_path(home: Path) -> Path:
    """Return the path of the audit log: one file and one hash chain for all servers."""
    return home / "audit" / "audit.jsonl"


def token_path(home: Path, server: str) -> Path:
    """Return the path of a server's token file; each server has its own."""
    return home / "tokens" / f"{server}.json"
