"""Root folder of the file tools: it prevents path traversal, also by links."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.files.safe_open import OutsideError, open_regular, real_path_of
from loom_core.tools.builtin.walk import display_path

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["FileRoot", "FileState"]

_LONGEST = 4096  # characters of a path
_SHOWN = 200
_MANY = 10_000  # names of a folder that are searched for a suggestion
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_BINARY", 0)
_BY_DESCRIPTOR = os.open in os.supports_dir_fd


@dataclass(frozen=True, slots=True)
class FileState:
    """State of a file, to detect changes since it was read."""

    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Create the state from a stat result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder held open by descriptor, so that a link created later cannot redirect it.

    If the system has no paths relative to a descriptor (Windows), its path is used.
    """

    path: Path
    descriptor: int | None

    def at(self, name: str) -> str:
        return name if self.descriptor is not None else str(self.path / name)

    def status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(self.at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None


class FileRoot:
    """Opens, writes and names files below a folder. Everything here blocks.

    Paths are those of models: relative to the folder, or absolute. Links are followed as long as they stay
    inside. The check uses the place of the opened file or folder, as links may change after any check of the
    path.

    Args:
        folder: a folder that exists.

    Raises:
        ConfigError: it does not.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.folder = folder.expanduser().resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise ConfigError(f"There is no folder {folder}.", advice="Create it, or name another.") from None
        if not self.folder.is_dir():
            raise ConfigError(f"{folder} is not a folder.", advice="Name a folder.")
        self._writing = threading.Lock()

    @classmethod
    def of(cls, folder: FileRoot | Path) -> FileRoot:
        """Return a root as it is, or create one for a folder."""
        return folder if isinstance(folder, FileRoot) else cls(folder)

    def locate(self, path: str) -> Path:
        """Resolve a model's path to a real path, whether it exists or not.

        A name that differs from an existing file's or folder's only in Unicode normalization means that one.

        Raises:
            InvalidInputError: it leads outside, or is no valid path.
        """
        if not path.strip() or "\0" in path or len(path) > _LONGEST:
            raise self._no_path(path)
        if os.name != "nt" and _DRIVE.match(path):
            raise self._outside(path)
        try:
            real = _match_disk_names(self.folder / path).resolve()
        except (
            OSError,
            RuntimeError,
            ValueError,
        ):  # too long, a loop of links, not in the file system's encoding
            raise self._no_path(path) from None
        if not real.is_relative_to(self.folder):
            raise self._outside(path)
        return real

    def name(self, path: Path) -> str:
        """Return a real path relative to the folder, with `/`, for models."""
        return path.relative_to(self.folder).as_posix()

    def read(self, path: str, *, most: int) -> tuple[bytes, FileState]:
        """Read the content of a regular file, and its state.

        Raises:
            NotFoundError: there is none; the message suggests similar names.
            InvalidInputError: it is outside, no regular file, too large, or unreadable.
        """
        real = self.locate(path)
        with self._translate_errors(path, real), open_regular(real, roots=[self.folder]) as file:
            status = os.fstat(file.fileno())
            data = b"" if status.st_size > most else file.read(most + 1)
            if (size := max(status.st_size, len(data))) > most:
                raise InvalidInputError(
                    f"{self.name(real)} is too large: {size:,} bytes or more, of at most {most:,}.",
                    advice="Search in it for what you need.",
                )
            return data, FileState.of(status)

    def write(
        self, path: str, data: bytes, *, replacing: FileState | None = None, exclusive: bool = False
    ) -> bool:
        """Write a file atomically: concurrent readers see the old or the new content.

        Missing folders are created. A replaced file keeps its mode.

        Args:
            path: the file.
            data: its content.
            replacing: the state that the file must still have; None for any.
            exclusive: it must not exist yet.

        Returns:
            Whether the file is new.

        Raises:
            InvalidInputError: the path leads outside or to no regular file, the file exists (`exclusive`) or
                has changed (`replacing`), or is read-only.
        """
        real = self.locate(path)
        if real == self.folder or _INVISIBLE.search(self.name(real)):
            raise self._no_path(path)
        with self._translate_errors(path, real), self._writing, self._open_folder(real.parent) as folder:
            before = folder.status(real.name)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if before is not None and exclusive:
                raise FileExistsError(errno.EEXIST, "it is there already")
            if replacing is not None and (before is None or FileState.of(before) != replacing):
                raise InvalidInputError(
                    f"{self.name(real)} has changed since it was read.",
                    advice="Read it again, then change it.",
                )
            mode = None if before is None else stat.S_IMODE(before.st_mode)
            _replace_atomically(folder, real.name, data, mode, exclusive)
            return before is None

    @contextmanager
    def _open_folder(self, path: Path) -> Generator[_Folder]:
        """Open a folder below this one, and create it if it is missing."""
        if not _BY_DESCRIPTOR:
            path.mkdir(parents=True, exist_ok=True)
            yield _Folder(path, None)
            return
        descriptor = os.open(self.folder, _FOLDER | _NOFOLLOW)
        try:
            for part in path.relative_to(self.folder).parts:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                # The path is resolved: a link here was created since.
                inner = os.open(part, _FOLDER | _NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            if not real_path_of(descriptor, path).is_relative_to(self.folder):
                raise OutsideError(errno.EPERM, "it is outside the folder")
            yield _Folder(path, descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _translate_errors(self, path: str, real: Path) -> Generator[None]:
        """Translate errors to messages that a model can act on."""
        try:
            yield
        except OutsideError:
            raise self._outside(path) from None
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(
                f"There is no file {self.name(real)!r}.", advice=self._nearest(real)
            ) from None
        except FileExistsError:
            raise InvalidInputError(
                f"{self.name(real)} is there already.",
                advice="Read it first; then edit it, or write it with `overwrite`.",
            ) from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            if isinstance(error, OSError) and error.errno in {errno.EISDIR, errno.EINVAL}:
                why = "it is a folder" if real.is_dir() else "it is not a regular file"
            raise InvalidInputError(
                f"{self.name(real)} cannot be used: {why[:1].lower()}{why[1:]}.",
                advice="List the folder to see what is there.",
            ) from None

    def _nearest(self, real: Path) -> str:
        names: list[str] = []
        with suppress(OSError), os.scandir(real.parent) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= _MANY:
                    break
        folded = {name.casefold(): name for name in names}
        close = get_close_matches(real.name.casefold(), folded, n=3, cutoff=0.7)
        if close:
            found = ", ".join(f"`{display_path(self.name(real.parent / folded[each]))}`" for each in close)
            return f"Did you mean {found}?"
        return "List the folder to see what is there."

    def _outside(self, path: str) -> InvalidInputError:
        return InvalidInputError(
            f"{path[:_SHOWN]!r} is outside the folder that may be used.",
            advice="Give a path from that folder on, such as `notes/today.md`.",
        )

    def _no_path(self, path: str) -> InvalidInputError:
        return InvalidInputError(
            f"{path[:_SHOWN]!r} cannot be the path of a file here.",
            advice="Give a path from the folder on, such as `notes/today.md`.",
        )


def _match_disk_names(path: Path) -> Path:
    """Return a path with its names as on the disk: some systems decompose accents and kana."""
    if str(path).isascii() or os.path.lexists(path):
        return path
    found = Path(path.anchor)
    for name in path.parts[1:]:
        forms = dict.fromkeys((name, normalize("NFC", name), normalize("NFD", name)))
        found /= next((form for form in forms if os.path.lexists(found / form)), name)
    return found


def _replace_atomically(folder: _Folder, name: str, data: bytes, mode: int | None, exclusive: bool) -> None:
    """Replace a file atomically by one with this content."""
    draft = f".{secrets.token_hex(8)}.part"
    descriptor = os.open(folder.at(draft), _NEW_FILE, 0o666, dir_fd=folder.descriptor)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        if exclusive and _link_draft(folder, draft, name):
            return
        os.replace(
            folder.at(draft), folder.at(name), src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor
        )
    except BaseException:
        with suppress(OSError):
            os.unlink(folder.at(draft), dir_fd=folder.descriptor)
        raise


def _link_draft(folder: _Folder, draft: str, name: str) -> bool:
    """Link the draft to its name, if that is free; return False if the file system has no hard links."""
    at = folder.descriptor
    try:
        os.link(folder.at(draft), folder.at(name), src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        return False
    os.unlink(folder.at(draft), dir_fd=at)
    return True
