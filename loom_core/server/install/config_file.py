"""Configuration file of another program: read, backup and atomic replacement."""

from __future__ import annotations

import codecs
import os
import re
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loom_core.errors import ConfigError, StoreBusyError

__all__ = ["ConfigFile"]

_BACKUP = ".loom.bak"  # a name that only Loom uses: backups are found and deleted by it
_NEWEST = 3
"""Number of the newest backups to keep; the oldest one, the file before Loom, is kept as well."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file as it was read.

    Attributes:
        path: its path.
        real: the file itself, if `path` is a link.
        raw: its bytes; None if there is none.
    """

    path: Path
    real: Path
    raw: bytes | None

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read a file, if it is there.

        Raises:
            ConfigError: it cannot be read.
        """
        real = Path(os.path.realpath(path))
        return cls(path, real, _bytes_of(real))

    @property
    def text(self) -> str:
        """Content of the file, without a byte order mark, with its own line ends.

        Raises:
            ConfigError: it is not UTF-8.
        """
        try:
            return (self.raw or b"").removeprefix(codecs.BOM_UTF8).decode("utf-8")
        except UnicodeDecodeError as error:
            line = (self.raw or b"").count(b"\n", 0, error.start) + 1
            raise ConfigError(
                f"{self.path}:{line}: this is not UTF-8.",
                advice="Save the file as UTF-8. It was left as it is.",
            ) from None

    def backups(self) -> list[Path]:
        """List the backups that `write` made, the newest first."""
        return [path for *_, path in reversed(_backups_of(self.real))]

    def write(self, text: str) -> Path | None:
        """Replace the file's text atomically. Mode, owner, link and byte order mark stay.

        Returns:
            The backup of the previous file, next to it; None if there was no file.

        Raises:
            ConfigError: it cannot be written.
            StoreBusyError: another program has changed it since it was read. It was left as it is.
        """
        mark = codecs.BOM_UTF8 if (self.raw or b"").startswith(codecs.BOM_UTF8) else b""
        try:
            raw = mark + text.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(
                "A path or a name is not valid Unicode, so it cannot be written to a configuration file.",
                advice="Rename it.",
            ) from None
        with self._writing():
            self.real.parent.mkdir(parents=True, exist_ok=True)
            backup = None if self.raw is None else self._back_up(self.raw)
            try:
                self._replace(self.real, raw)
            except BaseException:
                if backup is not None:
                    backup.unlink(missing_ok=True)
                raise
            for old in self.backups()[_NEWEST:-1]:
                with suppress(OSError):
                    old.unlink()
        return backup

    def remove(self, *, within: Path) -> None:
        """Delete the file, and the folders that are empty then, up to one that stays.

        Args:
            within: the folder that stays.

        Raises:
            ConfigError: it cannot be deleted.
            StoreBusyError: another process has changed it since it was read. It was left as it is.
        """
        with self._writing():
            self._check_unchanged()
            self.real.unlink()
        for folder in self.real.parents:
            if folder == within or not folder.is_relative_to(within):
                break
            try:
                folder.rmdir()
            except OSError:  # something else is in it
                break

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror or error}.",
                advice=(
                    "Check the permissions of the file and its folder, or paste what `install --print` shows."
                ),
            ) from None

    def _check_unchanged(self) -> None:
        if _bytes_of(self.real) != self.raw:
            raise StoreBusyError(
                f"{self.path} was changed by another program just now. It was left as it is.",
                advice="Run the command again.",
            )

    def _replace(self, path: Path, raw: bytes) -> None:
        """Write the file or a backup of it, as a whole: a process may be killed, and the disk may be full."""
        temporary = self.real.with_name(f".{self.real.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)  # of a killed process: in a container, each has the same number
        try:
            self._write_temporary(temporary, raw)
            self._check_unchanged()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _write_temporary(self, temporary: Path, raw: bytes) -> None:
        was = None if self.raw is None else self.real.stat()
        # A new file gets what is usual for this user. One that is private is so from its first byte on.
        mode = 0o666 if was is None else stat.S_IMODE(was.st_mode) & 0o600
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        if was is None:
            return
        if hasattr(os, "chown"):
            with suppress(PermissionError):
                os.chown(temporary, was.st_uid, was.st_gid)
        temporary.chmod(stat.S_IMODE(was.st_mode))

    def _back_up(self, raw: bytes) -> Path:
        """Write a copy of the file, under a name that sorts last, even where the clock was set back."""
        now, number = time.strftime("%Y%m%d-%H%M%S"), 0
        for moment, last, _ in _backups_of(self.real)[-1:]:
            if moment >= now:
                now, number = moment, last + 1
        backup = self.real.with_name(f"{self.real.name}.{now}{f'-{number}' if number else ''}{_BACKUP}")
        self._replace(backup, raw)
        return backup


def _backups_of(file: Path) -> list[tuple[str, int, Path]]:
    """List the backups of a file, the oldest first: time, number within it, and path."""
    name = re.compile(re.escape(file.name) + r"\.(\d{8}-\d{6})(?:-(\d+))?" + re.escape(_BACKUP), re.ASCII)
    found: list[tuple[str, int, Path]] = []
    try:
        listed = list(file.parent.iterdir())
    except OSError:  # there is no such folder, or it may not be listed
        listed = []
    for path in listed:
        match = name.fullmatch(path.name)
        if match and path.is_file() and not path.is_symlink():
            found.append((match[1], int(match[2] or 0), path))
    return sorted(found)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}.",
            advice="Check that you have permission to read it.",
        ) from None
