"""Child process that opens a spreadsheet; `sheets` starts it.

The library behind it aborts its process when it cannot get memory, and it reserves as much as a file
announces: one cell in the last corner of a sheet is enough. The file goes in through standard input, and what
was read comes out as lines of JSON: `{"sheet": name}`, then a list of strings for each row;
`{"error": reason}` ends it.
"""

from __future__ import annotations

import datetime
import io
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, TextIO

    from python_calamine import CalamineSheet

__all__ = ["read_workbook"]

_Cell = str | float | bool | datetime.date | datetime.time | datetime.timedelta


def read_workbook(data: BinaryIO, out: TextIO) -> None:
    """Write every worksheet's rows as lines of JSON, in the workbook's order."""
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum

    try:
        workbook = CalamineWorkbook.from_filelike(data)
        for sheet in workbook.sheets_metadata:
            if sheet.typ == SheetTypeEnum.WorkSheet:
                out.write(json.dumps({"sheet": sheet.name}) + "\n")
                for row in _rows(workbook.get_sheet_by_name(sheet.name)):
                    out.write(json.dumps([_text(cell) for cell in row]) + "\n")
    except PasswordError:
        out.write(json.dumps({"error": "password"}) + "\n")
    except CalamineError as error:
        out.write(json.dumps({"error": str(error)}) + "\n")


def _rows(sheet: CalamineSheet) -> Iterator[list[_Cell]]:
    """Yield a sheet's rows; a cell merged over several is repeated in each of them that is not empty."""
    # Rows count from the top of the sheet, columns from the first with content.
    _, left = sheet.start or (0, 0)
    merged: dict[int, list[tuple[int, int]]] = {}
    for (first, column), (last, _) in sheet.merged_cell_ranges or ():
        if last > first:
            merged.setdefault(first, []).append((last, column - left))
    repeated: dict[int, tuple[int, _Cell]] = {}  # the last row and the value for each column
    for number, row in enumerate(sheet.iter_rows()):
        if repeated and any(cell != "" for cell in row):
            for column, (last, value) in repeated.items():
                if number <= last and row[column] == "":
                    row[column] = value
        for last, column in merged.get(number, ()):
            if 0 <= column < len(row):
                repeated[column] = last, row[column]
        yield row


def _text(cell: _Cell) -> str:
    """Format a cell: whole numbers without a fraction, midnight without a time."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(" ")
    return str(cell)


def _limit_memory(limit: int) -> None:
    """Make the process fail, rather than the machine swap, where the system has such a limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    _limit_memory(2 * 1024**3)
    read_workbook(io.BytesIO(sys.stdin.buffer.read()), sys.stdout)
