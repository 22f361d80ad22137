"""How long a text is for a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loom_core.tokens import estimate_tokens


def test_sizes_are_estimated_in_tokens():
    assert estimate_tokens("") == 0
    assert estimate_tokens("a") == 1
    assert estimate_tokens("word " * 100) == 125
    assert estimate_tokens("知识图谱" * 30) == 80
    assert 90 < estimate_tokens("知识 graph " * 30) < 120


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_with_anything_in_it_has_a_size(text: str):
    assert (estimate_tokens(text) > 0) == bool(text)
