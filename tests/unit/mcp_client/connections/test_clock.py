from __future__ import annotations

import anyio
import pytest

from loom_core.mcp_client.connections.client_features import CallClock

pytestmark = pytest.mark.slow


async def test_what_takes_too_long_is_ended():
    with CallClock(0.05) as clock:
        await anyio.sleep_forever()
    assert clock.late


async def test_progress_starts_the_time_anew_but_not_for_ever():
    with CallClock(0.6) as clock:
        for _ in range(4):
            await anyio.sleep(0.2)
            clock.restart()
    assert not clock.late
    with anyio.fail_after(5), CallClock(0.05) as clock:
        while True:
            await anyio.sleep(0.01)
            clock.restart()
    assert clock.late


async def test_no_time_passes_while_it_is_stopped_even_twice():
    with CallClock(0.1) as clock:
        with clock.pause(), clock.pause():
            await anyio.sleep(0.15)
            clock.restart()
            await anyio.sleep(0.05)
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
