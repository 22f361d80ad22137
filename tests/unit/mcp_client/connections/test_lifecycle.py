from __future__ import annotations

from loom_core.mcp_client.connections.lifecycle import Backoff


def test_waits_grow_to_a_limit_and_half_of_each_is_chance():
    most = Backoff(first=0.5, cap=3.0, random=lambda: 1.0)
    assert [most.wait_after(failures) for failures in (1, 2, 3, 4, 1000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    least = Backoff(first=0.5, cap=3.0, random=lambda: 0.0)
    assert [least.wait_after(failures) for failures in (1, 4)] == [0.25, 1.5]
