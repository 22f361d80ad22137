"""Checks of a store's file without opening it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

from loom_core.errors import StoreError
from loom_core.knowledge.store.changes import IndexName

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe_problem", "is_emptied", "require_accessible", "require_usable"]


def describe_problem(path: Path) -> str:
    """Return why a file cannot be a store; empty if it can, or does not exist."""
    if reason := _describe_access_problem(path):
        return reason
    return f"{path.name} is empty, but there are indexes made from it" if is_emptied(path) else ""


def is_emptied(path: Path) -> bool:
    """Whether a store has lost all its content.

    An empty file is a store that is being created, unless there are indexes next to it, as these are made
    from a store with content.
    """
    if not path.is_file() or path.stat().st_size:
        return False
    return any(any(path.parent.glob(f"{name}-*")) for name in get_args(IndexName))


def require_accessible(path: Path) -> None:
    """Raise if a store's file cannot be opened, whatever its content.

    Raises:
        StoreError: it is not a regular file, or it or its folder is not writable (SQLite needs that even to
            read).
    """
    if reason := _describe_access_problem(path):
        raise StoreError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice="Put the file back, or make it and its folder writable; --home chooses another place.",
        )


def require_usable(path: Path) -> None:
    """Raise if a file cannot be a store.

    Raises:
        StoreError: it cannot be opened, or the store has lost its content.
    """
    require_accessible(path)
    if reason := describe_problem(path):
        raise StoreError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice=f"Put a copy of {path.name} back if there is one; `loom-kb check --repair` starts over.",
        )


def _describe_access_problem(path: Path) -> str:
    if not path.exists():
        return ""
    if not path.is_file():  # opening a pipe would block
        return f"{path.name} is not a file"
    if not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
        return f"this user may not write to {path.parent}"
    return ""
