"""Spreadsheets (XLSX, XLSM, XLS, ODS): each sheet a section, each row a block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.ingest.loaders.archive import open_archive
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import BinaryIO

    from loom_core.errors import DocumentError
    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_sheets"]

_READER = "loom_core.knowledge.ingest.loaders.office.sheet_reader"
_KIND = "a spreadsheet"
_TIME_LIMIT = 120.0
"""Seconds after which a file that is still being read is given up."""


def load_sheets(source: Source) -> LoadedContent:
    """Read every worksheet. A row reads `column: value; …` and names its sheet, which is also its heading.

    The file is opened in a child process, as the library may abort (see `sheet_reader`).

    Raises:
        DocumentError: encrypted, broken, or more than the reader's memory or time allows.
    """
    if source.extension != ".xls":
        open_archive(source, _KIND).close()
    writer = ContentWriter(source)
    with _reader(source) as output:
        for sheet, rows in _sheets(source, output):
            _write_sheet(writer, sheet, rows)
    return writer.finish()


def _write_sheet(writer: ContentWriter, sheet: str, rows: Iterator[list[str]]) -> None:
    """Write a sheet; its heading waits for the first row, as an empty sheet is left out."""
    first = next((row for row in rows if any(cell.strip() for cell in row)), None)
    if first is not None:
        writer.heading(sheet, level=2)  # the title of a sheet is not the title of the document
        write_table(writer, _led_by(first, rows), name=sheet)


def _led_by(first: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def _sheets(source: Source, output: Iterator[bytes]) -> Iterator[tuple[str, Iterator[list[str]]]]:
    """Yield sheets with their rows; read all rows of a sheet before the next one."""
    pending: list[str] = []
    length = 0

    def rows() -> Iterator[list[str]]:
        nonlocal length
        for line in output:
            if not line.endswith(b"\n"):
                return  # it was killed while writing; its exit code says so
            message = cast("dict[str, str] | list[str]", json.loads(line))
            if isinstance(message, list):
                length += sum(map(len, message))
                if length > source.limits.max_text_chars:
                    raise source.length_error()
                yield message
            elif "error" in message:
                raise _refusal(source, message["error"])
            else:
                pending.append(message["sheet"])
                return

    for _ in rows():  # up to the first sheet's name
        pass
    while pending:
        sheet = pending.pop()
        inside = rows()
        yield sheet, inside
        for _ in inside:
            pass


def _refusal(source: Source, reason: str) -> DocumentError:
    return source.encryption_error() if reason == "password" else source.damage_error(_KIND, reason)


@contextmanager
def _reader(source: Source) -> Generator[Iterator[bytes]]:
    """Run the child on the file, and yield the lines it writes."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
    )
    deadline = threading.Timer(_TIME_LIMIT, child.kill)
    deadline.daemon = True
    deadline.start()
    try:
        stdin, stdout = cast("BinaryIO", child.stdin), cast("BinaryIO", child.stdout)
        with suppress(BrokenPipeError), stdin:  # it died already; the exit code says so below
            stdin.write(source.data)
        yield iter(stdout)
        if child.wait() != 0:
            raise source.error(
                "cannot be read as a spreadsheet: its reader ran out of memory or time, or crashed.",
                advice="Look for stray cells far outside the table, delete them, and save it again.",
            )
    finally:
        deadline.cancel()
        child.kill()
        child.wait()
        cast("BinaryIO", child.stdout).close()
