"""Whether anything of a run is under way, or everything waits for people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from loom_core.runs.stopwatch import Stopwatch

__all__ = ["RunActivity"]


class _StepTimeout:
    """The time of a step, which stands still while people are waited for."""

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
    """Counts what goes on side by side in one run.

    Args:
        park: is called when everything waits.
    """

    def __init__(self, park: Callable[[], None]) -> None:
        self._park = park
        self._busy = 1

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Around waiting for people, which can be given up and begun again later."""
        with self.stop_clocks():
            self.remove_task()
            try:
                yield
            finally:
                self._busy += 1

    @contextmanager
    def stop_clocks(self) -> Generator[None]:
        """Around waiting for people in the middle of something: the time of steps stands still."""
        for limit in _limits.get():
            limit.change_waiting(1)
        try:
            yield
        finally:
            for limit in _limits.get():
                limit.change_waiting(-1)

    def add_tasks(self, count: int) -> None:
        """What goes on does so in so many parts from now on."""
        self._busy += count - 1

    def remove_task(self) -> None:
        """A part has ended, or waits."""
        self._busy -= 1
        if not self._busy:
            self._park()

    @contextmanager
    def limit_time(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Around something that may take so long, without the time in which people are waited for."""
        with anyio.CancelScope() as scope:
            if seconds is None:
                yield scope
                return
            token = _limits.set((*_limits.get(), _StepTimeout(seconds, scope)))
            try:
                yield scope
            finally:
                _limits.reset(token)
