"""The progress of one call, told to somebody who may be slower than it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.tools.interface import ProgressFunction

__all__ = ["Steps"]


class Steps:
    """Tells one step after the other; while one is being told, only the latest of the others is kept.

    A server that reports without end thus costs one report's memory, and who listens is never called twice at
    the same time.
    """

    def __init__(self, tell: ProgressFunction | None) -> None:
        """Tell a function, or nobody."""
        self._tell = tell
        self._next: tuple[float, float | None, str] | None = None
        self._telling = False

    async def take(self, done: float, total: float | None, message: str) -> None:
        """Take a step, and tell it now or after the one that is being told."""
        if self._tell is None:
            return
        self._next = (done, total, message)
        if self._telling:
            return
        self._telling = True
        try:
            while (step := self._next) is not None:
                self._next = None
                await self._tell(*step)
        finally:
            self._telling = False
