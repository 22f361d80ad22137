"""Identifiers that a question asks for are told from words by their shape, and found as they are bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.query_identifiers import (
    MatchGrade,
    QueryIdentifier,
    comparable_text,
    extract_identifiers,
)

CODES = [
    "SO-2024-004512",
    "4500012345",
    "CVE-2023-1234",
    "ORA-00942",
    "PAY-4821",
    "AX123-QZ/45",
    "550e8400-e29b-41d4-a716-446655440000",
    "550e8400",
    "550e8400-e2",
    "10.0.0.1",
    "10.0.0.1:8080",
    "2001:db8:a::1f",
    "fe80::1",
    "00:1a:2b:3c:4d:5e",
    "138-0013-8000",
    "138 0013 8000",
    "+86 138 0013 8000",
    "(021) 555-1234",
    "13800138000",
    "0x7fff5fbf",
    "a1b2c3d",
    "zq23456x18",
    "report_0123.pdf",
    "v2.3",
    "2.3.1",
    "1.2.3-rc1",
    "#4711",
]
NAMES = [
    "shop.core.client",
    "settings.toml",
    "snake_case",
    "__init__",
    "--dry-run",
    "SHA256",
    "ABC-12",
    "a/b_c.py",
]
NEITHER = [
    "word",
    "None",
    "HTTP",
    "McDonald",
    "and/or",
    "state-of-the-art",
    "U.S.",
    "1999",
    "1914-1918",
    "2020-03-12",
    "12/05/2020",
    "12.05.2020",
    "10:30",
    "24/7",
    "9-1-1",
    "3.14",
    "3.11",
    "10000",
    "120000",
    "42",
    "500ml",
    "2nd",
    "1990s",
    "post-2008",
    "mid-1990s",
    "20-year-old",
    "p53",
    "B2B",
    "Th17",
    "CSF1R",
    "H3K79me2",
    "2019 2020 2021",
    "facade",
]


@pytest.mark.parametrize("sentence", ["Who knows {} by now?", "请问{}是谁负责的？", "（{}）", "“{}”", "{}"])
@pytest.mark.parametrize("written", [*CODES, *NAMES])
def test_an_identifier_is_read_whole_from_a_sentence(sentence: str, written: str):
    (identifier,) = extract_identifiers(sentence.format(written))
    assert (identifier.text, identifier.is_code) == (written, written in CODES)
    assert identifier.grade_in(comparable_text(sentence.format(written))) is MatchGrade.WHOLE


@pytest.mark.parametrize("sentence", ["Who knows {} by now?", "请问{}是谁负责的？"])
@pytest.mark.parametrize("written", NEITHER)
def test_words_years_dates_decimals_and_quantities_are_none(sentence: str, written: str):
    assert extract_identifiers(sentence.format(written)) == ()


def test_full_width_text_and_other_dashes_are_the_same():
    (identifier,) = extract_identifiers("订单ＳＯ－２０２４－００１２３在哪里？")
    assert identifier.text == "SO-2024-00123"
    assert identifier.grade_in(comparable_text("The order so‑2024–00123.")) is MatchGrade.WHOLE


@pytest.mark.parametrize(
    ("asked", "text", "grade"),
    [
        ("PAY-4821", "See PAY-4821.", MatchGrade.WHOLE),
        ("PAY-4821", "工单PAY-4821已关闭", MatchGrade.WHOLE),
        ("PAY-4821", "https://example.org/PAY-4821", MatchGrade.PART),
        ("PAY-4821", "PAY-48210, XPAY-4821 and PAY-4822", MatchGrade.NONE),
        ("10.0.0.1", "10.0.0.12 and 110.0.0.1 and 10.0.0.1.5", MatchGrade.NONE),
        ("10.0.0.1", "10.0.0.1:8080", MatchGrade.PART),
        ("v2.3", "v2.3.1 and v2.30", MatchGrade.NONE),
        ("2.3.1", "2.3.1-rc1", MatchGrade.PART),
        ("550e8400-e2", "550e8400-e29b-41d4-a716-446655440000", MatchGrade.BEGINNING),
        ("550e8400", "550e8400-e29b-41d4-a716-446655440000", MatchGrade.PART),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400e29b41d4a716446655440000", MatchGrade.WHOLE),
        ("a1b2c3d", "commit a1b2c3d4e5f60718293a4b5c6d7e8f9012345678", MatchGrade.BEGINNING),
        ("a1b2c3d", "a1b2c3d4", MatchGrade.NONE),
        ("450001", "4500012345", MatchGrade.NONE),
        ("13800138000", "138 0013-8000", MatchGrade.WHOLE),
        ("138-0013-8000", "+86 13800138000", MatchGrade.WHOLE),
        ("+86 138 0013 8000", "13800138000", MatchGrade.WHOLE),
        ("(021) 555-1234", "+86 21 5551234", MatchGrade.WHOLE),
        ("13800138000", "138 0013 8001", MatchGrade.NONE),
        ("snake_case", "a snake_case_name", MatchGrade.NONE),
        ("os.path", "os.path.join", MatchGrade.PART),
        ("--dry-run", "use --dry-run=yes", MatchGrade.PART),
    ],
)
def test_a_text_holds_an_identifier_as_exactly_as_it_is_bounded_there(
    asked: str, text: str, grade: MatchGrade
):
    identifier = (extract_identifiers(asked) or (QueryIdentifier(asked, is_code=True),))[0]
    assert identifier.grade_in(comparable_text(text)) is grade


def test_what_may_be_part_of_a_longer_identifier_is_looked_for_alone_too():
    (identifier,) = extract_identifiers("status of order:SO-12345?")
    assert [part.text for part in identifier.parts] == ["SO-12345"]
    assert identifier.is_held_in("so-12345 is packed")
    assert not identifier.is_held_in("so-12346 is packed")


@given(st.text("aZ09.-_:/#+() 订单０－", max_size=60))
def test_any_text_holds_the_identifiers_that_are_read_from_it(text: str):
    for identifier in extract_identifiers(text):
        assert identifier.form
        assert identifier.is_held_in(comparable_text(text)) or identifier.grade_in(
            comparable_text(f" {text} ")
        )


@pytest.mark.parametrize("piece", ["1 ", "1-", "a.b-", "(1)", "1:", "0f", "#1", "a/"])
def test_time_grows_with_the_length_only(piece: str):
    text = piece * 20_000
    began = time.process_time()
    extract_identifiers(text)
    QueryIdentifier("13800138000", is_code=True).grade_in(text)
    assert time.process_time() - began < 10
