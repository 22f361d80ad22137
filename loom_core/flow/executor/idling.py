"""Activity of a run: whether any part of it is active, or all parts wait for people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from loom_core.runs.stopwatch import Stopwatch

__all__ = ["Idling"]


class _Limit:
    """Timeout of a step; it does not count the time spent waiting for people."""

    def __init__(self, seconds: float, work: anyio.CancelScope) -> None:
        self._watch = Stopwatch(0.0, until=seconds)
        self._waiting = 0
        self._watch.times(work)
        self._watch.run()

    def waits(self, change: int) -> None:
        self._waiting += change
        if self._waiting:
            self._watch.rest()
        else:
            self._watch.run()


_limits: ContextVar[tuple[_Limit, ...]] = ContextVar("_limits", default=())


class Idling:
    """Counter of the concurrent parts of one run that are active.

    Args:
        park: called when all parts wait.
    """

    def __init__(self, park: Callable[[], None]) -> None:
        self._park = park
        self._busy = 1

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Context of waiting for people; the wait can be cancelled and repeated later."""
        with self.standing():
            self.ended()
            try:
                yield
            finally:
                self._busy += 1

    @contextmanager
    def standing(self) -> Generator[None]:
        """Context of waiting for people in the middle of a step: its timeout is suspended."""
        for limit in _limits.get():
            limit.waits(1)
        try:
            yield
        finally:
            for limit in _limits.get():
                limit.waits(-1)

    def split(self, count: int) -> None:
        """Count additional concurrent parts."""
        self._busy += count - 1

    def ended(self) -> None:
        """Count a part as ended or waiting."""
        self._busy -= 1
        if not self._busy:
            self._park()

    @contextmanager
    def limited(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Context with a timeout that does not count the time spent waiting for people."""
        with anyio.CancelScope() as scope:
            if seconds is None:
                yield scope
                return
            token = _limits.set((*_limits.get(), _Limit(seconds, scope)))
            try:
                yield scope
            finally:
                _limits.reset(token)
