from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.server.calls.context import Progress


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def sent():
    return []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reporter(sent, clock):
    async def send(value, total, message):
        sent.append((value, total, message))

    return Progress(send, total=10, interval=0.1, clock=clock)


async def test_what_is_reported_is_sent_with_the_total(reporter, sent):
    await reporter.report(1, "分块")

    assert sent == [(1, 10, "分块")]


async def test_a_value_that_has_not_grown_is_not_sent_again(reporter, sent, clock):
    for value in (2, 2, 1, 0.5):
        await reporter.report(value)
        clock.now += 1

    assert sent == [(2, 10, None)]


async def test_a_new_text_is_sent_with_the_smallest_greater_value(reporter, sent, clock):
    await reporter.report(2, "reading")
    clock.now += 1
    await reporter.report(2, "writing")
    clock.now += 1
    await reporter.report(2, "writing")

    assert [message for _, _, message in sent] == ["reading", "writing"]
    assert 2 < sent[1][0] < 2.000001


async def test_reports_in_quick_succession_are_dropped_except_the_last(reporter, sent, clock):
    for value in range(1, 11):
        await reporter.report(value)
        clock.now += 0.04

    assert [value for value, _, _ in sent] == [1, 4, 7, 10]


@pytest.mark.hostile("MCP requests")
async def test_a_text_that_is_not_valid_unicode_is_repaired(reporter, sent):
    await reporter.report(1, "file \udce9.txt")

    assert sent == [(1, 10, "file ?.txt")]


@given(reports=st.lists(st.tuples(st.floats(-5, 15), st.sampled_from(["", "a", "b"]), st.floats(0, 0.3))))
async def test_values_sent_are_strictly_increasing(reports):
    sent: list[float] = []
    clock = Clock()

    async def send(value, total, message):
        sent.append(value)

    reporter = Progress(send, total=10, clock=clock)
    for value, message, pause in reports:
        await reporter.report(value, message)
        clock.now += pause

    assert all(first < second for first, second in itertools.pairwise(sent))
