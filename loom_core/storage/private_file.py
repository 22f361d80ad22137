"""Private file: a small shared file, written atomically, readable by its owner only."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["PrivateFile", "replace_private_file"]

_LOOK_SECONDS = 0.02
_Seen = tuple[int, int, int]


@dataclass(slots=True)
class _Draft:
    """Draft of the new content: `raw`, to be changed in the block of `PrivateFile.writing`."""

    raw: bytes | None


class PrivateFile:
    """A cached file with atomic writes, one writing process at a time.

    Args:
        path: the file; neither it nor its folder need exist.
        title: its title for messages, such as `The file of tokens`.
        lock_seconds: timeout in seconds for another writing process.
    """

    def __init__(self, path: Path, *, title: str, lock_seconds: float = 5.0) -> None:
        self.path = path
        self._lock_seconds = lock_seconds
        self._title = title
        self._seen: _Seen | None = None
        self._raw: bytes | None = None

    def read(self) -> bytes | None:
        """Return the content; None if there is no such file. Blocks; a file that has not changed is not read.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            state = self.path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self._seen:
                self._raw = self.path.read_bytes()
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._raw = None, None
        except OSError as error:
            raise ConfigError(
                f"{self._title} {self.path} cannot be read: {error.strerror or error}.",
                advice="Check that you have permission to read it.",
            ) from error
        return self._raw

    @contextmanager
    def writing(self) -> Generator[_Draft]:
        """Yield the content as `raw`, to be changed in the block. Blocks, also while another process writes.

        It is written after the block, if it has changed and the block raises nothing.

        Raises:
            ConfigError: it cannot be read or written.
            StoreBusyError: another process holds it for too long.
        """
        lock = ProcessLock(self.path.with_suffix(".lock"))
        self._acquire(lock)
        try:
            self._seen = None  # the file may be written twice within a clock tick
            draft = _Draft(self.read())
            yield draft
            if draft.raw is not None and draft.raw != self._raw:
                self._write(draft.raw)
        finally:
            lock.release()

    def _acquire(self, lock: ProcessLock) -> None:
        deadline = time.monotonic() + self._lock_seconds
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not lock.acquire():
                if time.monotonic() > deadline:
                    raise StoreBusyError(
                        f"Another process is writing {self.path}.", advice="Try again in a moment."
                    )
                time.sleep(_LOOK_SECONDS)
        except OSError as error:
            raise self._unwritable(error) from error

    def _write(self, raw: bytes) -> None:
        try:
            replace_private_file(self.path, raw)
        except OSError as error:
            raise self._unwritable(error) from error
        self._seen = None

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._title} {self.path} cannot be written: {error.strerror or error}.",
            advice="Check the permissions of the folder, or choose another with --home.",
        )


def replace_private_file(path: Path, raw: bytes) -> None:
    """Write a file atomically, readable by its owner only; concurrent readers get the old content. Blocks.

    Args:
        path: the file; its folder exists, and no other thread of this process writes it.
        raw: the new content.

    Raises:
        OSError: it cannot be written, and is unchanged.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
