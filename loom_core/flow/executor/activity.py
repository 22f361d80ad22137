"""Activity of a run: whether any part of it is active, or all parts wait for people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from loom_core.runs.stopwatch import Stopwatch

__all__ = ["RunActivity"]


class _StepTimeout:
    """Timeout of a step; it does not count the time spent waiting for people."""

    def __init__(self, seconds: float, work: anyio.CancelScope) -> None:
        self._watch = Stopwatch(0.0, until=seconds)
        self._waiting = 0
        self._watch.cancel_at_limit(work)
        self._watch.start()

    def change_waiting(self, change: int) -> None:
        self._waiting += change
        if self._waiting:
            self._watch.stop()
        else:
            self._watch.start()


_limits: ContextVar[tuple[_StepTimeout, ...]] = ContextVar("_limits", default=())


class RunActivity:
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
        with self.stop_clocks():
            self.remove_task()
            try:
                yield
            finally:
                self._busy += 1

    @contextmanager
    def stop_clocks(self) -> Generator[None]:
        """Context of waiting for people in the middle of a step: its timeout is suspended."""
        for limit in _limits.get():
            limit.change_waiting(1)
        try:
            yield
        finally:
            for limit in _limits.get():
                limit.change_waiting(-1)

    def add_tasks(self, count: int) -> None:
        """Count additional concurrent parts."""
        self._busy += count - 1

    def remove_task(self) -> None:
        """Count a part as ended or waiting."""
        self._busy -= 1
        if not self._busy:
            self._park()

    @contextmanager
    def limit_time(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Context with a timeout that does not count the time spent waiting for people."""
        with anyio.CancelScope() as scope:
            if seconds is None:
                yield scope
                return
            token = _limits.set((*_limits.get(), _StepTimeout(seconds, scope)))
            try:
                yield scope
            finally:
                _limits.reset(token)
