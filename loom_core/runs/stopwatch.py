"""The time in which a run is worked on."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

import anyio

__all__ = ["Stopwatch"]


class Stopwatch:
    """Counts the seconds in which a run is worked on, and ends the work when they are used up.

    Args:
        seconds: what has been counted before.
        until: the count at which the work ends; infinite for never.
        clock: seconds that never go back.
    """

    def __init__(self, seconds: float, *, until: float = inf, clock: Callable[[], float] = monotonic) -> None:
        self._before = seconds
        self._until = until
        self._clock = clock
        self._since: float | None = None
        self._work: anyio.CancelScope | None = None

    @property
    def seconds(self) -> float:
        """Counted so far."""
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def is_expired(self) -> bool:
        """Whether they are used up."""
        return self.seconds >= self._until

    def set_limit(self, until: float) -> None:
        """Change the count at which the work ends."""
        self._until = until
        self._update_deadline()

    def cancel_at_limit(self, work: anyio.CancelScope) -> None:
        """Cancel this scope when the seconds are used up."""
        self._work = work
        self._update_deadline()

    def start(self) -> None:
        """Count from now on, if it does not already."""
        if self._since is None:
            self._since = self._clock()
            self._update_deadline()

    def stop(self) -> None:
        """Count no more until it runs again."""
        self._before, self._since = self.seconds, None
        self._update_deadline()

    def _update_deadline(self) -> None:
        if self._work is not None and self._until < inf:
            resting = self._since is None
            self._work.deadline = inf if resting else anyio.current_time() + self._until - self.seconds
