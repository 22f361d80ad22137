"""Integrity report of an audit: its hash chain, and the head file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_core.tools.auditing.file import GENESIS_HASH, audit_files, parse_line, read_head, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["AuditReport", "verify"]


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
        entry = parse_line(line)
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
