"""The shares of callers, and the sessions they have."""

from __future__ import annotations

import pytest

from loom_core.server.auth.caller import Caller
from loom_core.server.auth.refusal import RefusedError
from loom_core.server.serving.limits import CallerLimits, Limits, SessionCount

ALICE = Caller("alice", frozenset({"read"}), id="a")
BOB = Caller("bob", frozenset({"read"}), id="b")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def refused(shares, caller, kind="call"):
    try:
        shares.count(caller)
        shares.slot(caller, kind)
    except RefusedError as error:
        return error.refusal
    return None


def test_a_burst_of_ten_seconds_worth_is_served_and_then_the_rate(clock):
    shares = CallerLimits(Limits(per_minute=60), clock=clock)
    assert [refused(shares, ALICE) for _ in range(10)] == [None] * 10
    told = refused(shares, ALICE)
    assert (told.status, told.reason, told.retry_after) == (429, "rate", 1)
    assert refused(shares, BOB) is None
    clock.now = 1.0
    assert refused(shares, ALICE) is None
    assert refused(shares, ALICE).reason == "rate"
    clock.now = 1000.0
    assert [refused(shares, ALICE) for _ in range(10)] == [None] * 10
    assert refused(shares, ALICE)


def test_a_slow_rate_says_how_long_to_wait(clock):
    shares = CallerLimits(Limits(per_minute=1), clock=clock)
    assert refused(shares, ALICE) is None
    assert refused(shares, ALICE).retry_after == 60


def test_calls_and_streams_have_limits_of_their_own(clock):
    shares = CallerLimits(Limits(calls=1, streams=1), clock=clock)
    with shares.slot(ALICE, "call"), shares.slot(ALICE, "stream"):
        assert refused(shares, ALICE, "call").reason == "running"
        assert refused(shares, ALICE, "stream").reason == "streams"
        assert refused(shares, ALICE, "upload") is None
        assert refused(shares, BOB, "call") is None
        assert (shares.running("call"), shares.running("stream")) == (1, 1)
    assert refused(shares, ALICE, "call") is None
    assert shares.running("call") == 0


def test_who_has_asked_nothing_for_long_is_forgotten_but_never_who_is_being_served(clock):
    shares = CallerLimits(Limits(calls=1), clock=clock)
    with shares.slot(ALICE, "call"):
        for number in range(10_000):
            shares.count(Caller("x", frozenset(), id=f"x{number}"))
        clock.now = 100.0
        shares.count(BOB)
        assert refused(shares, ALICE).reason == "running"


def test_sessions_are_counted_by_owner_until_they_end_or_are_idle(clock):
    sessions = SessionCount(60.0, clock=clock)
    for id_, owner in (("1", "a"), ("2", "a"), ("3", "b")):
        with sessions.opening(owner) as opened:
            opened(id_)
            assert sessions.of(owner) == (2 if id_ == "2" else 1)
    assert (sessions.of("a"), sessions.of("b"), len(sessions)) == (2, 1, 3)
    sessions.begin_request("1")
    clock.now = 61.0
    assert (sessions.of("a"), len(sessions)) == (1, 1)
    assert [sessions.has("a", "1"), sessions.has("b", "1"), sessions.has("a", "2")] == [True, False, False]
    sessions.end_request("1")
    clock.now = 100.0
    assert sessions.of("a") == 1
    sessions.remove("1")
    sessions.end_request("1")
    assert len(sessions) == 0


def test_a_session_that_is_being_opened_counts(clock):
    sessions = SessionCount(60.0, clock=clock)
    with sessions.opening("a"), sessions.opening("a"):
        assert (sessions.of("a"), sessions.of("b")) == (2, 0)
    assert sessions.of("a") == 0
