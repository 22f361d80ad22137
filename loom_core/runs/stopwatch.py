"""Stopwatch: the working time of a run, and its time limit."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

import anyio

__all__ = ["Stopwatch"]


class Stopwatch:
    """Counts the working seconds of a run, and cancels the work at a limit.

    Args:
        seconds: seconds counted before.
        until: the limit, in counted seconds; infinite for none.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, seconds: float, *, until: float = inf, clock: Callable[[], float] = monotonic) -> None:
        self._before = seconds
        self._until = until
        self._clock = clock
        self._since: float | None = None
        self._work: anyio.CancelScope | None = None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit; infinite for none."""
        return self._until - self.seconds

    @property
    def is_expired(self) -> bool:
        """Whether the limit is reached."""
        return self.seconds_left <= 0.0

    def set_limit(self, until: float) -> None:
        """Set the limit."""
        self._until = until
        self._update_deadline()

    def cancel_at_limit(self, work: anyio.CancelScope) -> None:
        """Cancel this scope when the limit is reached."""
        self._work = work
        self._update_deadline()

    def start(self) -> None:
        """Start to count, if not already started."""
        if self._since is None:
            self._since = self._clock()
            self._update_deadline()

    def stop(self) -> None:
        """Stop counting until the next start."""
        self._before, self._since = self.seconds, None
        self._update_deadline()

    def _update_deadline(self) -> None:
        if self._work is not None and self._until < inf:
            resting = self._since is None
            self._work.deadline = inf if resting else anyio.current_time() + self._until - self.seconds
