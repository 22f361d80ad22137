from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.mcp_client.connections.sanitization import plain, plain_line, plain_schema


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x08c", "abc"),
        ("one\r\ntwo\u2028three", "one\ntwo\nthree"),
        ("看\u202e不见\u200b的", "看不见的"),
        ("read\U000e0049\U000e0067\U000e006e", "read"),
        ("half \ud800 character", "half  character"),
        ("tab\tstays", "tab\tstays"),
        ("👨\u200d👩\u200d👧 stays", "👨\u200d👩\u200d👧 stays"),
    ],
)
def test_what_acts_or_hides_is_taken_out(said: str, seen: str) -> None:
    assert plain(said) == seen


@pytest.mark.hostile("MCP servers")
def test_a_long_description_is_cut_with_a_mark_and_within_its_bytes() -> None:
    cut = plain("描述" * 1000)

    assert cut.endswith("… [cut]")
    assert 2040 < len(cut.encode()) <= 2048


def test_a_description_that_just_fits_stays_whole() -> None:
    assert plain("x" * 2048) == "x" * 2048


def test_a_name_is_one_line() -> None:
    assert plain_line("a\n\nb   c") == "a b c"


def test_the_descriptions_of_a_schema_are_made_plain_and_nothing_else() -> None:
    schema = {
        "title": "a\x00",
        "properties": {
            "description": {"type": "string", "description": "d\x1b[1m" + "x" * 5000, "default": "\x00"},
            "list": {"items": {"anyOf": [{"description": "\u202eb", "enum": ["\u200b"]}]}},
        },
    }

    shown = plain_schema(schema)

    assert shown["title"] == "a"
    argument = shown["properties"]["description"]
    assert argument["description"].startswith("dx")
    assert len(argument["description"].encode()) <= 1024
    assert argument["default"] == "\x00"
    assert shown["properties"]["list"]["items"]["anyOf"] == [{"description": "b", "enum": ["\u200b"]}]
    assert schema["title"] == "a\x00"


@pytest.mark.hostile("MCP servers")
@given(st.text(), st.integers(min_value=20, max_value=200))
def test_any_text_becomes_one_that_utf_8_holds_within_its_bytes(text: str, most: int) -> None:
    shown = plain(text, most=most)

    assert len(shown.encode()) <= most
    assert plain(shown, most=most) == shown
