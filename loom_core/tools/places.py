"""Places for calls, given out in turn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

__all__ = ["Places"]

_EVERY = 8  # one of so many places goes to the lowest priority that waits, so that none waits for ever

_Key: TypeAlias = tuple[str, int]  # run and priority


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: anyio.Event = field(default_factory=anyio.Event)


class Places:
    """So many places, so many of them for a run at the most, and who waits for one.

    Runs that wait take turns: who gets a place goes to the end. A run that waits and may have another place
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

    def take(self, run: str) -> bool:
        """Take a place if there is one. If there is, nobody waits who could have it."""
        if self.busy >= self._total or self._of_run.get(run, 0) >= self._each:
            return False
        self.busy += 1
        self._of_run[run] = self._of_run.get(run, 0) + 1
        return True

    def give_back(self, run: str) -> None:
        """Let the next one have a place that a run had."""
        self.busy -= 1
        left = self._of_run[run] - 1
        if left:
            self._of_run[run] = left
        else:
            del self._of_run[run]
        for priority in self._waiting.get(run, ()):
            self._line_up((run, priority))
        self._grant()

    async def wait(self, run: str, priority: int) -> None:
        """Wait for a place, and have it. Who is cancelled meanwhile has none, and keeps none from others."""
        key = (run, priority)
        waiter = _Waiter()
        self._waiting.setdefault(run, {}).setdefault(priority, deque()).append(waiter)
        self._line_up(key)
        try:
            await waiter.granted.wait()
        except BaseException:
            if waiter.granted.is_set():
                self.give_back(run)
            else:
                self._forget(key, waiter)
            raise

    def _forget(self, key: _Key, waiter: _Waiter) -> None:
        self._waiting[key[0]][key[1]].remove(waiter)
        self._tidy(key)

    def _tidy(self, key: _Key) -> None:
        """Keep nothing of those of whom nobody waits any more."""
        run, priority = key
        if not self._waiting[run][priority]:
            del self._waiting[run][priority]
            self._step_out(key)
        if not self._waiting[run]:
            del self._waiting[run]

    def _line_up(self, key: _Key) -> None:
        if self._of_run.get(key[0], 0) < self._each:
            self._turns.setdefault(key[1], {}).setdefault(key)

    def _step_out(self, key: _Key) -> None:
        turns = self._turns.get(key[1], {})
        turns.pop(key, None)
        if not turns:
            self._turns.pop(key[1], None)

    def _grant(self) -> None:
        while self.busy < self._total and self._turns:
            self._grants += 1
            priority = max(self._turns) if self._grants % _EVERY else min(self._turns)
            key = next(iter(self._turns[priority]))
            self._step_out(key)
            if not self.take(key[0]):  # its other priority took the last one
                continue
            waiters = self._waiting[key[0]][key[1]]
            waiters.popleft().granted.set()
            if waiters:
                self._line_up(key)
            self._tidy(key)
