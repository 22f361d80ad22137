"""Scheduler of tool calls: a fair semaphore with a global and a per-run limit."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass, field
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio

from loom_core.errors import InvalidInputError
from loom_core.observability.families import CALLS_PEAK, CALLS_RUNNING, CALLS_WAITING
from loom_core.observability.metrics import process_metrics
from loom_core.observability.registry import WeakRegistry
from loom_core.tools.patterns import matcher
from loom_core.tools.toolbox import is_allowed

if TYPE_CHECKING:
    from loom_core.tools.interface import Tool

__all__ = ["FairSemaphore", "Scheduler", "SchedulerSnapshot", "Slot"]

_nesting: ContextVar[int] = ContextVar("_nesting", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSnapshot:
    """Snapshot of a scheduler: its state, and totals since its creation.

    Attributes:
        running: running calls, also those that wait for a person.
        waiting: calls that wait for a slot.
        peak: maximum of concurrent calls.
        started: calls that got a slot.
        timed_out: those of them that timed out.
        waited_seconds: sum of all waits.
        busy_seconds: sum of the durations of all finished calls.
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
    """Totals of the calls so far; see `SchedulerSnapshot`."""

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


@dataclass(slots=True, eq=False)
class Slot:
    """The slot of one call; see `Scheduler.slot`.

    Attributes:
        seconds: maximum time to hold it.
        timed_out: whether it was held longer; set after the block.
    """

    _counts: _Counts
    _pool: FairSemaphore
    _run: str
    _each: int
    _level: int
    _priority: int
    seconds: float
    timed_out: bool = False
    _held: bool = False
    _away: int = 0
    _left: float = 0.0
    _begun: float = 0.0
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _token: Token[int] | None = None

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
        """Pause the timeout and lend the slot to others while the call waits for a person."""
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
                if not returned:  # cancelled or failed: do not wait, take a slot only if one is free
                    self._held = self._held or self._pool.try_acquire(self._run, self._each)

    async def _take(self) -> None:
        if not self._pool.try_acquire(self._run, self._each):
            await self._pool.acquire(self._run, self._each, self._priority)
        self._held = True


class Scheduler:
    """Gives slots to calls, with a global and a per-run limit, in turn to waiting runs.

    One scheduler serves all runs of an event loop. A call that runs an agent holds its slot while that
    agent's calls wait for theirs; so each depth has separate slots, and calls never wait for one above.

    Args:
        max_concurrency: concurrent calls of one run.
        max_total: concurrent calls of all runs of one depth.
        timeout_seconds: timeout of a call, unless its tool says otherwise (`Tool.needs_seconds`).
        tools: timeouts in seconds by name pattern, as in `github:*`; the first match counts, before the
            tool's own timeout.

    Raises:
        InvalidInputError: a number is not above zero.
        ConfigError: a pattern is invalid.
    """

    def __init__(
        self,
        *,
        max_concurrency: int = 10,
        max_total: int = 100,
        timeout_seconds: float = 120.0,
        tools: Mapping[str, float] | None = None,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._each = max_concurrency
        self._total = max_total
        self._tools = dict(tools or {})
        self._check()
        self._original = self  # of copies with other limits; only it is in the metrics
        self._pools: dict[int, FairSemaphore] = {}
        self._counts = _Counts()
        _schedulers.add(self)

    def _check(self) -> None:
        for pattern in self._tools:
            matcher(pattern)
        seconds = (self.timeout_seconds, *self._tools.values())
        if min(self._each, self._total) < 1 or not all(each > 0 for each in seconds):
            raise InvalidInputError(
                "A scheduler needs at least one slot, and time.", advice="Give numbers above zero."
            )

    def with_limits(
        self,
        *,
        max_concurrency: int | None = None,
        timeout_seconds: float | None = None,
        tools: Mapping[str, float] | None = None,
    ) -> Scheduler:
        """Return a scheduler with the same slots and counts, and other limits for the calls of its agents.

        Args:
            max_concurrency: replaces the limit of each run, if it is not None.
            timeout_seconds: replaces the timeout.
            tools: timeouts by name pattern, before those of this scheduler.

        Raises:
            InvalidInputError: a number is not above zero.
            ConfigError: a pattern is invalid.
        """
        other = copy.copy(self)
        other._each = self._each if max_concurrency is None else max_concurrency
        other.timeout_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        first = tools or {}
        other._tools = {**first, **self._tools, **first}
        other._check()
        return other

    def timeout_of(self, tool: Tool) -> float:
        """Return the timeout of a tool's call, in seconds."""
        for pattern, seconds in self._tools.items():
            if is_allowed(tool, (pattern,)):
                return seconds
        return tool.needs_seconds or self.timeout_seconds

    def slot(self, run: str, *, depth: int = 0, priority: int = 0, needs_seconds: float = 0.0) -> Slot:
        """Return a slot for one call: `async with scheduler.slot(run) as slot:`.

        The block is cancelled at its timeout; then `slot.timed_out` is set.

        Args:
            run: the run of the call.
            depth: number of agents above.
            priority: a higher one goes first; but one of eight slots goes to the lowest waiting one.
            needs_seconds: timeout of the call; 0 for `timeout_seconds`.
        """
        level = max(depth, _nesting.get())
        if level not in self._pools:
            self._pools[level] = FairSemaphore(self._total)
        return Slot(
            self._counts,
            self._pools[level],
            run,
            self._each,
            level,
            priority,
            needs_seconds or self.timeout_seconds,
        )

    def snapshot(self) -> SchedulerSnapshot:
        """Return its state and totals."""
        waiting = sum(pool.waiting for pool in self._pools.values())
        return SchedulerSnapshot(waiting=waiting, **asdict(self._counts))


_schedulers = WeakRegistry[Scheduler]()


def _snapshots() -> list[SchedulerSnapshot]:
    return [each.snapshot() for each in _schedulers.all()]


process_metrics.watch(CALLS_RUNNING, lambda: [((), sum(each.running for each in _snapshots()))])
process_metrics.watch(CALLS_WAITING, lambda: [((), sum(each.waiting for each in _snapshots()))])
process_metrics.watch(CALLS_PEAK, lambda: [((), max((each.peak for each in _snapshots()), default=0))])


_EVERY = 8  # one of this many slots goes to the lowest waiting priority, to prevent starvation

_Key: TypeAlias = tuple[str, int]  # run and priority


@dataclass(slots=True, eq=False)
class _Waiter:
    each: int  # limit of its run
    granted: anyio.Event = field(default_factory=anyio.Event)


class FairSemaphore:
    """A fair semaphore with a global and a per-run limit.

    Waiting runs take turns: a run that gets a slot goes to the end of the queue. A waiting run below its
    limit is in `_turns`, once for each priority of its calls. So every step takes constant time, however many
    runs wait.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.busy = 0
        self._of_run: dict[str, int] = {}
        self._waiting: dict[str, dict[int, deque[_Waiter]]] = {}
        self._turns: dict[int, dict[_Key, None]] = {}
        self._grants = 0

    @property
    def waiting(self) -> int:
        """Number of waiting calls."""
        return sum(len(waiters) for by_priority in self._waiting.values() for waiters in by_priority.values())

    def try_acquire(self, run: str, each: int) -> bool:
        """Take a slot if one is free, of `each` for a run. Then no waiter could have had it."""
        if self.busy >= self._total or self._of_run.get(run, 0) >= each:
            return False
        self.busy += 1
        self._of_run[run] = self._of_run.get(run, 0) + 1
        return True

    def release(self, run: str) -> None:
        """Release a slot of a run, and give it to the next waiter."""
        self.busy -= 1
        left = self._of_run[run] - 1
        if left:
            self._of_run[run] = left
        else:
            del self._of_run[run]
        for priority in self._waiting.get(run, ()):
            self._enqueue((run, priority))
        self._grant()

    async def acquire(self, run: str, each: int, priority: int) -> None:
        """Wait for a slot, of `each` for the run, and take it. A cancelled waiter holds and blocks none."""
        key = (run, priority)
        waiter = _Waiter(each)
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
        run, priority = key
        if not self._waiting[run][priority]:
            del self._waiting[run][priority]
            self._dequeue(key)
        if not self._waiting[run]:
            del self._waiting[run]

    def _enqueue(self, key: _Key) -> None:
        if self._of_run.get(key[0], 0) < self._waiting[key[0]][key[1]][0].each:
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
            waiters = self._waiting[key[0]][key[1]]
            if not self.try_acquire(key[0], waiters[0].each):  # its other priority took its last slot
                continue
            waiters.popleft().granted.set()
            if waiters:
                self._enqueue(key)
            self._discard_empty(key)
