"""Writer of a journal: each run has an outbox, and one thread writes all outboxes in batched transactions."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import CancelScope

from loom_core.errors import LoomError, StoreError
from loom_core.runs.journal.notifier import WakeBatch, finish
from loom_core.runs.journal.rows.schema import NOTIFY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal.notifier import Notifier
    from loom_core.storage.commit_listener import CommitListener
    from loom_core.storage.sql import SQLConnection, SQLCursor, SQLDatabase

__all__ = ["Batch", "EventRow", "Outbox", "WriteJob", "Writer"]


_T = TypeVar("_T")

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_HEARING_FACTOR = 10  # polls are that much rarer while notifications arrive
_HEARD_SECONDS = 0.05  # from a poll to the next one after a notification: there may be hundreds a second
# Rows per INSERT: many at once, as the thread yields the GIL after each statement.
_ROWS = (128, 32, 8, 1)

EventRow = tuple[int, float, str, str, str | None]
"""Key, time, type, payload and state of an event."""


class Batch:
    """One transaction of the writer. It batches the events of all runs, to write them faster."""

    def __init__(self, db: SQLConnection) -> None:
        self._db = db
        self._events: list[EventRow] = []

    @property
    def db(self) -> SQLConnection:
        """The connection, after flushing the batched events."""
        self.flush()
        return self._db

    def execute(self, sql: str, parameters: Sequence[object]) -> SQLCursor:
        """Execute a statement that does not concern events."""
        return self._db.execute(sql, parameters)

    def add_events(self, rows: Sequence[EventRow]) -> None:
        """Batch events for this transaction."""
        self._events += rows

    def flush(self) -> None:
        """Write the batched events."""
        at = 0
        for size in _ROWS:
            marks = ",".join(["(?,?,?,?,?)"] * size)
            while len(self._events) - at >= size:
                values = [value for row in self._events[at : at + size] for value in row]
                self._db.execute(f"INSERT INTO events VALUES {marks}", values)
                at += size
        self._events.clear()


class WriteJob(ABC):
    """Write job. Its methods run in the writer's thread."""

    def take(self) -> bool:
        """Take the queued changes for writing; return whether they must survive a power cut."""
        return False

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the changes taken. Both may run twice: if a transaction fails, each job is retried alone."""

    @abstractmethod
    def settle(self, error: Exception | None, wake: WakeBatch) -> None:
        """Handle the outcome: the changes are in the file, or `error` says why not."""


class _TransactionJob(WriteJob, Generic[_T]):
    """Job that runs a function in a transaction."""

    def __init__(
        self, function: Callable[[SQLConnection], _T], after: Callable[[_T, WakeBatch], object] | None
    ) -> None:
        self._function = function
        self._after = after
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[_T] = self._loop.create_future()
        self._result: list[_T] = []
        self._refusal: LoomError | None = None

    def write(self, batch: Batch) -> None:
        self._refusal = None
        self._result.clear()
        try:
            self._result.append(self._function(batch.db))
        except StoreError:
            raise
        except LoomError as error:  # it has written nothing: other jobs are unaffected
            self._refusal = error

    def settle(self, error: Exception | None, wake: WakeBatch) -> None:
        error = error or self._refusal
        if error is None and self._after is not None:
            self._after(self._result[0], wake)
        wake.schedule(self._loop, lambda: self._resolve(error))

    def _resolve(self, error: Exception | None) -> None:
        if self.done.done():  # the waiter was cancelled
            return
        if error is None:
            self.done.set_result(self._result[0])
        elif isinstance(error, StoreError):  # other jobs get it too, so raise a copy
            self.done.set_exception(StoreError(error.message, advice=error.advice))
        else:
            self.done.set_exception(error)


class Writer:
    """Writer thread: writes all queued jobs in one transaction, and polls for changes by other processes.

    Args:
        database: the database, with its tables.
        notifier: polls the database for its waiters if another process has written. None if there is no other
            process.
        listen: listens for notifications of other processes; while they arrive, the database is polled upon
            one, and else ten times more seldom. None if there are none.
        idle: called in a transaction after an idle time; returns whether to call it again.
        last: called after `stop`, when everything is written.
        poll_seconds: between two polls, as long as no notifications arrive.
    """

    def __init__(
        self,
        database: SQLDatabase,
        *,
        notifier: Notifier | None,
        listen: Callable[[Callable[[], None]], CommitListener] | None,
        idle: Callable[[SQLConnection], bool],
        last: Callable[[], None],
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._database = database
        self._idle = idle
        self._idle_due = True
        self._last = last
        self._notifier = notifier
        self._listen = listen
        self._poll_seconds = poll_seconds
        self._listener: CommitListener | None = None
        self._heard = threading.Event()
        self._queue: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._stopping = False
        self._state = threading.Lock()
        self._mark: object = None
        self._looked = 0.0
        self._thread = threading.Thread(target=self._run, name="loom-journal", daemon=True)
        self._thread.start()

    def submit(self, work: WriteJob) -> None:
        """Submit a job.

        Raises:
            StoreError: the journal is closed.
        """
        with self._state:
            if self._stopping:
                raise StoreError("The journal is closed.", advice="Open it again to go on.")
            self._queue.put(work)

    async def run_in_transaction(
        self,
        function: Callable[[SQLConnection], _T],
        *,
        after: Callable[[_T, WakeBatch], object] | None = None,
    ) -> _T:
        """Run a function in a transaction, and wait for it even if the caller is cancelled.

        Args:
            function: takes the connection. If it raises a LoomError before it has written anything, other
                callers are unaffected. It may be called twice.
            after: called in the writer's thread with the result, after the commit.

        Raises:
            StoreError: it cannot be written.
        """
        job = _TransactionJob(function, after)
        self.submit(job)
        with CancelScope(shield=True):
            await asyncio.wait([job.done])
        return job.done.result()

    def wake_up(self) -> None:
        """Wake the thread, to check again whether to poll."""
        self._queue.put(None)

    def stop(self) -> None:
        """Accept no more jobs; submitted jobs are still written."""
        with self._state:
            self._stopping = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait until everything is written. Blocks."""
        self._thread.join()

    def _run(self) -> None:
        with self._database.hold_connection():
            while True:
                works = self._next()
                if works:
                    self._write(works)
                    self._idle_due = True
                elif self._stopping and self._queue.empty():
                    break
                if self._notifier is not None and self._seconds_to_poll(self._notifier) <= 0:
                    self._poll_changes(self._notifier)
        if self._listener is not None:
            self._listener.close()
        self._last()

    def _next(self) -> list[WriteJob]:
        """Return all queued jobs; empty when it is time to poll."""
        seconds = inf if self._notifier is None else max(self._seconds_to_poll(self._notifier), 0.0)
        if self._idle_due:
            seconds = min(seconds, _POLL_SECONDS)
        works: list[WriteJob] = []
        try:
            work = self._queue.get(timeout=None if seconds == inf else seconds)
            while True:
                if work is not None:
                    works.append(work)
                work = self._queue.get_nowait()
        except Empty:
            pass
        if not works and self._idle_due and not self._stopping:
            self._run_idle_work()
        return works

    def _run_idle_work(self) -> None:
        try:
            with self._database.write(durable=False) as db:
                self._idle_due = self._idle(db)
        except Exception as error:  # noqa: BLE001 - it can wait, and the thread continues
            self._idle_due = False
            _log.info("Runs are not indexed for search: %s", error)

    def _write(self, works: Sequence[WriteJob]) -> None:
        wake = WakeBatch()
        begun, error = self._attempt(works)
        if error is None or len(works) == 1 or not begun:
            for work in works:
                work.settle(error, wake)
        else:
            for work in works:
                work.settle(self._attempt([work])[1], wake)
        wake.flush()

    def _attempt(self, works: Sequence[WriteJob]) -> tuple[bool, Exception | None]:
        """Write in one transaction; return whether it was begun, and why it failed."""
        wanted = [work.take() for work in works]
        durable = any(wanted)
        begun = False
        try:
            with self._database.write(durable=durable) as db:
                begun = True
                before, batch = db.total_changes, Batch(db)
                for work in works:
                    work.write(batch)
                batch.flush()
                if durable and db.total_changes == before:  # only a transaction with changes is flushed
                    db.execute("UPDATE syncs SET count = count + 1")
        except Exception as error:  # noqa: BLE001 - the waiters get it, and the thread continues
            if not isinstance(error, LoomError):
                _log.error("The journal cannot be written.", exc_info=error)
            return begun, error
        return True, None

    def _hear(self) -> None:
        self._heard.set()
        self._queue.put(None)

    def _seconds_to_poll(self, notifier: Notifier) -> float:
        """Return the time until the next poll; infinite while no one waits for other processes."""
        if not (notifier.needs_polling or notifier.has_host):
            return inf
        if self._listen is not None and self._listener is None:
            self._listener = self._listen(self._hear)
        if self._heard.is_set():
            seconds = _HEARD_SECONDS
        elif not notifier.needs_polling:
            return inf
        else:
            hears = self._listener is not None and self._listener.hears and not notifier.has_followers
            seconds = self._poll_seconds * (_HEARING_FACTOR if hears else 1)
        return self._looked + seconds - monotonic()

    def _poll_changes(self, notifier: Notifier) -> None:
        """Notify the waiters of changes by other processes."""
        self._heard.clear()
        wake = WakeBatch()
        try:
            mark = self._database.change_mark()
            if mark != self._mark:
                with self._database.snapshot() as db:
                    notifier.poll(db, wake)
                self._mark = mark
        except StoreError as error:
            _log.warning("Changes of other processes in the journal cannot be read: %s", error)
        wake.flush()
        self._looked = monotonic()


@dataclass(slots=True)
class _PendingWrites:
    """Pending changes of a run, for one transaction.

    Attributes:
        events: new events.
        rows: the same as rows.
        status: status of the run afterwards; empty if no event changes it.
        standing: other changed fields of the run, as JSON; None if there are none.
        applied: keys of applied commands.
        blobs: number, media type and content.
        waiting: futures of the waiters.
        durable: whether a waiter wants a flush to the disk.
        release: whether to release the claim.
        interrupted: whether the execution was interrupted then.
    """

    events: list[StreamEvent] = field(default_factory=list["StreamEvent"])
    rows: list[EventRow] = field(default_factory=list["EventRow"])
    status: str = ""
    standing: str | None = None
    applied: list[int] = field(default_factory=list[int])
    blobs: list[tuple[int, str, bytes]] = field(default_factory=list[tuple[int, str, bytes]])
    waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"])
    durable: bool = False
    release: bool = False
    interrupted: bool = False

    @property
    def empty(self) -> bool:
        return not (self.rows or self.applied or self.blobs or self.release)

    def merge(self, later: _PendingWrites) -> None:
        self.events += later.events
        self.rows += later.rows
        if later.standing is not None:
            self.status, self.standing = later.status, later.standing
        self.applied += later.applied
        self.blobs += later.blobs
        self.waiting += later.waiting
        self.durable = self.durable or later.durable
        self.release = self.release or later.release
        self.interrupted = self.interrupted or later.interrupted


class Outbox(WriteJob):
    """Outbox of a run: collects its changes until the writer takes them.

    After a failed write the changes are lost, and everything later is refused.

    Args:
        run: key of the run.
        driver: id of this process.
        writer: the writer.
        switchboard: the notifier, for the waiters of the run.
        seq: seq of the run's last event.
        status: status of the run.
    """

    def __init__(
        self,
        run: int,
        driver: str,
        *,
        writer: Writer,
        switchboard: Notifier,
        seq: int,
        status: str,
    ) -> None:
        self._run = run
        self._driver = driver
        self._writer = writer
        self._switchboard = switchboard
        self._seq = seq
        self._status = status
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._held = _PendingWrites()  # written after the open changes, together with the applied commands
        self._open = _PendingWrites()
        self._in_flight = _PendingWrites()  # the writer's
        self._queued = False
        self._unflushed = False  # there were writes since the last durable one
        self._failure: Exception | None = None

    def check(self) -> None:
        """Raise StoreError if a write has failed."""
        failure = self._failure
        if failure is not None:
            advice = failure.advice if isinstance(failure, StoreError) else ""
            message = failure.message if isinstance(failure, StoreError) else f"{failure!r}."
            raise StoreError(message, advice=advice) from failure

    def add_event(
        self, event: StreamEvent, row: EventRow, *, status: str, standing: str | None, hold: bool
    ) -> None:
        """Queue an event for writing: soon, or with the next `send` if it is to be held."""
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
        """Queue a blob; it is written with the next `send`, or the next event."""
        with self._lock:
            self._open.blobs.append((number, media_type, content))

    def send(
        self,
        *,
        obeyed: list[int],
        durable: bool = False,
        release: bool = False,
        interrupted: bool = False,
    ) -> asyncio.Future[None]:
        """Write all queued changes; the future is done when they are in the file, or have failed."""
        done: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._open.merge(self._held)
            self._held = _PendingWrites()
            self._open.applied += obeyed
            self._open.release, self._open.interrupted = release, interrupted
            nothing = self._open.empty and self._in_flight.empty and not (durable and self._unflushed)
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
        """Discard the held changes."""
        with self._lock:
            self._held = _PendingWrites()

    def _queue(self) -> None:
        try:
            self._writer.submit(self)
        except StoreError as error:
            self._queued, self._failure = False, error
            raise

    # In the writer's thread:

    def take(self) -> bool:
        """Take the queued changes for writing."""
        with self._lock:
            self._in_flight.merge(self._open)
            self._open = _PendingWrites()
            self._queued = False
        return self._in_flight.durable

    def write(self, batch: Batch) -> None:
        """Write the changes taken."""
        parcel = self._in_flight
        if self._failure is not None and not parcel.release:
            return
        if self._failure is None:
            self._check_claim(batch)
            batch.add_events(parcel.rows)
            if parcel.standing is not None:
                batch.execute(
                    "UPDATE runs SET status = ?, standing = ?, unread = TRUE WHERE key = ?"
                    f" /*postgres RETURNING {NOTIFY}*/",
                    (parcel.status, parcel.standing, self._run),
                )
            for key in parcel.applied:
                batch.execute(f"DELETE FROM orders WHERE key = ? /*postgres RETURNING {NOTIFY}*/", (key,))
            for number, media_type, content in parcel.blobs:
                batch.execute(
                    "INSERT INTO blobs VALUES (?, ?, ?, ?)", (self._run, number, media_type, content)
                )
        if parcel.release:
            batch.execute(
                "UPDATE runs SET driver = ? WHERE key = ? AND driver = ?",
                ("" if parcel.interrupted else None, self._run, self._driver),
            )

    def _check_claim(self, batch: Batch) -> None:
        """Refuse to write to a run that another process has taken over, as this one seemed to be dead."""
        row = batch.execute("SELECT driver FROM runs WHERE key = ?", (self._run,)).fetchone()
        if row is None or row["driver"] != self._driver:
            raise StoreError(
                "Another process has taken over this run: this one could not be heard of for too long.",
                advice="Follow the run there. What this process has not yet written is left out.",
            )

    def settle(self, error: Exception | None, wake: WakeBatch) -> None:
        """Handle the outcome: notify the waiters, and the followers of the run."""
        failure = self._failure or error
        with self._lock:
            parcel, self._in_flight = self._in_flight, _PendingWrites()
            self._failure = failure
            self._unflushed = not parcel.durable and (self._unflushed or not parcel.empty)
        if failure is None and not parcel.empty:
            if parcel.events:
                self._seq = parcel.events[-1].seq
            self._status = parcel.status or self._status
            self._switchboard.publish(self._run, parcel.events, self._seq, self._status, wake)
        for done in parcel.waiting:
            wake.schedule(self._loop, partial(finish, done))
