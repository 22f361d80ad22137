"""Audit file: a hash chain of JSON lines, and the verification of its integrity.

A line that was changed, removed or inserted breaks the chain, and `verify` says where. The first line
of each file has its number, so that lines removed at the beginning are noticed, too. If the last lines are
removed, or others are added, the file next to it (`audit.head`) still has the hash of the last one. A user
who may write the audit may write that, too: to detect this, store `AuditReport.head` elsewhere from time to
time, and pass it to `verify`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_core.errors import StoreError
from loom_core.jsonc import parse_object
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = [
    "GENESIS_HASH",
    "AuditFile",
    "AuditReport",
    "audit_files",
    "read_entries",
    "read_head",
    "read_lines",
    "verify",
]

GENESIS_HASH = "0" * 64
"""The previous hash of the first line."""

_BLOCK = 65_536
_LOOK_SECONDS = 0.005


class AuditFile:
    """Appends to an audit file. Blocks; several processes may write the same file.

    Args:
        path: such as `audit.jsonl`. A full file is renamed to `audit.000001.jsonl` and so on, and the
            chain continues in a new one. Nothing is ever removed.
        most_bytes: size of a full file.
        lock_seconds: timeout in seconds for the lock of another process.
    """

    def __init__(self, path: Path, *, most_bytes: int = 50_000_000, lock_seconds: float = 5.0) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._lock_seconds = lock_seconds
        self._known: tuple[int, int, str] | None = None  # inode, size and last hash, as we left it

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write entries, all or none of them.

        Raises:
            StoreError: they cannot be written: the disk is full, the file is read-only, or another process
                holds its lock.
        """
        if not entries:
            return
        try:
            with self._hold_lock():
                self._append(entries)
        except OSError as error:
            self._known = None
            raise StoreError(
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
                with suppress(StoreError):  # the audit matters more than its head file
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
            if missed:  # before the older end is overwritten, record it in the chain
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
                os.ftruncate(file, size)  # a partial write would be a damaged line
            raise

    def _keep_head(self, last: str) -> None:
        """Write the last hash to the head file, after the lines: a crash in between leaves an older hash.

        If this fails, the lines are still written, and `verify` can check less.
        """
        with suppress(OSError):
            file = os.open(_head_path(self.path), os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(file, f"{last}\n".encode())  # fixed length: it is never empty
            finally:
                os.close(file)

    def _next_file(self) -> int:
        self.path.rename(_path_with_number(self.path, max(_newest(self.path) + 1, _number_in(self.path))))
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)

    def _last_hash(self, file: int, size: int) -> tuple[str, bool]:
        """Return the hash of the last line, and whether that line is torn."""
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
        deadline = time.monotonic() + self._lock_seconds
        while not lock.acquire():
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Another process holds the audit {self.path}.", advice="Try again in a moment."
                )
            time.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()


def audit_files(path: Path) -> list[Path]:
    """Return the existing files of an audit, oldest first; the last one is the current one."""
    return [*(each for _, each in _older(path)), path]


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """Read the entries of an audit, oldest first; skip torn lines. Blocks.

    Raises:
        StoreError: it cannot be read.
    """
    for file in audit_files(path):
        for line in read_lines(file)[0]:
            if (entry := parse_object(line)) is not None:
                yield entry


def read_lines(file: Path) -> tuple[list[bytes], bool]:
    """Read the lines of one file, and whether the last one is torn; none if the file is missing. Blocks.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return [], False
    except OSError as error:
        raise StoreError(
            f"The audit {file} cannot be read: {error.strerror or error}.", advice="Check its permissions."
        ) from error
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return lines, bool(content) and not content.endswith(b"\n")


def read_head(path: Path) -> str:
    """Read the head file of an audit; return `GENESIS_HASH` if there is none. Blocks.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return _head_path(path).read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return GENESIS_HASH
    except OSError as error:
        raise StoreError(
            f"{_head_path(path)} cannot be read: {error}.", advice="Check its permissions."
        ) from error


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


def _end_of(content: bytes) -> tuple[str, bool]:
    """Return the hash of the last line of a content, and whether that line is torn."""
    line = content.removesuffix(b"\n").rpartition(b"\n")[2]
    return hashlib.sha256(line).hexdigest(), not content.endswith(b"\n")


def _number_in(path: Path) -> int:
    """Return the file number in the first readable line; 0 if there is none."""
    with path.open("rb") as lines:
        first = next(filter(None, map(parse_object, lines)), None)
    number = first.get("file") if first else 0
    return number if isinstance(number, int) else 0


def _path_with_number(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number:06}{path.suffix}")


def _newest(path: Path) -> int:
    """Return the highest number of the full files of an audit; 0 if there are none."""
    return max((number for number, _ in _older(path)), default=0)


def _older(path: Path) -> list[tuple[int, Path]]:
    """Return the full files of an audit with their numbers, oldest first."""
    form = re.compile(rf"{re.escape(path.stem)}\.(\d{{6,}}){re.escape(path.suffix)}")
    if not path.parent.is_dir():
        return []
    found = [(form.fullmatch(each.name), each) for each in path.parent.iterdir()]
    return sorted((int(match[1]), each) for match, each in found if match)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of `verify`.

    Attributes:
        lines: number of lines, in all files.
        head: hash of the last line; empty if there is none.
        problem: the first break of the chain; empty if it is intact.
        torn: lines that are incomplete, as a process died while it wrote them.
        unkept: lines that the head file did not cover when others were written after them, or does not cover
            now: a process died before it could update the file, or the lines were inserted.
        complete: whether the very first line is present; not if the oldest files were moved away.
    """

    lines: int
    head: str
    problem: str = ""
    torn: int = 0
    unkept: int = 0
    complete: bool = True


def verify(path: Path, *, heads: Iterable[str] = ()) -> AuditReport:
    """Verify the integrity of an audit, in all of its files. Blocks.

    Args:
        path: as for `AuditFile`.
        heads: `AuditReport.head` of earlier checks, stored elsewhere: their lines have to be present.

    Raises:
        StoreError: it cannot be read.
    """
    while True:
        wanted = {*heads, read_head(path)}  # before the lines: there can only be more lines later
        files = audit_files(path)
        chain = _Chain()
        chain.follow(files)
        report = chain.report(wanted, read_head(path))
        if not report.problem or files == audit_files(path):
            return report  # else a file was moved away in between, and existing lines were skipped


class _Chain:
    """Follows the hash chain to its first break."""

    def __init__(self) -> None:
        self._lines = 0
        self._torn = 0
        self._unkept = 0
        self._complete = True
        self._problem = ""
        self._last = ""  # hash of the line before
        self._read = 0  # readable lines
        self._known: dict[str, int] = {GENESIS_HASH: 0}  # number of readable lines up to this hash
        self._looked = 0  # how many of them are counted as unkept, or known to be kept
        self._cut_off: list[str] = []  # places of unreadable lines that nothing follows yet

    def follow(self, files: Sequence[Path]) -> None:
        """Go through the lines of all files, oldest first."""
        ends_torn = False
        for file in files:
            lines, is_torn = read_lines(file)
            ends_torn = is_torn if lines else ends_torn
            for number, line in enumerate(lines, 1):
                self._problem = self._next(line, f"{file.name}:{number}")
                if self._problem:
                    return
        if self._cut_off and not ends_torn:
            self._problem = _no_line(self._cut_off[0])
        else:
            self._torn += len(self._cut_off)

    def report(self, wanted: set[str], kept: str) -> AuditReport:
        """Return the report.

        Args:
            wanted: hashes of lines that have to be present.
            kept: the hash in the head file, read after the lines.
        """
        problem = self._problem
        if not problem and not wanted <= self._known.keys():
            problem = "Lines are missing at its end that were there before."
        if not problem and kept in self._known:  # else more was written in between
            self._count_after(kept)
        return AuditReport(self._lines, self._last, problem, self._torn, self._unkept, self._complete)

    def _next(self, line: bytes, place: str) -> str:
        """Check the next line; return what is wrong with it, or before it."""
        self._lines += 1
        entry = parse_object(line)
        if entry is None:
            self._cut_off.append(place)
        elif problem := self._wrong(entry, place):
            return problem
        else:
            self._torn += len(self._cut_off)
            self._cut_off = []
            self._read += 1
        self._last = hashlib.sha256(line).hexdigest()
        self._known[self._last] = self._read
        return ""

    def _wrong(self, entry: Mapping[str, Any], place: str) -> str:
        before, seen = str(entry.get("prev", "")), str(entry.get("seen", ""))
        if self._cut_off and not entry.get("torn"):
            return _no_line(self._cut_off[0])
        if not self._read:
            file = entry.get("file")
            if not isinstance(file, int):
                return f"Lines are missing before {place}: no file begins with it."
            self._complete = file == 1
            if not self._complete:  # the lines of these hashes may be in the files that were moved away
                self._known |= {before: 0, seen: 0}
        if before != (self._last or (GENESIS_HASH if self._complete else before)):
            return f"{place} does not follow from the line before it."
        if seen and seen not in self._known:
            return f"Lines are missing before {place} that were there when it was written."
        if seen:
            self._count_after(seen)
        return ""

    def _count_after(self, end: str) -> None:
        """Count the lines so far that an end did not cover."""
        self._unkept += self._read - max(self._known[end], self._looked)
        self._looked = self._read


def _no_line(place: str) -> str:
    return f"{place} is not a line of an audit log, and was not cut off when a process died."
