"""Names and titles are shown without what acts instead of being seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS, escape_controls
from loom_core.knowledge.uris import display_uri, readable, uri_of


@pytest.mark.hostile("text that speaks to the model")
def test_what_acts_is_shown_as_its_escape() -> None:
    assert escape_controls("a\x1b[2J\nb\u202ec\x9bd\udce9\U000e0041") == (
        r"a\x1b[2J\nb\u202ec\x9bd\udce9\U000e0041"
    )


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("知识　图谱", "👩‍👩‍👧", "می‌خواهم", "e\u0301", "a\u00a0b", "soft\u00adhyphen", ""):
        assert escape_controls(text) == text


@given(st.text())
def test_nothing_acts_and_nothing_else_changes(text: str) -> None:
    seen = escape_controls(text)
    assert not CONTROL_CHARACTERS.search(seen)
    assert escape_controls(seen) == seen
    seen.encode()


def test_addresses_are_shown_on_one_line(tmp_path) -> None:
    path = tmp_path / "a\nb\u202e.md"
    assert display_uri(uri_of(path)).endswith(r"a\nb\u202e.md")
    assert readable("note:a\nb") == r"note:a\nb"
    assert readable(uri_of(tmp_path / "港口.md")).endswith("/港口.md")
