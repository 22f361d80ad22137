"""The file of an audit: lines of JSON, each sealed by a hash of the one before.

A line that was changed, taken out or put in breaks the chain, and `verify` says where. Who takes off the last
lines leaves a chain that is whole: against that, keep `AuditReport.head` somewhere else from time to time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import RecordError
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["AuditFile", "AuditReport", "verify"]

_START = "0" * 64
_BLOCK = 65_536
_LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What `verify` found.

    Attributes:
        lines: how many there are, in all files.
        head: hash of the last line; empty if there is none.
        problem: where the chain breaks first, and how; empty if it is whole.
        torn: lines that were cut off when a process died in the middle of them.
        complete: whether the first line ever is there; not, where the oldest files were put away.
    """

    lines: int
    head: str
    problem: str = ""
    torn: int = 0
    complete: bool = True


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
        try:
            with self._locked():
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
                last, torn = self._known[2], False
            else:
                last, torn = self._last_hash(file, size)
            if size > self._most_bytes and not torn:
                os.close(file)
                file = self._next_file()
                state, size = os.fstat(file), 0
            lines: list[bytes] = [b"\n"] if torn else []
            for entry in entries:
                line = json.dumps(
                    {**entry, "prev": last}, ensure_ascii=False, separators=(",", ":"), default=str
                ).encode("utf-8", "backslashreplace")
                last = hashlib.sha256(line).hexdigest()
                lines += (line, b"\n")
            self._write(file, b"".join(lines), size)
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

    def _next_file(self) -> int:
        numbers = [number for number, _ in _older(self.path)]
        self.path.rename(_numbered(self.path, max(numbers, default=0) + 1))
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)

    def _last_hash(self, file: int, size: int) -> tuple[str, bool]:
        """Hash of the last line, and whether that line is cut off."""
        if not size:
            older = _older(self.path)
            return (_last_line(older[-1][1]) if older else _START), False
        tail, start = b"", size
        while start and b"\n" not in tail[:-1]:
            step = min(_BLOCK, start)
            start -= step
            os.lseek(file, start, os.SEEK_SET)
            tail = os.read(file, step) + tail
        torn = not tail.endswith(b"\n")
        line = tail.removesuffix(b"\n").rpartition(b"\n")[2]
        return hashlib.sha256(line).hexdigest(), torn

    @contextmanager
    def _locked(self) -> Generator[None]:
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


def verify(path: Path) -> AuditReport:
    """Look whether an audit is as it was written, in all of its files. Blocks.

    Raises:
        RecordError: it cannot be read.
    """
    while True:
        older = [each for _, each in _older(path)]
        report = _report([*older, path])
        if not report.problem or len(older) == len(_older(path)):
            return report  # else a file was put away meanwhile, and lines were passed over that are there


def _report(files: Sequence[Path]) -> AuditReport:
    expected, lines, torn, complete = "", 0, 0, True
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            lines += 1
            found = _previous(line)
            if not expected:
                complete = found in {_START, None}
            elif found is not None and found != expected:
                problem = f"{file.name}:{number} does not follow from the line before it."
                return AuditReport(lines, expected, problem, torn, complete)
            torn += found is None
            expected = hashlib.sha256(line).hexdigest()
    return AuditReport(lines, expected, "", torn, complete)


def _lines(file: Path) -> list[bytes]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(
            f"The audit {file} cannot be read: {error.strerror or error}.", advice="Check its rights."
        ) from error
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _previous(line: bytes) -> str | None:
    """The hash that a line carries; None where it is no whole line."""
    try:
        entry: object = json.loads(line)
    except ValueError:
        return None
    return str(cast("dict[str, Any]", entry).get("prev", "")) if isinstance(entry, dict) else None


def _last_line(path: Path) -> str:
    return hashlib.sha256(path.read_bytes().removesuffix(b"\n").rpartition(b"\n")[2]).hexdigest()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number:06}{path.suffix}")


def _older(path: Path) -> list[tuple[int, Path]]:
    """The full files of an audit with their numbers, oldest first."""
    form = re.compile(rf"{re.escape(path.stem)}\.(\d{{6,}}){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    found = [(form.fullmatch(each.name), each) for each in path.parent.iterdir()]
    return sorted((int(match[1]), each) for match, each in found if match)
