from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.llm.hosted.limits import RateLimits


class _Time:
    """A clock that goes on when someone sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await checkpoint()
        self.time += seconds


async def _asked_at(limits: RateLimits, time: _Time, sizes: list[int]) -> list[float]:
    """When each of some requests was let through, one after the other."""
    times: list[float] = []
    for size in sizes:
        async with limits.acquire(size):
            times.append(time.time)
    return times


async def test_without_limits_no_one_waits():
    time = _Time()
    assert await _asked_at(RateLimits(now=time, sleep=time.sleep), time, [10**9] * 5) == [0.0] * 5
    assert time.slept == []


async def test_requests_beyond_those_of_a_minute_wait_until_the_oldest_is_a_minute_ago():
    time = _Time()
    limits = RateLimits(rpm=2, now=time, sleep=time.sleep)
    assert await _asked_at(limits, time, [0] * 5) == [0.0, 0.0, 60.0, 60.0, 120.0]
    assert time.slept == [60.0, 60.0]


async def test_tokens_beyond_those_of_a_minute_wait():
    time = _Time()
    limits = RateLimits(tpm=1000, now=time, sleep=time.sleep)
    assert await _asked_at(limits, time, [600, 400, 100, 900]) == [0.0, 0.0, 60.0, 60.0]


async def test_a_request_larger_than_a_minute_may_have_goes_alone():
    time = _Time()
    limits = RateLimits(tpm=1000, now=time, sleep=time.sleep)
    assert await _asked_at(limits, time, [5000, 1, 5000]) == [0.0, 60.0, 120.0]


async def test_what_was_reported_replaces_what_was_estimated():
    time = _Time()
    limits = RateLimits(tpm=1000, now=time, sleep=time.sleep)
    async with limits.acquire(100) as place:
        place.tokens = 1000
    assert await _asked_at(limits, time, [1]) == [60.0]
    async with limits.acquire(900) as place:
        place.tokens = 9
    assert await _asked_at(limits, time, [900]) == [60.0]


async def test_a_request_that_was_not_made_does_not_count():
    time = _Time()
    limits = RateLimits(rpm=1, now=time, sleep=time.sleep)
    async with limits.acquire(10) as place:
        limits.release(place)
    limits.release(place)
    assert await _asked_at(limits, time, [0]) == [0.0]


async def test_no_more_requests_are_open_than_allowed_and_they_go_in_the_order_they_came():
    limits = RateLimits(concurrency=2)
    most, now_open = 0, 0
    order: list[int] = []

    async def ask(number: int) -> None:
        nonlocal most, now_open
        async with limits.acquire():
            order.append(number)
            now_open += 1
            most = max(most, now_open)
            await checkpoint()
            now_open -= 1

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(ask, number)
    assert (most, order) == (2, list(range(10)))


async def test_those_who_wait_for_the_minute_go_in_the_order_they_came_however_small():
    time = _Time()
    limits = RateLimits(tpm=100, now=time, sleep=time.sleep)
    order: list[int] = []

    async def ask(size: int) -> None:
        async with limits.acquire(size):
            order.append(size)

    async with anyio.create_task_group() as group:
        for size in (90, 95, 1, 2):
            group.start_soon(ask, size)
    assert order == [90, 95, 1, 2]


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind():
    limits = RateLimits(rpm=1000, concurrency=1)
    async with limits.acquire():
        with anyio.move_on_after(0.01) as scope:
            async with limits.acquire():
                pass
        assert scope.cancelled_caught
    with anyio.fail_after(30):
        async with limits.acquire():
            pass


async def test_a_waiter_cancelled_in_front_of_the_queue_lets_the_next_one_go():
    time = _Time()
    blocked = anyio.Event()

    async def sleep(seconds: float) -> None:
        if not blocked.is_set():
            blocked.set()
            await anyio.sleep_forever()
        await time.sleep(seconds)

    limits = RateLimits(rpm=1, now=time, sleep=sleep)
    await _asked_at(limits, time, [0])

    async def wait_for_ever(*, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            async with limits.acquire():
                raise AssertionError

    async with anyio.create_task_group() as group:
        scope = await group.start(wait_for_ever)
        await blocked.wait()
        scope.cancel()
    assert await _asked_at(limits, time, [0, 0]) == [60.0, 120.0]


@settings(max_examples=40)
@given(
    rpm=st.integers(1, 5),
    tpm=st.integers(1, 1000),
    requests=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 90)), max_size=30),
)
def test_no_minute_ever_has_more_than_allowed(rpm: int, tpm: int, requests: list[tuple[int, int]]):
    time = _Time()
    limits = RateLimits(rpm=rpm, tpm=tpm, now=time, sleep=time.sleep)
    seen: list[tuple[float, int]] = []

    async def ask() -> None:
        for size, pause in requests:
            async with limits.acquire(size):
                seen.append((time.time, size))
            time.time += pause

    anyio.run(ask)
    for since, _ in seen:
        minute = [size for at, size in seen if since <= at < since + 60]
        assert len(minute) <= rpm
        assert sum(minute) <= tpm or sum(size > 0 for size in minute) == 1
    assert [size for _, size in seen] == [size for size, _ in requests]


@pytest.mark.parametrize("limit", ["rpm", "tpm", "concurrency"])
def test_a_limit_that_lets_nothing_through_is_refused(limit: str):
    with pytest.raises(ConfigError, match=f"The rate limit {limit} is 0"):
        RateLimits(**{limit: 0})


def test_the_limit_of_tokens_can_be_asked_for():
    assert (RateLimits(tpm=7).tpm, RateLimits().tpm) == (7, None)
