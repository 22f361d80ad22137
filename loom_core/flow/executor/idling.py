"""Whether anything of a run is under way, or everything waits for people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

from loom_core.runs.stopwatch import Stopwatch

__all__ = ["Idling"]


class _Limit:
    """The time of a step, which stands still while people are waited for."""

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
        with self.standing():
            self.ended()
            try:
                yield
            finally:
                self._busy += 1

    @contextmanager
    def standing(self) -> Generator[None]:
        """Around waiting for people in the middle of something: the time of steps stands still."""
        for limit in _limits.get():
            limit.waits(1)
        try:
            yield
        finally:
            for limit in _limits.get():
                limit.waits(-1)

    def split(self, count: int) -> None:
        """What goes on does so in so many parts from now on."""
        self._busy += count - 1

    def ended(self) -> None:
        """A part has ended, or waits."""
        self._busy -= 1
        if not self._busy:
            self._park()

    @contextmanager
    def limited(self, seconds: float | None) -> Generator[anyio.CancelScope]:
        """Around something that may take so long, without the time in which people are waited for."""
        with anyio.CancelScope() as scope:
            if seconds is None:
                yield scope
                return
            token = _limits.set((*_limits.get(), _Limit(seconds, scope)))
            try:
                yield scope
            finally:
                _limits.reset(token)
