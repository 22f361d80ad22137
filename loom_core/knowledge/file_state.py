"""What tells whether a file is still what it was when it was read."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.files.opening import open_regular

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["NO_TIME", "FileState", "read_state"]

NO_TIME = -1
"""In place of the time of a change after which the file may have changed again without a trace."""

_GRAIN_NS = 2_000_000_000  # FAT counts seconds in twos; others are finer
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment.

    Attributes:
        size: in bytes.
        mtime_ns: time of its last change in nanoseconds since 1970, or `NO_TIME`.
        ctime_ns: time of the last change of its inode (of its making on Windows), which no program can set.
        content: SHA-256 of its bytes.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    content: bytes

    def is_untouched(self, *, size: int, mtime_ns: int, ctime_ns: int) -> bool:
        """Whether a file that looks like this now is sure to hold what it held then, without reading it."""
        return (self.size, self.mtime_ns, self.ctime_ns) == (size, mtime_ns, ctime_ns)


def read_state(path: Path, *, max_bytes: int, roots: Sequence[Path] = ()) -> FileState | None:
    """Read a file and say what it is like. Blocks.

    A file that changed within the last two seconds may change again with the same time, as clocks of file
    systems are coarse; its time counts for nothing (Git calls such a file racily clean).

    Args:
        path: a regular file.
        max_bytes: a larger file is not read.
        roots: where given, a file outside them is not read, see `open_regular`.

    Returns:
        Its state, or None if it is too large, or changed while it was read.

    Raises:
        OSError: it is gone, no regular file, or cannot be read.
        ValueError: no file can have this path.
    """
    began = time.time_ns()
    with open_regular(path, roots=roots) as file:
        before = os.fstat(file.fileno())
        if before.st_size > max_bytes:
            return None
        digest, size = hashlib.sha256(), 0
        while size <= before.st_size and (block := file.read(_BLOCK)):
            digest.update(block)
            size += len(block)
        after = os.fstat(file.fileno())
    if size != before.st_size or _times(before) != _times(after):
        return None
    racy = max(_times(before)) > began - _GRAIN_NS
    return FileState(size, NO_TIME if racy else before.st_mtime_ns, before.st_ctime_ns, digest.digest())


def _times(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns
