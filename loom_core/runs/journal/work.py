"""What is to be written, and the transaction in which it is."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable, Sequence

__all__ = ["Batch", "EventRow", "Wake", "Work"]

_log = logging.getLogger(__name__)
# Rows of one statement: many in one go, as the thread lets others run, and waits for its turn, after each.
_ROWS = (128, 32, 8, 1)

EventRow = tuple[int, float, str, str, str | None]
"""Key, time, type, payload and state of an event."""


class Wake:
    """Calls that are to be made in event loops, each loop being woken once for all of its own."""

    def __init__(self) -> None:
        self._calls: defaultdict[asyncio.AbstractEventLoop, list[Callable[[], object]]] = defaultdict(list)

    def call(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
        """Have a function called in a loop; it must not raise."""
        self._calls[loop].append(function)

    def send(self) -> None:
        """Wake the loops; those that are closed have nobody left who waits."""
        for loop, functions in self._calls.items():
            try:
                loop.call_soon_threadsafe(_call_all, functions)
            except RuntimeError:
                _log.debug("Nobody is told of %d changes: the event loop is closed.", len(functions))
        self._calls.clear()


def _call_all(functions: Sequence[Callable[[], object]]) -> None:
    for function in functions:
        function()


class Batch:
    """One transaction of the writer. It gathers the events of all runs: together they are written fastest."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._events: list[EventRow] = []

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, with all in it that was given before."""
        self.flush()
        return self._db

    def execute(self, sql: str, parameters: Sequence[object]) -> None:
        """Change something beside events."""
        self._db.execute(sql, parameters)

    def add_events(self, rows: Sequence[EventRow]) -> None:
        """Write events, sooner or later in this transaction."""
        self._events += rows

    def flush(self) -> None:
        """Write the events now."""
        at = 0
        for size in _ROWS:
            marks = ",".join(["(?,?,?,?,?)"] * size)
            while len(self._events) - at >= size:
                values = [value for row in self._events[at : at + size] for value in row]
                self._db.execute(f"INSERT INTO events VALUES {marks}", values)
                at += size
        self._events.clear()


class Work(ABC):
    """Something to be written. Its methods run in the writer's thread."""

    def take(self) -> bool:
        """What has come so far is to be written now: whether a power cut must not take it."""
        return False

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write what was taken. Both may happen twice: if a transaction fails, each work is tried alone."""

    @abstractmethod
    def settle(self, error: Exception | None, wake: Wake) -> None:
        """It is in the file, or why it is not."""
