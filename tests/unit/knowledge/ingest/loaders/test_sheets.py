from __future__ import annotations

import datetime
import io
import json
import zipfile
from pathlib import Path

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits, load_file
from loom_core.knowledge.ingest.loaders.office.sheet_reader import read_workbook


@pytest.mark.parametrize("name", ["ships.xlsx", "ships.xls"])
def test_rows_name_their_columns_and_their_sheet(documents: Path, name: str) -> None:
    draft = load_file(documents / name)
    rows = [block for block in draft.blocks if block.kind == "row"]
    assert [draft.text[block.start : block.end] for block in rows[:2]] == [
        "船名: 海鸥; Length: 10; Arrived: 2024-05-17",
        "船名: Albatross; Length: 30.5",
    ]
    assert (rows[0].name, rows[0].path) == ("到港", ("到港",))
    assert (draft.title, draft.title_source) == ("ships", "filename")


def test_a_caption_and_an_empty_sheet_are_told_apart_from_data(documents: Path, outline) -> None:
    assert outline(load_file(documents / "ships.xlsx")) == [
        ("heading", "到港"),
        ("paragraph", "Ships of the year"),
        ("row", "船名: 海鸥; Length: 10; Arrived: 2024-05-17"),
        ("row", "船名: Albatross; Length: 30.5"),
        ("heading", "Notes"),
        ("row", "paid | true"),
    ]


def test_open_document_sheets_are_read(documents: Path, outline) -> None:
    assert outline(load_file(documents / "ships.ods")) == [
        ("heading", "到港"),
        ("row", "船名: 海鸥; Length: short"),
        ("row", "船名: Albatross; Length: long"),
    ]


def changed(path: Path, part: str, old: bytes, new: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith(part):
                assert old in data
                data = data.replace(old, new)
            target.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        ("sheet1.xml", b'r="C3"', b'r="XFD1048576"'),
        ("sharedStrings.xml", b'uniqueCount="', b'uniqueCount="429496729'),
    ],
)
def test_a_file_that_makes_its_reader_abort_is_only_refused(
    documents: Path, load, part: str, old: bytes, new: bytes
) -> None:
    with pytest.raises(DocumentError, match=r"ran out of memory or time, or crashed\. Look for stray cells"):
        load("a.xlsx", changed(documents / "ships.xlsx", part, old, new))


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("name", ["a.xlsx", "a.xls", "a.ods"])
def test_a_broken_file_is_refused_with_a_reason(load, name: str) -> None:
    with pytest.raises(DocumentError, match="cannot be read as a spreadsheet"):
        load(name, b"nothing of the kind")


def test_a_text_beyond_the_limit_is_refused(documents: Path) -> None:
    with pytest.raises(DocumentError, match="holds more text"):
        load_file(documents / "ships.xlsx", limits=LoadLimits(max_text_chars=10))


def test_an_encrypted_sheet_is_refused(load) -> None:
    stream = "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(DocumentError, match="is encrypted"):
        load("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + stream)


def messages(data: bytes) -> list[object]:
    out = io.StringIO()
    read_workbook(io.BytesIO(data), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_reader_writes_sheets_and_rows_as_lines(documents: Path) -> None:
    assert messages((documents / "ships.xlsx").read_bytes()) == [
        {"sheet": "到港"},
        ["Ships of the year", "", ""],
        ["船名", "Length", "Arrived"],
        ["海鸥", "10", "2024-05-17"],
        ["Albatross", "30.5", ""],
        {"sheet": "Empty"},
        {"sheet": "Notes"},
        ["paid", "true"],
    ]


def test_the_reader_writes_an_error_as_a_line() -> None:
    (message,) = messages(b"nothing")
    assert isinstance(message, dict)
    assert message["error"]


def test_dates_times_and_large_numbers_are_written_as_people_read_them(load) -> None:
    import xlsxwriter

    out = io.BytesIO()
    book = xlsxwriter.Workbook(out, {"in_memory": True, "default_date_format": "yyyy-mm-dd hh:mm"})
    sheet = book.add_worksheet("S")
    sheet.write_datetime(0, 0, datetime.datetime(2024, 5, 17, 8, 30))
    sheet.write_number(0, 1, 1e20)
    sheet.write(0, 2, False)
    book.close()
    assert load("a.xlsx", out.getvalue()).text == "S\n\n2024-05-17 08:30:00 | 1e+20 | false"


def test_a_cell_merged_over_rows_is_repeated(load) -> None:
    import xlsxwriter

    out = io.BytesIO()
    book = xlsxwriter.Workbook(out, {"in_memory": True})
    sheet = book.add_worksheet("S")
    rows = (
        ("Region", "Quarter", "Fee"),
        ("North", "Q1", 10),
        ("", "Q2", 20),
        ("", "", ""),
        ("South", "Q1", 30),
    )
    for number, row in enumerate(rows, start=3):
        sheet.write_row(number, 2, row)
    sheet.merge_range("C5:C7", "North")
    book.close()
    assert load("a.xlsx", out.getvalue()).text.split("\n")[2:] == [
        "Region: North; Quarter: Q1; Fee: 10",
        "Region: North; Quarter: Q2; Fee: 20",
        "Region: South; Quarter: Q1; Fee: 30",
    ]
