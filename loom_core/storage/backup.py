"""A copy of a SQLite database beside it, taken before something changes that cannot be taken back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from loom_core.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["back_up"]

_SPARE = 64 << 20  # bytes that what comes after the copy may take


def back_up(path: Path, *, version: int) -> Path:
    """Write what a database has committed to `<name>.v<version>.backup` beside it.

    However it is cut short, that file is whole, or as it was before. An older one is replaced. Call it while
    holding the database's write lock, so that the copy is the last word of that version.

    Args:
        path: the database file.
        version: its format, for the name.

    Returns:
        The copy.

    Raises:
        RecordError: there is no room for it, or it cannot be written.
    """
    copy = path.with_name(f"{path.name}.v{version}.backup")
    partial = copy.with_name(copy.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source:
            _check_room(source, path)
            with closing(sqlite3.connect(partial)) as target:
                # It is flushed whole below, and thrown away if that does not come to pass.
                target.execute("PRAGMA journal_mode=OFF")
                target.execute("PRAGMA synchronous=OFF")
                source.backup(target)
        _flush(partial)
        partial.replace(copy)
        _flush(path.parent)
    except OSError as error:
        raise RecordError(
            f"No copy of {path} can be made before it is changed: {error.strerror}.",
            advice="Make room or the folder writable; nothing was changed.",
        ) from error
    return copy


def _check_room(source: sqlite3.Connection, path: Path) -> None:
    pages, size = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    needed = pages * size + _SPARE
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise RecordError(
            f"{path} is of an older format and has to be copied before it is changed, which takes "
            f"{needed >> 20:,} MiB; {free >> 20:,} are free.",
            advice="Make room on the disk; nothing was changed.",
        )


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be flushed there
    file = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
