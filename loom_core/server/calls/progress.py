"""Progress messages of a running tool."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from loom_core.server.calls.wellformed import well_formed

if TYPE_CHECKING:
    from loom_core.server.calls.context import ToolContext

__all__ = ["Progress", "progress"]

_Send = Callable[[float, float | None, str | None], Awaitable[None]]


def progress(ctx: ToolContext, *, total: float | None = None) -> Progress:
    """Create the progress reporter of a call; it does nothing if the client did not ask for progress.

    Once the call has become a task, clients get it by polling the task.

    Args:
        ctx: the call.
        total: the value at which the work is done, if known.
    """
    return Progress(ctx.task.report if ctx.task else ctx.session.report_progress, total=total)


class Progress:
    """Progress reporter: values increase, and messages are rate-limited.

    The protocol requires increasing values, and clients reset their idle timers at each message. A value that
    has not increased is dropped, unless it comes with a new text: then it is raised by the smallest possible
    step. Messages closer together than `interval` are dropped too, except the one that reaches the total.
    """

    def __init__(
        self,
        send: _Send,
        *,
        total: float | None = None,
        interval: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._total = total
        self._interval = interval
        self._clock = clock
        self._value = -math.inf
        self._message = ""
        self._sent_at = -math.inf

    async def report(self, value: float, message: str = "") -> None:
        """Report progress.

        Args:
            value: progress in the unit of `total`; it may repeat or decrease, which is not shown.
            message: the current step, for people.
        """
        news = message not in ("", self._message)
        if value <= self._value and not news:
            return
        finished = self._total is not None and value >= self._total > self._value
        now = self._clock()
        if now - self._sent_at < self._interval and not finished:
            return
        self._value = value if value > self._value else math.nextafter(self._value, math.inf)
        self._message = message or self._message
        self._sent_at = now
        await self._send(self._value, self._total, well_formed(message) or None)
