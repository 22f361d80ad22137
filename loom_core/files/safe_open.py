"""Safe opening of files: no link traversal, no blocking on pipes."""

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
    """A path leads out of the allowed folders."""


def open_regular(path: Path, *, roots: Sequence[Path] = ()) -> BinaryIO:
    """Open a regular file for reading.

    Folders, pipes, sockets and devices are never opened: opening alone may block or have effects.

    Args:
        path: the file. A symbolic link is followed only without roots.
        roots: real paths of folders; the opened file must be below one of them. The check uses the real path
            of the open file, as links may change after any check of the path.

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
    """Return whether a path resolves to one of the folders or below; it need not exist."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return False
    return _is_within(real, roots)


def _is_within(real: Path, roots: Sequence[Path]) -> bool:
    return any(real.is_relative_to(root) for root in roots)


def real_path_of(descriptor: int, path: Path) -> Path:
    """Return the real path of an open file or folder, even if the original path has changed.

    Raises:
        OSError: the path is unknown, or the file was replaced during opening.
    """
    with suppress(OSError):
        return (_DESCRIPTORS / str(descriptor)).readlink()
    if sys.platform == "darwin":
        import fcntl

        found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return Path(os.fsdecode(found.rstrip(b"\0")))
    # Without such a system call: the path's current target, if that is the same file.
    real = path.resolve(strict=True)
    if not os.path.samestat(os.fstat(descriptor), real.lstat()):
        raise OutsideError(errno.EPERM, "it was replaced while it was opened")
    return real
