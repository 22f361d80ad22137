from __future__ import annotations

import math

import anyio
import pytest

from loom_core.mcp_client.connections.client_features import CallClock

pytestmark = pytest.mark.slow


async def test_what_takes_too_long_is_ended():
    with CallClock(0.05) as clock:
        await anyio.sleep_forever()
    assert clock.late


async def test_progress_starts_the_time_again_but_not_for_ever():
    with CallClock(3600) as clock:
        for _ in range(4):
            before = anyio.current_effective_deadline()
            await anyio.sleep(0.001)
            clock.restart()
            assert anyio.current_effective_deadline() > before
    assert not clock.late
    with CallClock(0.05) as clock:
        while True:
            await anyio.sleep(0.01)
            clock.restart()
    assert clock.late


async def test_no_time_passes_while_it_is_stopped_even_twice():
    with CallClock(3600) as clock:
        before = anyio.current_effective_deadline()
        with clock.pause():
            with clock.pause():
                clock.restart()
            assert anyio.current_effective_deadline() == math.inf
            await anyio.sleep(0.001)
        assert before < anyio.current_effective_deadline() < anyio.current_time() + 3600


async def test_after_a_pause_the_time_that_was_left_goes_on():
    with CallClock(0.05) as clock:
        with clock.pause():
            await anyio.sleep(0.1)
        assert not clock.late
        await anyio.sleep_forever()
    assert clock.late


async def test_a_cancellation_from_outside_goes_through():
    with anyio.CancelScope() as outside:
        with CallClock(10) as clock:
            outside.cancel()
            await anyio.sleep_forever()
        pytest.fail("it was swallowed")
    assert outside.cancelled_caught
    assert not clock.late
