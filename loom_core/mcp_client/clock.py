"""The time that a call may take."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

import anyio

__all__ = ["CallClock"]

_MOST = 10  # times the seconds of a call that reports progress


class CallClock:
    """Ends a block when its time is up; the time starts anew with progress, and stands still for people.

    Use it as a context manager in the task that waits: what is late is cancelled there, and `late` is True.

    Attributes:
        late: whether the block was ended.
    """

    def __init__(self, seconds: float) -> None:
        """Give a block so many seconds, and ten times as many in all if it reports progress."""
        self.late = False
        self._seconds = seconds
        self._left = seconds * _MOST
        self._paused_with = seconds  # what was left when the clock was stopped
        self._waits = 0
        self._since = 0.0
        self._scope = anyio.CancelScope()

    def __enter__(self) -> CallClock:
        self._scope.__enter__()
        self._since = anyio.current_time()
        self._scope.deadline = self._since + self._seconds
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        swallowed = self._scope.__exit__(kind, error, trace)
        self.late = self._scope.cancelled_caught
        return bool(swallowed)

    def progressed(self) -> None:
        """Start the seconds anew."""
        if self._waits:
            return
        now = anyio.current_time()
        self._left -= now - self._since
        self._since = now
        self._scope.deadline = now + min(self._seconds, max(self._left, 0.0))

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Let no time pass while the block is open."""
        if not self._waits:
            now = anyio.current_time()
            self._left -= now - self._since
            self._paused_with = self._scope.deadline - now
            self._scope.deadline = math.inf
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._since = anyio.current_time()
                self._scope.deadline = self._since + self._paused_with
