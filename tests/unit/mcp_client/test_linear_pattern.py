from __future__ import annotations

import pytest

from loom_core.mcp_client.linear_pattern import is_linear, matches, states


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("^a+$", "aaa", True), ("^a+$", "aab", False), ("港", "青岛港", True), ("^港", "青岛港", False)],
)
def test_a_pattern_is_found_anywhere_in_a_text(pattern, text, found):
    assert is_linear(pattern)
    assert matches(pattern, text) is found


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "("])
def test_what_no_linear_engine_knows_counts_as_found(pattern):
    assert not is_linear(pattern)
    assert matches(pattern, "x")


def test_a_pattern_that_would_take_others_forever_is_matched_at_once():
    assert not matches("^(a+)+$", "a" * 5000 + "!")


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("abc", 3),
        ("a{10}", 50),
        ("(a{2,10}){100}", 14 * 1000),
        ("a{1000}" * 3, 300_000),
        ("a{999999}", 300_000),
    ],
)
def test_what_is_repeated_counts_as_often_up_to_what_an_engine_takes(pattern, most):
    assert states(pattern) == most
