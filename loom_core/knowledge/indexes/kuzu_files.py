"""The files of a Kùzu database: the engine keeps up to four, and they live and die together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from loom_core.errors import StoreBusyError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["claim", "kuzu_files", "release", "remove_kuzu_files", "snapshot_path"]

_SUFFIXES = ("", ".wal", ".shadow", ".tmp")

_claimed: set[Path] = set()
_claiming = threading.Lock()


def claim(path: Path) -> None:
    """Note that this process has the database open; undone by `release`.

    The engine allows a second opening in the same process, and closing that drops the lock of the first.

    Raises:
        StoreBusyError: it is open already.
    """
    with _claiming:
        if path.resolve() in _claimed:
            raise StoreBusyError(
                f"The graph at {path} is open in this process already.",
                advice="Use that one, or close it first.",
            )
        _claimed.add(path.resolve())


def release(path: Path) -> None:
    """Note that the database is closed."""
    with _claiming:
        _claimed.discard(path.resolve())


def kuzu_files(path: Path) -> list[Path]:
    """All the files that a database at `path` may have, itself first, its log second."""
    return [path.with_name(path.name + suffix) for suffix in _SUFFIXES]


def snapshot_path(path: Path) -> Path:
    """Where the copy for read-only Cypher lies."""
    return path.with_name(path.name + ".snapshot")


def remove_kuzu_files(path: Path) -> None:
    """Delete a closed database and its snapshot.

    All together: a log that is left behind would be replayed onto the next database of that name.
    """
    for file in (*kuzu_files(path), *kuzu_files(snapshot_path(path))):
        file.unlink(missing_ok=True)
