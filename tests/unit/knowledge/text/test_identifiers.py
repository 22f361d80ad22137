"""Identifiers are told from words of prose by their form."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.text.analysis import forms_of
from loom_core.knowledge.text.identifiers import identifiers_between_cjk, identifiers_in


@pytest.mark.parametrize(
    "word", ["word", "Word", "(word),", "I", "1952", "Long-Term", "don't", "e.g.", "U.S.", "", "--"]
)
def test_prose_holds_no_identifiers(word: str):
    assert identifiers_in(word) == ()


@pytest.mark.parametrize(
    ("stretch", "found"),
    [
        ("HTTPServer.", ["HTTPServer"]),
        ("(snake_case)", ["snake_case"]),
        ("__init__", ["__init__"]),
        ("v2.3.1", ["v2.3.1"]),
        ("settings.toml,", ["settings.toml"]),
        ("--dry-run", ["--dry-run"]),
        ("SHA256/UTF-8", ["SHA256", "UTF-8"]),
        ("ÉcoleNormale", ["ÉcoleNormale"]),
    ],
)
def test_identifiers_are_found_among_the_marks_around_them(stretch: str, found: list[str]):
    assert [name for name, _ in identifiers_in(stretch)] == found
    assert list(identifiers_between_cjk(f"使用{stretch}来")) == list(identifiers_in(stretch))


def test_what_a_text_is_found_by_is_told_in_one_go():
    found = forms_of("The HTTPServer of McDonald-Smith stopped. Restarting, it failed.")
    assert found.tokens.split() == [
        "httpserver", "http", "server", "mcdonald-smith", "mc", "donald", "smith", "stop", "restart", "fail",
    ]  # fmt: skip
    assert found.lookups.split() == ["mcdonald"]
    assert [name for name, _ in found.identifiers] == ["HTTPServer", "McDonald"]


@example(["é", "0.0,0"])
@given(st.lists(st.text("aAbZ09._-'’–(),\"é", max_size=6), max_size=6))
def test_a_text_is_found_by_what_its_pieces_are_found_by(pieces: list[str]):
    whole = forms_of(" ".join(pieces))
    assert whole.tokens == "".join(forms_of(piece).tokens for piece in pieces)
    assert whole.lookups == "".join(forms_of(piece).lookups for piece in pieces)
    assert whole.identifiers == tuple(found for piece in pieces for found in identifiers_in(piece))
