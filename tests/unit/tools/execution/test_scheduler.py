from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.tools.execution.scheduler import Scheduler
from tests.fixtures.tool_turns import Doing


async def _settled() -> None:
    """Let every task go as far as it gets: nothing here waits for anything outside."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class _Held:
    """Calls that have a slot until they are told to end."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.order: list[str] = []
        self._ends: list[anyio.Event] = []

    async def call(self, run: str, *, depth: int = 0, priority: int = 0) -> None:
        async with self.scheduler.slot(run, depth=depth, priority=priority):
            self.order.append(run)
            end = anyio.Event()
            self._ends.append(end)
            await end.wait()

    async def start(self, group: TaskGroup, *runs: str, **more: int) -> None:
        for run in runs:
            group.start_soon(lambda run=run: self.call(run, **more))
        await _settled()

    async def end_oldest(self) -> None:
        self._ends.pop(0).set()
        await _settled()

    async def end_all(self) -> None:
        while self._ends:
            await self.end_oldest()


async def test_so_many_calls_of_a_run_and_of_all_runs_have_places_at_once() -> None:
    held = _Held(Scheduler(max_concurrency=2, max_total=3))

    async with anyio.create_task_group() as group:
        await held.start(group, "甲", "甲", "甲", "乙", "乙")
        assert held.order == ["甲", "甲", "乙"]
        now = held.scheduler.snapshot()
        assert (now.running, now.waiting) == (3, 2)
        await held.end_all()

    done = held.scheduler.snapshot()
    assert (done.running, done.waiting, done.peak, done.started) == (0, 0, 3, 5)
    assert done.busy_seconds > 0
    assert done.waited_seconds > 0


async def test_agents_with_their_own_limits_share_the_slots_of_all() -> None:
    shared = Scheduler(max_concurrency=3, max_total=4)
    held, limited = _Held(shared), _Held(shared.with_limits(max_concurrency=1))

    async with anyio.create_task_group() as group:
        await limited.start(group, "甲", "甲", "甲")
        assert limited.order == ["甲"]
        await held.start(group, "乙", "乙", "乙", "乙")
        assert held.order == ["乙", "乙", "乙"]
        assert limited.scheduler.snapshot() == shared.snapshot()
        assert (shared.snapshot().running, shared.snapshot().waiting) == (4, 3)
        await limited.end_oldest()
        assert limited.order == ["甲", "甲"]
        await held.end_all()
        await limited.end_all()

    assert (len(limited.order), len(held.order)) == (3, 4)


def test_the_first_pattern_that_matches_a_tool_decides_about_its_time() -> None:
    scheduler = Scheduler(timeout_seconds=60, tools={"git:push": 5, "git:*": 10})
    limited = scheduler.with_limits(timeout_seconds=20, tools={"git:*": 1})

    tools = [Doing("git:push"), Doing("other"), Doing("own", needs_seconds=7)]
    assert [scheduler.timeout_of(tool) for tool in tools] == [5, 60, 7]
    assert [limited.timeout_of(tool) for tool in tools] == [1, 20, 7]


async def test_runs_that_wait_take_turns() -> None:
    held = _Held(Scheduler(max_total=1))

    async with anyio.create_task_group() as group:
        await held.start(group, "a", "a", "a", "a", "b", "b", "c")
        await held.end_all()

    assert held.order == ["a", "a", "b", "c", "a", "b", "a"]


async def test_a_higher_priority_goes_first_but_no_run_waits_for_ever() -> None:
    held = _Held(Scheduler(max_total=1))

    async with anyio.create_task_group() as group:
        await held.start(group, "now")
        await held.start(group, "low", priority=-1)
        await held.start(group, *["high"] * 10, priority=1)
        await held.end_all()

    assert held.order.index("high") == 1
    assert held.order.index("low") == 8


async def test_a_run_whose_calls_have_two_priorities_has_no_more_places() -> None:
    held = _Held(Scheduler(max_concurrency=1, max_total=5))

    async with anyio.create_task_group() as group:
        await held.start(group, "a")
        await held.start(group, "a", priority=1)
        await held.start(group, "a", priority=2)
        assert held.order == ["a"]
        await held.end_all()

    assert held.scheduler.snapshot().peak == 1
    assert held.scheduler.snapshot().started == 3


async def test_calls_of_an_agent_that_a_call_runs_never_wait_for_that_call() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1)
    done = False

    with anyio.fail_after(30):
        async with scheduler.slot("run"), scheduler.slot("run"), scheduler.slot("其他", depth=1):
            done = scheduler.snapshot().running == 3

    assert done


async def test_a_call_that_takes_too_long_is_stopped() -> None:
    scheduler = Scheduler(timeout_seconds=0.01)

    async with scheduler.slot("a") as slot:
        await anyio.sleep_forever()

    assert slot.timed_out
    assert scheduler.snapshot().timed_out == 1
    assert scheduler.snapshot().running == 0


async def test_a_tool_may_need_more_time_than_is_granted_to_others() -> None:
    scheduler = Scheduler(timeout_seconds=0.01)

    async with scheduler.slot("a", needs_seconds=math.inf) as slot:
        begun = anyio.current_time()
        while anyio.current_time() < begun + 0.03:
            await anyio.lowlevel.checkpoint()

    assert not slot.timed_out
    assert slot.seconds == math.inf


async def test_a_tool_that_needs_less_time_gets_less() -> None:
    scheduler = Scheduler(timeout_seconds=60)

    async with scheduler.slot("a", needs_seconds=0.01) as slot:
        await anyio.sleep_forever()

    assert slot.timed_out
    assert (slot.seconds, scheduler.slot("a").seconds) == (0.01, 60)


async def test_while_a_person_is_asked_time_stands_still_and_the_place_is_lent() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1, timeout_seconds=0.05)

    async with scheduler.slot("a") as slot:
        async with slot.suspend(), slot.suspend():
            async with Scheduler.slot(scheduler, "b", depth=0):
                pass  # its own depth
            begun = anyio.current_time()
            while anyio.current_time() < begun + 0.1:
                await anyio.lowlevel.checkpoint()
        assert anyio.current_effective_deadline() < math.inf

    assert not slot.timed_out


async def test_who_comes_back_from_asking_waits_for_its_place_again() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1)
    held = _Held(scheduler)
    answered = anyio.Event()

    async def asking() -> None:
        async with scheduler.slot("a") as slot:
            async with slot.suspend():
                await answered.wait()
            held.order.append("a again")

    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        await _settled()
        await held.start(group, "b")
        answered.set()
        await _settled()
        assert held.order == ["b"]
        await held.end_all()

    assert held.order == ["b", "a again"]
    assert scheduler.snapshot().running == 0


async def test_a_question_that_a_tool_gives_up_leaves_no_hole() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1, timeout_seconds=60)

    async with scheduler.slot("a") as slot:
        with anyio.move_on_after(0.01):
            async with slot.suspend():
                await anyio.sleep_forever()
        with pytest.raises(ValueError, match="wrong value"):
            async with slot.suspend():
                raise ValueError("wrong value")
        assert anyio.current_effective_deadline() < math.inf

    with anyio.fail_after(30):
        async with scheduler.slot("b"):
            pass


async def test_who_is_cancelled_while_it_waits_keeps_no_place_from_others() -> None:
    held = _Held(Scheduler(max_total=1))

    async with anyio.create_task_group() as group:
        await held.start(group, "a")
        async with anyio.create_task_group() as others:
            await held.start(others, "b", "b", "c")
            assert held.scheduler.snapshot().waiting == 3
            others.cancel_scope.cancel()
        assert held.scheduler.snapshot().waiting == 0
        await held.start(group, "d")
        await held.end_all()

    assert held.order == ["a", "d"]


async def test_a_place_that_was_granted_to_who_was_cancelled_goes_to_the_next() -> None:
    held = _Held(Scheduler(max_total=1))

    async with anyio.create_task_group() as group:
        await held.start(group, "a")
        async with anyio.create_task_group() as others:
            await held.start(others, "b")
            await held.start(group, "c")
            held._ends.pop(0).set()  # a ends, and b is cancelled before it goes on
            others.cancel_scope.cancel()
        await _settled()
        await held.end_all()

    assert held.order == ["a", "c"]


@pytest.mark.parametrize("wrong", [{"max_concurrency": 0}, {"timeout_seconds": 0.0}, {"tools": {"x": 0.0}}])
def test_a_scheduler_without_places_or_time_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Scheduler(**wrong)
    with pytest.raises(InvalidInputError):
        Scheduler().with_limits(**wrong)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),  # run
        st.integers(0, 2),  # depth
        st.integers(0, 2),  # priority
        st.integers(0, 3),  # checkpoints that it takes
        st.one_of(st.none(), st.integers(0, 4)),  # cancelled after so many checkpoints
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(steps=_STEPS, each=st.integers(1, 3), total=st.integers(1, 4))
def test_whatever_comes_bounds_are_kept_all_end_and_no_place_is_lost(
    steps: list[tuple[str, int, int, int, int | None]], each: int, total: int
) -> None:
    scheduler = Scheduler(max_concurrency=each, max_total=total)
    busy: Counter[tuple[int, str]] = Counter()
    ended = 0

    async def call(run: str, depth: int, priority: int, length: int) -> None:
        nonlocal ended
        async with scheduler.slot(run, depth=depth, priority=priority):
            busy[depth, run] += 1
            assert busy[depth, run] <= each
            assert sum(count for (level, _), count in busy.items() if level == depth) <= total
            try:
                for _ in range(length):
                    await anyio.lowlevel.checkpoint()
            finally:
                busy[depth, run] -= 1
        ended += 1

    async def cancelled(scope: anyio.CancelScope, after: int) -> None:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async def one(run: str, depth: int, priority: int, length: int, after: int | None) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                if after is not None:
                    group.start_soon(cancelled, scope, after)
                await call(run, depth, priority, length)

    async def everything() -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for step in steps:
                    group.start_soon(one, *step)
        assert ended >= sum(step[4] is None for step in steps)
        now = scheduler.snapshot()
        assert (now.running, now.waiting) == (0, 0)
        for depth in range(3):  # every slot can be had again
            async with anyio.create_task_group() as group:
                for number in range(total):
                    group.start_soon(call, f"after {number}", depth, 0, 1)

    anyio.run(everything)


def test_turns_are_even_however_many_calls_a_run_has() -> None:
    async def gaps() -> list[int]:
        held = _Held(Scheduler(max_concurrency=2, max_total=4))
        async with anyio.create_task_group() as group:
            await held.start(group, *["greedy"] * 20, *["modest"] * 4)
            await held.end_all()
        places = [number for number, run in enumerate(held.order) if run == "modest"]
        return [after - before for before, after in pairwise(places)]

    assert max(anyio.run(gaps)) <= 3
