"""Circuit breaker: subclasses define which errors are transient."""

from __future__ import annotations

from contextlib import suppress

import pytest

from loom_core.errors import ConfigError, LoomError, NetError
from loom_core.flow.http.caller import HostBreaker
from loom_core.net.breaker import Breaker
from loom_core.observability.families import BREAKER_STATE
from loom_core.observability.metrics import process_metrics


class Silence(Breaker):
    """Counts only `NetError`s of failure `timeout`; others of them are answers."""

    def is_transient(self, error: LoomError) -> bool | None:
        return error.failure == "timeout" if isinstance(error, NetError) else None


def ask(breaker: Breaker, error: BaseException | None = None) -> None:
    with breaker.guard("kb.example", refuse=lambda message, left: NetError(f"{message} ({left:g})")):
        if error is not None:
            raise error


def fail(breaker: Breaker, error: BaseException, *, times: int) -> None:
    for _ in range(times):
        with pytest.raises(type(error)):
            ask(breaker, error)


def test_it_opens_after_failures_in_a_row_and_lets_one_through_after_a_pause() -> None:
    now = 0.0
    breaker = Silence(failures=3, first_pause=10, longest_pause=15, now=lambda: now)
    late = NetError("No answer.", failure="timeout")
    fail(breaker, late, times=2)
    ask(breaker)
    fail(breaker, late, times=3)
    assert breaker.state == "open"
    with pytest.raises(
        NetError, match=r"Circuit open for kb\.example after 3 consecutive failures.*No answer\. \(10\)"
    ):
        ask(breaker)
    now = 10.0
    assert breaker.state == "half_open"
    fail(breaker, late, times=1)
    now = 24.0
    assert breaker.state == "open"  # twice as long as before, and no longer than the longest
    now = 25.0
    ask(breaker)
    assert breaker.state == "closed"


def test_an_error_that_does_not_speak_against_it_is_an_answer_and_others_say_nothing() -> None:
    breaker = Silence(failures=2)
    late = NetError("No answer.", failure="timeout")
    fail(breaker, late, times=1)
    fail(breaker, NetError("Too large.", failure="unusable"), times=1)
    fail(breaker, late, times=1)
    assert breaker.state == "closed"
    for error in (ConfigError("No key."), KeyboardInterrupt(), ValueError()):
        fail(breaker, error, times=1)
    fail(breaker, late, times=1)
    assert breaker.state == "open"


@pytest.mark.parametrize(
    ("failure", "passes"),
    [("connection", True), ("interrupted", True), ("timeout", True), ("unusable", False), ("refused", None)],
)
def test_what_speaks_against_a_host(failure, passes: bool | None) -> None:
    assert HostBreaker().is_transient(NetError("x", failure=failure)) is passes
    assert HostBreaker().is_transient(ConfigError("x")) is None


def test_how_it_stands_can_be_seen_in_the_metrics() -> None:
    def state() -> float | None:
        return process_metrics.registry.samples(BREAKER_STATE).get(("灯塔.example",))

    def request(breaker: Breaker, error: NetError | None = None) -> None:
        with suppress(NetError), breaker.guard("灯塔.example", refuse=lambda message, _: NetError(message)):
            if error is not None:
                raise error

    now = 0.0
    breakers = [Silence(failures=1, first_pause=10, now=lambda: now) for _ in range(2)]
    assert state() is None, "who was never asked is not told"
    for breaker in breakers:
        request(breaker)
    assert state() == 0
    request(breakers[0], NetError("No answer.", failure="timeout"))
    assert state() == 2, "of several the worst"
    now = 10.0
    assert state() == 1
    request(breakers[0])
    assert state() == 0
