from __future__ import annotations

import anyio

from loom_core.mcp_client.connections.connection import LatestNotifier


async def test_who_is_slow_misses_steps_but_not_the_last_and_is_never_told_two_at_once():
    told, going = [], anyio.Event()

    async def tell(done, total, message):
        told.append((done, total, message))
        await going.wait()

    steps = LatestNotifier(tell)
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(steps.take, number, None, f"第{number}步")
        await anyio.wait_all_tasks_blocked()
        assert told == [(0, None, "第0步")]
        going.set()
    assert told == [(0, None, "第0步"), (4, None, "第4步")]


async def test_nobody_need_listen():
    await LatestNotifier(None).take(1, 2, "")
