"""The file of an audit: lines of JSON, each sealed by a hash of the one before.

A line that was changed, taken out or put in breaks the chain, and `audit_report.verify` says where. The
first line of each file says that it is one, so that lines are missed at the beginning, too. Where the last
lines are taken off, or others are added, the file beside it (`audit.head`) still tells the hash of the last
one. Who may write the audit may write that, too: against such people keep `AuditReport.head` somewhere else
from time to time, and give it to `verify`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import RecordError
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "GENESIS_HASH",
    "AuditFile",
    "audit_files",
    "parse_line",
    "read_entries",
    "read_head",
    "read_lines",
]

GENESIS_HASH = "0" * 64
"""Stands for the hash of the line before the first one."""

_BLOCK = 65_536
_LOOK_SECONDS = 0.005


class AuditFile:
    """Appends to an audit. Blocks; several processes may write the same one.

    Args:
        path: such as `audit.jsonl`. When it is full, it is renamed to `audit.000001.jsonl` and so on, and the
            chain goes on in a new one. Nothing is ever removed.
        most_bytes: when it is full.
        patience: seconds that are waited for another process.
    """

    def __init__(self, path: Path, *, most_bytes: int = 50_000_000, patience: float = 5.0) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._patience = patience
        self._known: tuple[int, int, str] | None = None  # inode, size and last hash, as we left it

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write entries, all or none of them.

        Raises:
            RecordError: they cannot be written: the disk is full, the file must not be written, or another
                process does not let go of it.
        """
        if not entries:
            return
        try:
            with self._hold_lock():
                self._append(entries)
        except OSError as error:
            self._known = None
            raise RecordError(
                f"The audit {self.path} cannot be written: {error.strerror or error}.",
                advice="Make room on the disk, or let the file be written.",
            ) from error

    def _append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        try:
            state = os.fstat(file)
            size = state.st_size
            if self._known is not None and self._known[:2] == (state.st_ino, size):
                last, torn, missed = self._known[2], False, ""
            else:
                last, torn = self._last_hash(file, size)
                missed = ""
                with suppress(RecordError):  # the audit matters more than what stands beside it
                    head = read_head(self.path)
                    missed = "" if head == last else head
            if size > self._most_bytes and not torn:
                os.close(file)
                file = self._next_file()
                state, size = os.fstat(file), 0
            marks: dict[str, object] = {}
            if not size or (torn and not _number_in(self.path)):
                marks["file"] = _newest(self.path) + 1
            if torn:
                marks["torn"] = True
            if missed:  # before the older end is forgotten, the chain says that it was there
                marks["seen"] = missed
            lines: list[bytes] = [b"\n"] if torn and size else []
            for entry in entries:
                line = json.dumps(
                    {**entry, **marks, "prev": last}, ensure_ascii=False, separators=(",", ":"), default=str
                ).encode("utf-8", "backslashreplace")
                marks = {}
                last = hashlib.sha256(line).hexdigest()
                lines += (line, b"\n")
            self._write(file, b"".join(lines), size)
            self._keep_head(last)
            self._known = (state.st_ino, os.fstat(file).st_size, last)
        finally:
            os.close(file)

    def _write(self, file: int, data: bytes, size: int) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, size)  # a half of them would be a damaged line
            raise

    def _keep_head(self, last: str) -> None:
        """Write beside the audit what its end is, after it: a crash in between leaves an older end.

        Where that cannot be written, the lines are there all the same, and `verify` knows less of them.
        """
        with suppress(OSError):
            file = os.open(_head_path(self.path), os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(file, f"{last}\n".encode())  # always as long: no moment in which there is none
            finally:
                os.close(file)

    def _next_file(self) -> int:
        self.path.rename(_path_with_number(self.path, max(_newest(self.path) + 1, _number_in(self.path))))
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)

    def _last_hash(self, file: int, size: int) -> tuple[str, bool]:
        """Hash of the last line, and whether that line is cut off."""
        if not size:
            older = _older(self.path)
            return _end_of(older[-1][1].read_bytes()) if older else (GENESIS_HASH, False)
        tail, start = b"", size
        while start and b"\n" not in tail[:-1]:
            step = min(_BLOCK, start)
            start -= step
            os.lseek(file, start, os.SEEK_SET)
            tail = os.read(file, step) + tail
        return _end_of(tail)

    @contextmanager
    def _hold_lock(self) -> Generator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = ProcessLock(self.path.with_suffix(".lock"))
        deadline = time.monotonic() + self._patience
        while not lock.acquire():
            if time.monotonic() > deadline:
                raise RecordError(
                    f"Another process holds the audit {self.path}.", advice="Try again in a moment."
                )
            time.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()


def audit_files(path: Path) -> list[Path]:
    """The files of an audit that are there, oldest first; the last one is written."""
    return [*(each for _, each in _older(path)), path]


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of an audit, oldest first; torn lines are passed over. Blocks.

    Raises:
        RecordError: it cannot be read.
    """
    for file in audit_files(path):
        for line in read_lines(file)[0]:
            if (entry := parse_line(line)) is not None:
                yield entry


def read_lines(file: Path) -> tuple[list[bytes], bool]:
    """The lines of one file, and whether the last one is cut off; none where it is not there. Blocks.

    Raises:
        RecordError: it cannot be read.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise RecordError(
            f"The audit {file} cannot be read: {error.strerror or error}.", advice="Check its rights."
        ) from error
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return lines, bool(content) and not content.endswith(b"\n")


def parse_line(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where it is none, as one that was cut off."""
    try:
        entry: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", entry) if isinstance(entry, dict) else None


def read_head(path: Path) -> str:
    """What was written beside an audit about its end; `START` where nothing was. Blocks.

    Raises:
        RecordError: it cannot be read.
    """
    try:
        return _head_path(path).read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return GENESIS_HASH
    except OSError as error:
        raise RecordError(
            f"{_head_path(path)} cannot be read: {error}.", advice="Check its rights."
        ) from error


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


def _end_of(content: bytes) -> tuple[str, bool]:
    """Hash of the last line of a content, and whether that line is cut off."""
    line = content.removesuffix(b"\n").rpartition(b"\n")[2]
    return hashlib.sha256(line).hexdigest(), not content.endswith(b"\n")


def _number_in(path: Path) -> int:
    """The number that the first readable line of a file says the file has; 0 where none does."""
    with path.open("rb") as lines:
        first = next(filter(None, map(parse_line, lines)), None)
    number = first.get("file") if first else 0
    return number if isinstance(number, int) else 0


def _path_with_number(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number:06}{path.suffix}")


def _newest(path: Path) -> int:
    """The highest number among the full files of an audit; 0 where there are none."""
    return max((number for number, _ in _older(path)), default=0)


def _older(path: Path) -> list[tuple[int, Path]]:
    """The full files of an audit with their numbers, oldest first."""
    form = re.compile(rf"{re.escape(path.stem)}\.(\d{{6,}}){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    found = [(form.fullmatch(each.name), each) for each in path.parent.iterdir()]
    return sorted((int(match[1]), each) for match, each in found if match)
