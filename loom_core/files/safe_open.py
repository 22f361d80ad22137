"""Opening a file without being led anywhere else, and without waiting for a pipe."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OutsideError", "open_regular", "real_path_of", "resolves_within"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
_DESCRIPTORS = Path("/proc/self/fd")


class OutsideError(PermissionError):
    """A path leads out of the folders that may be read."""


def open_regular(path: Path, *, roots: Sequence[Path] = ()) -> BinaryIO:
    """Open a regular file for reading.

    A folder, pipe, socket or device is not opened at all: opening alone may block or set off something.

    Args:
        path: the file. A symbolic link is followed where there are no roots.
        roots: real paths of folders; where given, the file that was opened must be below one of them. What
            counts is where the open file is, as links may be put in its way after any check of the path.

    Raises:
        OutsideError: it is not below the roots.
        OSError: it is no regular file (`EINVAL`), or cannot be opened.
        ValueError: no file can have this path.
    """
    status = path.lstat() if roots else path.stat()
    if roots and stat.S_ISLNK(status.st_mode):
        raise OutsideError(errno.EPERM, "it is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    descriptor = os.open(path, _FLAGS | (getattr(os, "O_NOFOLLOW", 0) if roots else 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if roots and not _is_within(real_path_of(descriptor, path), roots):
            raise OutsideError(errno.EPERM, "it is outside the folders that may be read")
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")  # noqa: PTH123 - a descriptor, not a path


def resolves_within(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a path leads to one of some folders or below one now, whether anything is there or not."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return False
    return _is_within(real, roots)


def _is_within(real: Path, roots: Sequence[Path]) -> bool:
    return any(real.is_relative_to(root) for root in roots)


def real_path_of(descriptor: int, path: Path) -> Path:
    """The real path of an open file or folder, whatever has become of the path it was opened by.

    Raises:
        OSError: that cannot be told, or it was exchanged while it was opened.
    """
    with suppress(OSError):
        return (_DESCRIPTORS / str(descriptor)).readlink()
    if sys.platform == "darwin":
        import fcntl

        found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return Path(os.fsdecode(found.rstrip(b"\0")))
    # Without such a question: where the path leads now, if that is this very file.
    real = path.resolve(strict=True)
    if not os.path.samestat(os.fstat(descriptor), real.lstat()):
        raise OutsideError(errno.EPERM, "it was exchanged while it was opened")
    return real
