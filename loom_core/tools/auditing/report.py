"""Whether an audit is as it was written: the chain of its lines, and the end that is kept beside it."""

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
    """What `verify` found.

    Attributes:
        lines: how many there are, in all files.
        head: hash of the last line; empty if there is none.
        problem: where the chain breaks first, and how; empty if it is whole.
        torn: lines that were cut off when a process died in the middle of them.
        unkept: lines that the end kept beside the audit did not know of when others were written after them,
            or does not know of now: a process died before it could keep that, or somebody has put them in.
        complete: whether the first line ever is there; not, where the oldest files were put away.
    """

    lines: int
    head: str
    problem: str = ""
    torn: int = 0
    unkept: int = 0
    complete: bool = True


def verify(path: Path, *, heads: Iterable[str] = ()) -> AuditReport:
    """Look whether an audit is as it was written, in all of its files. Blocks.

    Args:
        path: as for `AuditFile`.
        heads: `AuditReport.head` of earlier looks, kept somewhere else: the lines have to be there still.

    Raises:
        RecordError: it cannot be read.
    """
    while True:
        wanted = {*heads, read_head(path)}  # before the lines: there are more by then, and never fewer
        files = audit_files(path)
        chain = _Chain()
        chain.follow(files)
        report = chain.report(wanted, read_head(path))
        if not report.problem or files == audit_files(path):
            return report  # else a file was put away meanwhile, and lines were passed over that are there


class _Chain:
    """Follows the lines of an audit to the first that is not as it was written."""

    def __init__(self) -> None:
        self._lines = 0
        self._torn = 0
        self._unkept = 0
        self._complete = True
        self._problem = ""
        self._last = ""  # hash of the line before
        self._read = 0  # lines that could be read
        self._known: dict[str, int] = {
            GENESIS_HASH: 0
        }  # by hash: how many lines could be read up to this one
        self._looked = 0  # how many of them are either counted as unkept, or known to have been kept
        self._cut_off: list[str] = []  # where the lines are that cannot be read and that nothing follows yet

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
        """What was found.

        Args:
            wanted: hashes of lines that have to be there.
            kept: the end that is kept beside the audit, as it was read after the lines.
        """
        problem = self._problem
        if not problem and not wanted <= self._known.keys():
            problem = "Lines are missing at its end that were there before."
        if not problem and kept in self._known:  # else more was written meanwhile
            self._count_after(kept)
        return AuditReport(self._lines, self._last, problem, self._torn, self._unkept, self._complete)

    def _next(self, line: bytes, place: str) -> str:
        """Go on with a line; gives what is wrong with it, or before it."""
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
            if not self._complete:  # what these two stand for may be in the files that were put away
                self._known |= {before: 0, seen: 0}
        if before != (self._last or (GENESIS_HASH if self._complete else before)):
            return f"{place} does not follow from the line before it."
        if seen and seen not in self._known:
            return f"Lines are missing before {place} that were there when it was written."
        if seen:
            self._count_after(seen)
        return ""

    def _count_after(self, end: str) -> None:
        """Count the lines so far that an end did not know of."""
        self._unkept += self._read - max(self._known[end], self._looked)
        self._looked = self._read


def _no_line(place: str) -> str:
    return f"{place} is no line of an audit, and was not cut off when a process died."
