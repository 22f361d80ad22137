"""What one run wants written, on its way to the writer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_core.errors import RecordError
from loom_core.runs.journal.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal.notifier import Switchboard
    from loom_core.runs.journal.work import Batch, EventRow, Wake

__all__ = ["Outbox"]


@dataclass(slots=True)
class _Parcel:
    """What goes into one transaction.

    Attributes:
        events: what happened.
        rows: the same as rows.
        status: of the run after it; empty where no event changes it.
        standing: what else events change, as JSON; None where none does.
        obeyed: keys of orders.
        blobs: number, media type and content.
        waiting: who waits for it.
        durable: whether one of them wants it flushed.
        release: whether the run is driven by nobody afterwards.
    """

    events: list[StreamEvent] = field(default_factory=list["StreamEvent"])
    rows: list[EventRow] = field(default_factory=list["EventRow"])
    status: str = ""
    standing: str | None = None
    obeyed: list[int] = field(default_factory=list[int])
    blobs: list[tuple[int, str, bytes]] = field(default_factory=list[tuple[int, str, bytes]])
    waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"])
    durable: bool = False
    release: bool = False

    @property
    def empty(self) -> bool:
        return not (self.rows or self.obeyed or self.blobs or self.release)

    def join(self, later: _Parcel) -> None:
        self.events += later.events
        self.rows += later.rows
        if later.standing is not None:
            self.status, self.standing = later.status, later.standing
        self.obeyed += later.obeyed
        self.blobs += later.blobs
        self.waiting += later.waiting
        self.durable = self.durable or later.durable
        self.release = self.release or later.release


class Outbox(Work):
    """Gathers what a run wants written until the writer takes it.

    What cannot be written is lost with all that comes after it: from then on everything is refused.

    Args:
        run: key of the run.
        driver: id of this process.
        submit: gives work to the writer.
        switchboard: where those are who wait for the run.
        seq: of the run's last event.
        status: of the run.
    """

    def __init__(
        self,
        run: int,
        driver: str,
        *,
        submit: Callable[[Work], None],
        switchboard: Switchboard,
        seq: int,
        status: str,
    ) -> None:
        self._run = run
        self._driver = driver
        self._submit = submit
        self._switchboard = switchboard
        self._seq = seq
        self._status = status
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._held = _Parcel()  # comes behind what is open, with the orders that it obeys
        self._open = _Parcel()
        self._on_way = _Parcel()  # the writer's
        self._queued = False
        self._unflushed = False  # something was written since the last durable one
        self._failure: Exception | None = None

    def check(self) -> None:
        """Raise RecordError if something could not be written."""
        failure = self._failure
        if failure is not None:
            advice = failure.advice if isinstance(failure, RecordError) else ""
            message = failure.message if isinstance(failure, RecordError) else f"{failure!r}."
            raise RecordError(message, advice=advice) from failure

    def add_event(
        self, event: StreamEvent, row: EventRow, *, status: str, standing: str | None, hold: bool
    ) -> None:
        """Have an event written: soon, or with the next `send` where it is to be held."""
        with self._lock:
            parcel = self._held if hold else self._open  # the writer may take the open one at any moment
            parcel.events.append(event)
            parcel.rows.append(row)
            if standing is not None:
                parcel.status, parcel.standing = status, standing
            queue = not hold and not self._queued
            self._queued = self._queued or queue
        if queue:
            self._queue()

    def add_blob(self, number: int, media_type: str, content: bytes) -> None:
        """Have a blob written with the next `send`, or the next event."""
        with self._lock:
            self._open.blobs.append((number, media_type, content))

    def send(
        self, *, obeyed: list[int], durable: bool = False, release: bool = False
    ) -> asyncio.Future[None]:
        """Have all that was added written; the future is done when it is in the file, or has failed."""
        done: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._open.join(self._held)
            self._held = _Parcel()
            self._open.obeyed += obeyed
            self._open.release = release
            nothing = self._open.empty and self._on_way.empty and not (durable and self._unflushed)
            if nothing:
                done.set_result(None)
                return done
            self._open.waiting.append(done)
            self._open.durable = self._open.durable or durable
            queue, self._queued = not self._queued, True
        if queue:
            self._queue()
        return done

    def discard(self) -> None:
        """Take back what was held."""
        with self._lock:
            self._held = _Parcel()

    def _queue(self) -> None:
        try:
            self._submit(self)
        except RecordError as error:
            self._queued, self._failure = False, error
            raise

    # In the writer's thread:

    def take(self) -> bool:
        """Take over what was added."""
        with self._lock:
            self._on_way.join(self._open)
            self._open = _Parcel()
            self._queued = False
        return self._on_way.durable

    def write(self, batch: Batch) -> None:
        """Write what was taken."""
        parcel = self._on_way
        if self._failure is not None and not parcel.release:
            return
        if self._failure is None:
            batch.add_events(parcel.rows)
            if parcel.standing is not None:
                batch.execute(
                    "UPDATE runs SET status = ?, standing = ?, unread = 1 WHERE key = ?",
                    (parcel.status, parcel.standing, self._run),
                )
            for key in parcel.obeyed:
                batch.execute("DELETE FROM orders WHERE key = ?", (key,))
            for number, media_type, content in parcel.blobs:
                batch.execute(
                    "INSERT INTO blobs VALUES (?, ?, ?, ?)", (self._run, number, media_type, content)
                )
        if parcel.release:
            batch.execute(
                "UPDATE runs SET driver = NULL WHERE key = ? AND driver = ?", (self._run, self._driver)
            )

    def settle(self, error: Exception | None, wake: Wake) -> None:
        """It is in the file, or not: tell who waits, and who follows the run."""
        failure = self._failure or error
        with self._lock:
            parcel, self._on_way = self._on_way, _Parcel()
            self._failure = failure
            self._unflushed = not parcel.durable and (self._unflushed or not parcel.empty)
        if failure is None and not parcel.empty:
            if parcel.events:
                self._seq = parcel.events[-1].seq
            self._status = parcel.status or self._status
            self._switchboard.publish(self._run, parcel.events, self._seq, self._status, wake)
        for done in parcel.waiting:
            wake.call(self._loop, lambda done=done: _finish(done))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
