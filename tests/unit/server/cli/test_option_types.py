"""Numbers of options: an error names the option as it was typed."""

from __future__ import annotations

import argparse

import pytest

from loom_core.server.cli.option_types import fraction, whole_number


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--limit", type=whole_number(100), default=5)
    parser.add_argument("--runs", type=whole_number(), default=1)
    parser.add_argument("--diversity", type=fraction, default=0.0)
    return parser


def test_numbers_in_their_range_are_taken(parser):
    args = parser.parse_args(["--limit", "100", "--runs", "1000", "--diversity", "0.5"])
    assert (args.limit, args.runs, args.diversity) == (100, 1000, 0.5)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--limit", "0", "0 is not from 1 to 100"),
        ("--limit", "101", "101 is not from 1 to 100"),
        ("--limit", "ten", "ten is not from 1 to 100"),
        ("--runs", "-1", "-1 is not 1 or more"),
        ("--diversity", "2", "2 is not from 0 to 1"),
        ("--diversity", "nan", "nan is not from 0 to 1"),
        ("--diversity", "much", "much is not from 0 to 1"),
    ],
)
def test_another_value_is_an_error_that_names_the_option(parser, option, value, problem):
    with pytest.raises(argparse.ArgumentError) as caught:
        parser.parse_args([option, value])
    assert str(caught.value) == f"argument {option}: {problem}"
