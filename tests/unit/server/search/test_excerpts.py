"""Stretches of texts that cost no more than asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.server.protocol.results import estimate_tokens
from loom_core.server.search.excerpts import excerpt_bounds, forms_of


@given(text=st.text(alphabet="a 港é\n", max_size=400), start=st.integers(-5, 500), tokens=st.integers(1, 80))
def test_a_stretch_is_within_the_text_and_its_cost_and_the_next_goes_on_behind_it(text, start, tokens):
    begin, end = excerpt_bounds(text, start=start, tokens=tokens)
    assert 0 <= begin <= end <= len(text)
    assert estimate_tokens(text[begin:end]) <= tokens
    assert end > begin or begin == len(text)


@pytest.mark.parametrize(
    ("given", "forms"),
    [
        ("d1.a", ["d1.a"]),
        ("note:港#3-20", ["note:港#3-20", "note:港"]),
        ("https://a.example/x#y", ["https://a.example/x#y"]),
        ("file:///a/港.md#0-9", ["file:///a/港.md#0-9", "file:///a/港.md", "file:///a/%E6%B8%AF.md"]),
    ],
)
def test_an_address_copied_from_a_citation_is_understood(given, forms):
    assert forms_of(given) == forms
