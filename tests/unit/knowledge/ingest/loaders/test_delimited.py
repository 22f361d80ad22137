from __future__ import annotations

import pytest


def rows(draft) -> list[str]:
    return [draft.text[block.start : block.end] for block in draft.blocks if block.kind == "row"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(load, delimiter: str) -> None:
    table = "\n".join(delimiter.join(row) for row in (("name", "note"), ("Ada", '"x, y; z"'), ("Bo", "")))
    assert rows(load("a.csv", table)) == ["name: Ada; note: x, y; z", "name: Bo"]


def test_the_delimiter_that_a_file_declares_to_excel_is_used(load) -> None:
    assert rows(load("a.csv", "sep=;\r\nname;fee\r\nAda;1,20\r\n")) == ["name: Ada; fee: 1,20"]


def test_rows_stand_alone_and_follow_each_other_tightly(load) -> None:
    draft = load("船.csv", "船名,长度\n海鸥,10\n信天翁,30\n".encode("gb18030"))
    assert draft.text == "船名: 海鸥; 长度: 10\n船名: 信天翁; 长度: 30"
    assert (draft.title, draft.mime) == ("船", "text/csv")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("1,2\n3,4", ["1 | 2", "3 | 4"]),
        ("a,a\nb,c", ["a | a", "b | c"]),
        ("year\n1700\n1701", ["year: 1700", "year: 1701"]),
        ("Ada\nBo", ["Ada", "Bo"]),
        ("a,b", ["a | b"]),
        ("a,,\n1,2,3\n4,5,6", ["1 | 2 | 3", "4 | 5 | 6"]),
        (",,,d\n1,2,3,4", ["d", "1 | 2 | 3 | 4"]),
        ("2024-05-17,x\n2024-05-18,y", ["2024-05-17 | x", "2024-05-18 | y"]),
    ],
)
def test_a_header_is_recognised_only_where_it_is_one(load, table: str, expected: list[str]) -> None:
    assert rows(load("a.csv", table)) == expected


def test_a_caption_above_the_header_is_a_paragraph(load, outline) -> None:
    assert outline(load("a.csv", "Ships of 1700,,\n\nname,length,fee\nSeagull,10,20\n")) == [
        ("paragraph", "Ships of 1700"),
        ("row", "name: Seagull; length: 10; fee: 20"),
    ]


def test_a_quoted_field_may_run_over_lines(load) -> None:
    assert rows(load("a.csv", 'a,b\n"x\ny",2\n')) == ["a: x y; b: 2"]


def test_a_stray_quote_does_not_swallow_the_rest(load) -> None:
    assert rows(load("a.csv", 'name,size\nrope,5"\n"broken,3\nlast,4\n'))[-1] == "name: last; size: 4"


def test_a_very_long_field_is_read(load) -> None:
    long = "word " * 40_000
    assert rows(load("a.csv", f'a,b\n"{long}",2\n'))[0].endswith("word; b: 2")


def test_a_table_longer_than_the_probe_is_read_to_its_end(load) -> None:
    table = "id\tname\n" + "".join(f"{number}\tship {number}\n" for number in range(9_000))
    assert rows(load("a.tsv", table))[-1] == "id: 8999; name: ship 8999"


def test_surplus_cells_have_no_name(load) -> None:
    assert rows(load("a.csv", "a,b\n1,2,3\n4,5\n")) == ["a: 1; b: 2; 3", "a: 4; b: 5"]
