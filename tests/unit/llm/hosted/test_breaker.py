from __future__ import annotations

import logging

import pytest

from loom_core.errors import LLMError, ModelFailure
from loom_core.llm.hosted.limits import CircuitBreaker


class _Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def _ask(breaker: CircuitBreaker, failure: ModelFailure | None = None) -> None:
    """One request that succeeds, or fails as told."""
    with breaker.request(title="豆包", provider="doubao"):
        if failure:
            raise LLMError("豆包 answers 503.", failure=failure)


def _fail(breaker: CircuitBreaker, failure: ModelFailure = "server", *, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(LLMError, match="answers 503"):
            _ask(breaker, failure)


def _opened(clock: _Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(now=clock)
    _fail(breaker, times=5)
    return breaker


def test_it_opens_after_five_consecutive_failures_and_says_when_it_retries(
    caplog: pytest.LogCaptureFixture,
):
    clock = _Clock()
    breaker = CircuitBreaker(now=clock)
    _fail(breaker, times=4)
    assert breaker.state == "closed"
    with caplog.at_level(logging.WARNING):
        _fail(breaker)
    assert "Circuit open for 豆包 after 5 consecutive failures (server); retrying in 30 s" in caplog.text
    clock.time += 10
    with pytest.raises(LLMError, match=r"retrying in 20 s\. Last failure: 豆包 answers 503\.") as caught:
        _ask(breaker)
    error = caught.value
    assert (error.failure, error.provider, error.retry_after) == ("unavailable", "doubao", 20.0)
    assert not error.is_transient


def test_a_success_between_failures_begins_the_count_again():
    breaker = CircuitBreaker(now=_Clock())
    _fail(breaker, times=4)
    _ask(breaker)
    _fail(breaker, times=4)
    assert breaker.state == "closed"


@pytest.mark.parametrize("failure", ["authentication", "not_found", "invalid_request", "quota", "refused"])
def test_failures_that_do_not_pass_never_open_it(failure: ModelFailure):
    breaker = CircuitBreaker(now=_Clock())
    _fail(breaker, failure, times=20)
    assert breaker.state == "closed"


def test_after_the_pause_one_request_is_let_through_and_closes_it_when_it_succeeds():
    clock = _Clock()
    breaker = _opened(clock)
    clock.time += 30
    assert breaker.state == "half_open"
    with breaker.request(title="豆包"):
        assert breaker.state == "open"
        with pytest.raises(LLMError, match="a trial request is in progress") as caught:
            _ask(breaker)
        assert caught.value.retry_after is None
    assert breaker.state == "closed"
    _fail(breaker, times=4)
    assert breaker.state == "closed"


def test_the_pause_doubles_with_each_trial_that_fails_up_to_five_minutes():
    clock = _Clock()
    breaker = _opened(clock)
    pauses: list[float] = []
    for _ in range(6):
        begun = clock.time
        while breaker.state == "open":
            clock.time += 1
        pauses.append(clock.time - begun)
        _fail(breaker)
    assert pauses == [30, 60, 120, 240, 300, 300]


def test_a_trial_that_the_vendor_refuses_shows_that_it_is_there():
    clock = _Clock()
    breaker = _opened(clock)
    clock.time += 30
    _fail(breaker, "invalid_request")
    assert breaker.state == "closed"


def test_a_trial_is_passed_as_soon_as_the_vendor_begins_to_answer():
    clock = _Clock()
    breaker = _opened(clock)
    breaker.record_success()
    assert breaker.state == "open"
    clock.time += 30
    with breaker.request(title="豆包"):
        breaker.record_success()
        assert breaker.state == "closed"
        _fail(breaker, times=4)
    _fail(breaker, times=4)
    assert breaker.state == "closed"
    _fail(breaker)
    assert breaker.state == "open"


def test_a_trial_that_is_given_up_by_its_caller_says_nothing_and_another_follows():
    clock = _Clock()
    breaker = _opened(clock)
    clock.time += 30
    with pytest.raises(KeyboardInterrupt), breaker.request(title="豆包"):
        raise KeyboardInterrupt
    assert breaker.state == "half_open"
    _ask(breaker)
    assert breaker.state == "closed"


def test_requests_that_were_on_their_way_when_it_opened_change_nothing():
    clock = _Clock()
    breaker = CircuitBreaker(now=clock, failures=1, first_pause=10)
    with breaker.request(title="豆包"):
        _fail(breaker)
        clock.time += 5
    assert breaker.state == "open"
    with pytest.raises(LLMError), breaker.request(title="豆包"):
        pass
    clock.time += 5
    assert breaker.state == "half_open"


def test_a_stream_that_is_left_early_is_an_answer():
    breaker = CircuitBreaker(now=_Clock(), failures=2)
    _fail(breaker)
    with pytest.raises(GeneratorExit), breaker.request(title="豆包"):
        raise GeneratorExit
    _fail(breaker)
    assert breaker.state == "closed"
