"""Notifier of a journal: wakes the waiters for events of a run, and delivers commands to its executor."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict, deque
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from loom_core.runs.journal.rows.commands import load_commands
from loom_core.runs.journal.rows.runs import event_keys
from loom_core.runs.journal.rows.schema import SEQ_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal.rows.commands import QueuedCommand
    from loom_core.storage.sql import SQLConnection

__all__ = ["Inbox", "Notifier", "WakeBatch", "Watch", "finish"]

_log = logging.getLogger(__name__)

_RECENT = 256


class WakeBatch:
    """Batch of callbacks for event loops: each loop is woken once for all of its callbacks."""

    def __init__(self) -> None:
        self._calls: defaultdict[asyncio.AbstractEventLoop, list[Callable[[], object]]] = defaultdict(list)

    def schedule(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
        """Schedule a function in a loop; it must not raise."""
        self._calls[loop].append(function)

    def flush(self) -> None:
        """Wake the loops; closed loops have no waiters left."""
        for loop, functions in self._calls.items():
            try:
                loop.call_soon_threadsafe(_call_all, functions)
            except RuntimeError:
                _log.debug("%d changes reach no waiter: the event loop is closed.", len(functions))
        self._calls.clear()


def _call_all(functions: Sequence[Callable[[], object]]) -> None:
    for function in functions:
        function()


class Watch:
    """Watch on one run, shared by its waiters.

    Attributes:
        status: status of the run at the last change; empty before the first one.
        count: increases with each change.
    """

    def __init__(self) -> None:
        self.status = ""
        self.count = 0
        self.watchers = 0
        self._seq = 0
        self._recent: deque[StreamEvent] = deque(maxlen=_RECENT)
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()

    def events_after(self, seq: int) -> list[StreamEvent] | None:
        """Return the events after a seq; None if only the file has them."""
        with self._lock:
            recent = self._recent
            if recent and recent[0].seq <= seq + 1 <= self._seq + 1 == recent[-1].seq + 1:
                return list(islice(recent, seq + 1 - recent[0].seq, None))
            return None

    async def wait_for_change(self, count: int) -> None:
        """Wait for a change since the count was read."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.count != count:
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting[waiter] = loop
        try:
            await waiter
        finally:
            with self._lock:
                self._waiting.pop(waiter, None)

    def notify(self, events: Sequence[StreamEvent], seq: int, status: str, wake: WakeBatch) -> None:
        """Notify the waiters of a change.

        Args:
            events: the new events, if known, in order without gaps.
            seq: seq of the run's last event.
            status: status of the run.
            wake: collects the callbacks of the waiters.
        """
        with self._lock:
            if not events and seq == self._seq and status == self.status:
                return
            if events:
                if self._recent and self._recent[-1].seq + 1 != events[0].seq:
                    self._recent.clear()
                self._recent += events
            self._seq, self.status = seq, status
            self.count += 1
            waiting, self._waiting = self._waiting, {}
        for told, loop in waiting.items():
            wake.schedule(loop, partial(finish, told))


def finish(told: asyncio.Future[None]) -> None:
    """Finish what a waiter awaits, unless it was cancelled."""
    if not told.done():
        told.set_result(None)


class Notifier:
    """Notifier: the watches on runs, and the inboxes of the runs that this process executes.

    Attributes:
        on_first_waiter: called when the first waiter for changes by other processes arrives.
        unclaimed: changes when there are new commands of runs that are not executed here.
        has_host: whether runs are adopted here, for which other processes may have sent commands.
    """

    def __init__(self) -> None:
        self.on_first_waiter: Callable[[], object] = bool
        self.unclaimed = Watch()
        self.has_host = False
        self._lock = threading.Lock()
        self._watches: dict[int, Watch] = {}
        self._receivers: dict[int, Inbox] = {}
        self._for_orders = 0
        self._followers = 0

    @property
    def has_followers(self) -> bool:
        """Whether there are waiters for every event, of which no process notifies others."""
        return self._followers > 0

    @property
    def needs_polling(self) -> bool:
        """Whether there are waiters for changes by other processes."""
        return bool(self._watches) or self._for_orders > 0

    @contextmanager
    def watch(self, run: int, *, follows: bool = False) -> Generator[Watch]:
        """Watch a run in the block; `follows` for every event, not only for changes of its state."""
        with self._lock:
            first = not self.needs_polling
            watch = self._watches.setdefault(run, Watch())
            watch.watchers += 1
            self._followers += follows
        if first:
            self.on_first_waiter()
        try:
            yield watch
        finally:
            with self._lock:
                watch.watchers -= 1
                self._followers -= follows
                if not watch.watchers:
                    self._watches.pop(run, None)

    @contextmanager
    def watch_commands(self) -> Generator[None]:
        """Deliver commands of other processes while in the block."""
        with self._lock:
            first = not self.needs_polling
            self._for_orders += 1
        if first:
            self.on_first_waiter()
        try:
            yield
        finally:
            with self._lock:
                self._for_orders -= 1

    async def wait_for_unclaimed(self, count: int) -> None:
        """Wait for commands of runs that are not executed here, since `unclaimed` had a count."""
        if not self.has_host:
            self.has_host = True
            self.on_first_waiter()
        await self.unclaimed.wait_for_change(count)

    def connect(self, run: int, receiver: Inbox) -> None:
        """Register the inbox of a run that this process executes."""
        with self._lock:
            self._receivers[run] = receiver

    def disconnect(self, run: int, receiver: Inbox) -> None:
        """Remove the inbox of a run."""
        with self._lock:
            if self._receivers.get(run) is receiver:
                del self._receivers[run]

    def publish(
        self, run: int, events: Sequence[StreamEvent], seq: int, status: str, wake: WakeBatch
    ) -> None:
        """Notify the waiters of a run; see `Watch.notify`."""
        watch = self._watches.get(run)
        if watch is not None:
            watch.notify(events, seq, status, wake)

    def deliver(self, run: int, orders: Sequence[QueuedCommand], wake: WakeBatch) -> None:
        """Deliver commands to the executor of a run, if it is in this process."""
        receiver = self._receivers.get(run)
        if receiver is not None:
            receiver.receive(orders, wake)

    def poll(self, db: SQLConnection, wake: WakeBatch) -> None:
        """Poll the file for changes by other processes, in the runs that have waiters."""
        with self._lock:
            watches = list(self._watches.items())
            # All inboxes: the next poll follows only the next write, and they may be waiting by then.
            receivers = list(self._receivers.items())
        for run, watch in watches:
            row = db.execute(
                "SELECT status, (SELECT key FROM events WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1)"
                " AS last FROM runs WHERE key = ?",
                (*event_keys(run), run),
            ).fetchone()
            if row is not None:
                seq = (row["last"] or 0) & (1 << SEQ_BITS) - 1
                watch.notify((), seq, row["status"], wake)
        if receivers or self.has_host:
            ordered = dict(map(tuple, db.execute("SELECT run, MAX(key) FROM orders GROUP BY run")))
            for run, receiver in receivers:
                if ordered.pop(run, None) is not None:
                    receiver.receive(load_commands(db, run, after=receiver.last_command), wake)
            if ordered:
                self.unclaimed.notify((), max(ordered.values()), "", wake)


class Inbox:
    """Queue of commands for the executor of a run; delivers each command once, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._orders: deque[QueuedCommand] = deque()
        self._waiting: set[asyncio.Future[None]] = set()
        self._last = 0

    @property
    def last_command(self) -> int:
        """Key of the last command received."""
        return self._last

    def receive(self, orders: Sequence[QueuedCommand], wake: WakeBatch) -> None:
        """Receive commands; called in the writer's thread, in the order of their keys."""
        with self._lock:
            new = [each for each in orders if each.key > self._last]
            if not new:
                return
            self._last = new[-1].key
            self._orders += new
        wake.schedule(self._loop, self._notify)

    def take(self) -> QueuedCommand | None:
        """Return the oldest command that was not taken; None if there is none."""
        with self._lock:
            return self._orders.popleft() if self._orders else None

    async def wait_until_filled(self) -> None:
        """Wait until there is a command to take."""
        while not self._orders:
            told: asyncio.Future[None] = self._loop.create_future()
            self._waiting.add(told)
            try:
                if not self._orders:
                    await told
            finally:
                self._waiting.discard(told)

    def _notify(self) -> None:
        for told in self._waiting:
            finish(told)
