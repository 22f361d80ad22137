"""Process lock: the operating system releases it when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["ProcessLock"]

_PID_WIDTH = 20
_TRIES = 10
_LOOK_SECONDS = 0.001


class ProcessLock:
    """Exclusive lock on a file, held by this object until `release` or the end of the process.

    The file's content is the holder's process id, for people; the lock itself is the operating
    system's (`flock`, or `LockFile` on Windows), so that a killed holder leaves nothing behind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> bool:
        """Take the lock if it is free, without waiting for its holder.

        Returns:
            True if this object holds the lock now, also when it did before.

        Raises:
            OSError: the lock file cannot be written (no such folder, read-only file system, full disk).
        """
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        for _ in range(_TRIES):
            if _try_lock(file):
                try:
                    # Of fixed length: ext4 flushes a file that is truncated, which takes milliseconds.
                    os.write(file, f"{os.getpid():<{_PID_WIDTH}}".encode())
                except OSError:  # the disk is full: no process would ever release the lock
                    os.close(file)
                    raise
                self._file = file
                return True
            if _is_locked(file):
                break
            time.sleep(_LOOK_SECONDS)  # another process may only be checking, see `is_held`
        os.close(file)
        return False

    def is_held(self) -> bool:
        """Return whether any process holds the lock, this one included; this blocks no other process."""
        if self._file is not None:
            return True
        try:
            file = os.open(self._path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError:  # no such file, or no permission to lock it
            return False
        try:
            return _is_locked(file)
        finally:
            os.close(file)

    @contextmanager
    def block_acquirers(self) -> Generator[bool]:
        """Hold a shared lock while the guarded data is read; nothing is written.

        Processes that try to acquire the lock in the meantime fail, and retry. On Windows, without shared
        locks, they see this process as the holder.

        Yields:
            Whether the lock is free; if it is held, this blocks no other process.
        """
        try:
            file = os.open(self._path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:  # no process has ever held it
            yield True
            return
        except OSError:  # no permission to lock it
            yield False
            return
        try:
            yield _share_lock(file)
        finally:
            os.close(file)

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> int | None:
        """Return the process id of the last holder, as recorded in the file, or None."""
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        # Byte 2^30 is locked, past the content, so that the process id stays readable.
        os.lseek(file, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

    def _share_lock(file: int) -> bool:
        return _try_lock(file)

    def _is_locked(file: int) -> bool:
        if not _try_lock(file):
            return True
        os.lseek(file, 1 << 30, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
        return False

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _share_lock(file: int) -> bool:
        # Shared, so that checking processes do not see each other as the holder.
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_locked(file: int) -> bool:
        if not _share_lock(file):
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False
