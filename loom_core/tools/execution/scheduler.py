"""The scheduler of tool calls: slots, shared fairly by all runs of a process."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Self, TypeAlias

import anyio

from loom_core.errors import InvalidInputError
from loom_core.observability.families import CALLS_PEAK, CALLS_RUNNING, CALLS_WAITING
from loom_core.observability.metrics import process_metrics
from loom_core.observability.weak_registry import WeakRegistry

__all__ = ["FairSemaphore", "Scheduler", "SchedulerSnapshot", "Slot"]

_nesting: ContextVar[int] = ContextVar("_nesting", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSnapshot:
    """How a scheduler is, and what it has done since it was made.

    Attributes:
        running: calls that run now, also those that wait for a person.
        waiting: calls that wait for one.
        peak: the most that ever ran at once.
        started: calls that got a slot.
        timed_out: those of them that took too long.
        waited_seconds: all waits together.
        busy_seconds: all calls together that have ended.
    """

    running: int
    waiting: int
    peak: int
    started: int
    timed_out: int
    waited_seconds: float
    busy_seconds: float


@dataclass(slots=True)
class _Counts:
    """What calls have done so far; see `SchedulerSnapshot`."""

    running: int = 0
    peak: int = 0
    started: int = 0
    timed_out: int = 0
    waited_seconds: float = 0.0
    busy_seconds: float = 0.0

    def begin(self, *, waited: float) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        self.started += 1
        self.waited_seconds += waited

    def end(self, *, busy: float, timed_out: bool) -> None:
        self.running -= 1
        self.busy_seconds += busy
        self.timed_out += timed_out


class Slot:
    """The slot of one call; see `Scheduler.slot`.

    Attributes:
        seconds: so long may it be held.
        timed_out: whether it was held longer, known behind the block.
    """

    def __init__(
        self, counts: _Counts, pool: FairSemaphore, run: str, level: int, priority: int, seconds: float
    ) -> None:
        self._counts = counts
        self._pool = pool
        self._run = run
        self._level = level
        self._priority = priority
        self.seconds = seconds
        self.timed_out = False
        self._held = False
        self._away = 0
        self._left = seconds
        self._begun = 0.0
        self._scope = anyio.CancelScope()
        self._token: Token[int] | None = None

    async def __aenter__(self) -> Self:
        asked = perf_counter()
        await self._take()
        self._begun = perf_counter()
        self._counts.begin(waited=self._begun - asked)
        self._token = _nesting.set(self._level + 1)
        self._scope.deadline = anyio.current_time() + self.seconds
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        swallowed = bool(self._scope.__exit__(kind, error, trace))
        self.timed_out = self._scope.cancelled_caught
        if self._token is not None:
            _nesting.reset(self._token)
        if self._held:
            self._held = False
            self._pool.release(self._run)
        self._counts.end(busy=perf_counter() - self._begun, timed_out=self.timed_out)
        return swallowed

    @asynccontextmanager
    async def suspend(self) -> AsyncGenerator[None]:
        """While it waits for a person: its time stands still, and its slot is lent to others."""
        self._away += 1
        if self._away == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
            if self._held:
                self._held = False
                self._pool.release(self._run)
        returned = False
        try:
            try:
                yield
            finally:
                self._away -= 1
            if not self._away:
                await self._take()
            returned = True
        finally:
            if not self._away:
                self._scope.deadline = anyio.current_time() + self._left
                if not returned:  # cancelled or failed: it does not wait, but has a slot if there is one
                    self._held = self._held or self._pool.try_acquire(self._run)

    async def _take(self) -> None:
        if not self._pool.try_acquire(self._run):
            await self._pool.acquire(self._run, self._priority)
        self._held = True


class Scheduler:
    """Gives slots to calls: so many to a run, so many in all, and to runs that wait in turn.

    One serves all runs of an event loop. A call that itself runs an agent holds its slot while that agent's
    calls wait for theirs; so the calls of each depth have slots of their own, and never wait for one above.

    Args:
        max_concurrency: calls of one run at the same time.
        max_total: calls of all runs of one depth at the same time.
        timeout_seconds: so long may a call run, if its tool says nothing else (`Tool.needs_seconds`).
    """

    def __init__(
        self, *, max_concurrency: int = 10, max_total: int = 100, timeout_seconds: float = 120.0
    ) -> None:
        if min(max_concurrency, max_total) < 1 or timeout_seconds <= 0:
            raise InvalidInputError(
                "A scheduler needs at least one slot, and time.", advice="Give numbers above zero."
            )
        self.timeout_seconds = timeout_seconds
        self._each = max_concurrency
        self._total = max_total
        self._pools: dict[int, FairSemaphore] = {}
        self._counts = _Counts()
        _schedulers.add(self)

    def slot(self, run: str, *, depth: int = 0, priority: int = 0, needs_seconds: float = 0.0) -> Slot:
        """A slot for one call: `async with scheduler.slot(run) as slot:`.

        The block is cancelled when its time is over; behind it, `slot.timed_out` says so.

        Args:
            run: whose call it is.
            depth: how many agents stand above.
            priority: a higher one goes first; but one of eight slots goes to the lowest that waits.
            needs_seconds: what the call may take; 0 for `timeout_seconds`.
        """
        level = max(depth, _nesting.get())
        if level not in self._pools:
            self._pools[level] = FairSemaphore(self._total, self._each)
        seconds = needs_seconds or self.timeout_seconds
        return Slot(self._counts, self._pools[level], run, level, priority, seconds)

    def snapshot(self) -> SchedulerSnapshot:
        """How it is, and what it has done."""
        counts = self._counts
        return SchedulerSnapshot(
            running=counts.running,
            waiting=sum(pool.waiting for pool in self._pools.values()),
            peak=counts.peak,
            started=counts.started,
            timed_out=counts.timed_out,
            waited_seconds=counts.waited_seconds,
            busy_seconds=counts.busy_seconds,
        )


_schedulers = WeakRegistry[Scheduler]()


def _snapshots() -> list[SchedulerSnapshot]:
    return [each.snapshot() for each in _schedulers.all()]


process_metrics.watch(CALLS_RUNNING, lambda: [((), sum(each.running for each in _snapshots()))])
process_metrics.watch(CALLS_WAITING, lambda: [((), sum(each.waiting for each in _snapshots()))])
process_metrics.watch(CALLS_PEAK, lambda: [((), max((each.peak for each in _snapshots()), default=0))])


_EVERY = 8  # one of so many slots goes to the lowest priority that waits, so that none waits for ever

_Key: TypeAlias = tuple[str, int]  # run and priority


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: anyio.Event = field(default_factory=anyio.Event)


class FairSemaphore:
    """A fair semaphore with a limit for all runs together, and one for each run.

    Runs that wait take turns: who gets a slot goes to the end. A run that waits and may have another slot
    stands in `_turns`, once for each priority of its calls. So every step takes constant time, however many
    runs wait.
    """

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self.busy = 0
        self._of_run: dict[str, int] = {}
        self._waiting: dict[str, dict[int, deque[_Waiter]]] = {}
        self._turns: dict[int, dict[_Key, None]] = {}
        self._grants = 0

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(len(waiters) for by_priority in self._waiting.values() for waiters in by_priority.values())

    def try_acquire(self, run: str) -> bool:
        """Take a slot if there is one. If there is, nobody waits who could have it."""
        if self.busy >= self._total or self._of_run.get(run, 0) >= self._each:
            return False
        self.busy += 1
        self._of_run[run] = self._of_run.get(run, 0) + 1
        return True

    def release(self, run: str) -> None:
        """Let the next one have a slot that a run had."""
        self.busy -= 1
        left = self._of_run[run] - 1
        if left:
            self._of_run[run] = left
        else:
            del self._of_run[run]
        for priority in self._waiting.get(run, ()):
            self._enqueue((run, priority))
        self._grant()

    async def acquire(self, run: str, priority: int) -> None:
        """Wait for a slot, and have it. Who is cancelled meanwhile has none, and keeps none from others."""
        key = (run, priority)
        waiter = _Waiter()
        self._waiting.setdefault(run, {}).setdefault(priority, deque()).append(waiter)
        self._enqueue(key)
        try:
            await waiter.granted.wait()
        except BaseException:
            if waiter.granted.is_set():
                self.release(run)
            else:
                self._forget(key, waiter)
            raise

    def _forget(self, key: _Key, waiter: _Waiter) -> None:
        self._waiting[key[0]][key[1]].remove(waiter)
        self._discard_empty(key)

    def _discard_empty(self, key: _Key) -> None:
        """Keep nothing of those of whom nobody waits any more."""
        run, priority = key
        if not self._waiting[run][priority]:
            del self._waiting[run][priority]
            self._dequeue(key)
        if not self._waiting[run]:
            del self._waiting[run]

    def _enqueue(self, key: _Key) -> None:
        if self._of_run.get(key[0], 0) < self._each:
            self._turns.setdefault(key[1], {}).setdefault(key)

    def _dequeue(self, key: _Key) -> None:
        turns = self._turns.get(key[1], {})
        turns.pop(key, None)
        if not turns:
            self._turns.pop(key[1], None)

    def _grant(self) -> None:
        while self.busy < self._total and self._turns:
            self._grants += 1
            priority = max(self._turns) if self._grants % _EVERY else min(self._turns)
            key = next(iter(self._turns[priority]))
            self._dequeue(key)
            if not self.try_acquire(key[0]):  # its other priority took the last one
                continue
            waiters = self._waiting[key[0]][key[1]]
            waiters.popleft().granted.set()
            if waiters:
                self._enqueue(key)
            self._discard_empty(key)
