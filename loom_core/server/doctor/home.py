"""Loom's folder: whether it can be written, and has room."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from loom_core.server.cli.health import Finding, Section, fine, problem

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["home_section"]

_LITTLE_DISK = 500 << 20  # bytes; an ingest that fills the disk stops there


def home_section(home: Path, *, needed: int = _LITTLE_DISK) -> Section:
    """Look at the folder, or at what it would be made in. Blocks, and writes nothing.

    Args:
        home: Loom's folder, which need not exist.
        needed: bytes that have to be free.
    """
    nearest = next(path for path in (home, *home.parents) if _exists(path))
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    free = shutil.disk_usage(nearest).free
    facts = {"folder": str(home), "exists": _exists(home), "writable": writable, "free_MiB": free >> 20}
    return Section(name="home", facts=facts, findings=_findings(nearest, writable, free, needed))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # of a folder that this user may not look into
        return False


def _findings(nearest: Path, writable: bool, free: int, needed: int) -> list[Finding]:
    findings: list[Finding] = []
    if not nearest.is_dir():
        message = f"{nearest} is a file where a folder has to be."
        findings.append(problem("home-unwritable", message, "Move it away, or choose another with --home."))
    elif not writable:
        message = f"Nothing can be kept there: this user may not write to {nearest}."
        remedy = "Make it writable for this user, or choose another folder with --home or LOOM_HOME."
        findings.append(problem("home-unwritable", message, remedy))
    if free < needed:
        message = f"Only {free >> 20:,} MiB are free on its disk, and {needed >> 20:,} should be."
        remedy = "Free some space, or choose a folder on another disk with --home or LOOM_HOME."
        findings.append(problem("disk-full", message, remedy))
    return findings or [fine("home", "It can be written, and there is room.")]
