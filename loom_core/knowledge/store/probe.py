"""Whether what lies in the place of a record can be one, told without opening it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

from loom_core.errors import RecordError
from loom_core.knowledge.store.changes import IndexName

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe_problem", "is_emptied", "require_accessible", "require_usable"]


def describe_problem(path: Path) -> str:
    """Why what lies in the place of a record cannot be one; empty where it can, or where there is none."""
    if reason := _describe_access_problem(path):
        return reason
    return f"{path.name} is empty, but there are indexes made from it" if is_emptied(path) else ""


def is_emptied(path: Path) -> bool:
    """Whether a record has lost all its content.

    A file of no length is a record that is only being made, unless there are indexes next to it: these are
    made from a record.
    """
    if not path.is_file() or path.stat().st_size:
        return False
    return any(any(path.parent.glob(f"{name}-*")) for name in get_args(IndexName))


def require_accessible(path: Path) -> None:
    """See that a record's file can be opened, whatever is in it.

    Raises:
        RecordError: there is something else in its place, or its folder cannot be written, which SQLite needs
            to read, too.
    """
    if reason := _describe_access_problem(path):
        raise RecordError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice="Put the file back, or make it and its folder writable; --home chooses another place.",
        )


def require_usable(path: Path) -> None:
    """See that nothing but a record lies in the place of one.

    Raises:
        RecordError: something does, or the record has lost its content.
    """
    require_accessible(path)
    if reason := describe_problem(path):
        raise RecordError(
            f"The knowledge base at {path.parent} cannot be opened: {reason}.",
            advice=f"Put a copy of {path.name} back if there is one; `loom-kb check --repair` starts over.",
        )


def _describe_access_problem(path: Path) -> str:
    if not path.exists():
        return ""
    if not path.is_file():  # opening a pipe would wait for ever
        return f"{path.name} is not a file"
    if not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
        return f"this user may not write to {path.parent}"
    return ""
