"""The orders that have come for a run that is driven here."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.runs.journal.rows.commands import GivenOrder
    from loom_core.runs.journal.work import Wake

__all__ = ["Inbox"]


class Inbox:
    """Keeps orders until the loop takes them; each comes out once, in the order in which they were given."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._orders: list[GivenOrder] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._last = 0

    @property
    def last_order(self) -> int:
        """Key of the last order that has come."""
        return self._last

    def receive(self, orders: Sequence[GivenOrder], wake: Wake) -> None:
        """Take orders; in the writer's thread, which sees them in the order of their keys."""
        with self._lock:
            new = [each for each in orders if each.key > self._last]
            if not new:
                return
            self._last = new[-1].key
            self._orders += new
        wake.call(self._loop, self._tell)

    def take(self) -> list[GivenOrder]:
        """What has come since it was last taken."""
        with self._lock:
            orders, self._orders = self._orders, []
        return orders

    async def filled(self) -> None:
        """Wait until there is something to take."""
        while not self._orders:
            told: asyncio.Future[None] = self._loop.create_future()
            self._waiting.add(told)
            try:
                if not self._orders:
                    await told
            finally:
                self._waiting.discard(told)

    def _tell(self) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None)
