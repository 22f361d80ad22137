"""The one thread that writes: what several runs want written at the same time is one transaction."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import CancelScope

from loom_core.errors import LoomError, RecordError
from loom_core.runs.journal.work import Batch, Wake, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.storage import Database

__all__ = ["Writer"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_CHECKPOINT_PAGES = 4000  # 16 MB: few enough to be copied back while nobody notices


class _Job(Work, Generic[_T]):
    """A function to be run in a transaction."""

    def __init__(
        self, function: Callable[[sqlite3.Connection], _T], after: Callable[[_T, Wake], object] | None
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
        except RecordError:
            raise
        except LoomError as error:  # it has written nothing: the others are not concerned
            self._refusal = error

    def settle(self, error: Exception | None, wake: Wake) -> None:
        error = error or self._refusal
        if error is None and self._after is not None:
            self._after(self._result[0], wake)
        wake.call(self._loop, lambda: self._tell(error))

    def _tell(self, error: Exception | None) -> None:
        if self.done.done():  # whoever waited was cancelled
            return
        if error is None:
            self.done.set_result(self._result[0])
        elif isinstance(error, RecordError):  # which others are told, too
            self.done.set_exception(RecordError(error.message, advice=error.advice))
        else:
            self.done.set_exception(error)


class Writer:
    """Writes what is submitted, all that has come in one transaction, and looks what other processes did.

    Args:
        database: where to; its tables are there.
        poll: called with the connection every fifth of a second while `polling` says so, when another
            process has written. None where there is no other process.
        polling: whether anybody waits for what other processes write.
        idle: called in a transaction when there has been nothing to write for a while; says whether it has
            to be called again.
        last: called when all is written after `stop`; nothing can be written any more.
    """

    def __init__(
        self,
        database: Database,
        *,
        poll: Callable[[sqlite3.Connection, Wake], None] | None,
        polling: Callable[[], bool],
        idle: Callable[[sqlite3.Connection], bool],
        last: Callable[[], None],
    ) -> None:
        self._database = database
        self._idle = idle
        self._idle_due = True
        self._last = last
        self._poll = poll
        self._polling = polling
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._stopping = False
        self._state = threading.Lock()
        self._version = 0
        self._looked = 0.0
        self._thread = threading.Thread(target=self._run, name="loom-journal", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Have something written.

        Raises:
            RecordError: the journal is closed.
        """
        with self._state:
            if self._stopping:
                raise RecordError("The journal is closed.", advice="Open it again to go on.")
            self._queue.put(work)

    async def do(
        self,
        function: Callable[[sqlite3.Connection], _T],
        *,
        after: Callable[[_T, Wake], object] | None = None,
    ) -> _T:
        """Run a function in a transaction. It is waited for also where the caller is cancelled meanwhile.

        Args:
            function: takes the connection. A LoomError that it raises before it has written anything
                concerns nobody else. It may be called twice.
            after: called in the writer's thread with the result once that is in the file.

        Raises:
            RecordError: it cannot be written.
        """
        job = _Job(function, after)
        self.submit(job)
        with CancelScope(shield=True):
            await asyncio.wait([job.done])
        return job.done.result()

    def nudge(self) -> None:
        """Look again whether to poll."""
        self._queue.put(None)

    def stop(self) -> None:
        """Take nothing more; what has been submitted is still written."""
        with self._state:
            self._stopping = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait until all is written. Blocks."""
        self._thread.join()

    def _run(self) -> None:
        # In memory there is one connection for all threads, which is not to be kept.
        with nullcontext() if self._poll is None else self._database.read() as connection:
            if connection is not None:
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute("PRAGMA fullfsync=ON")  # else macOS leaves it in the disk's own cache
                connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            while True:
                works = self._next()
                if works:
                    self._write(works, connection)
                    self._idle_due = True
                elif self._stopping and self._queue.empty():
                    break
                if connection is not None and self._polling() and monotonic() - self._looked >= _POLL_SECONDS:
                    self._look(connection)
                    self._looked = monotonic()
        self._last()

    def _next(self) -> list[Work]:
        """All that there is to write; empty where it is time to look around."""
        waiting = self._idle_due or (self._poll is not None and self._polling())
        works: list[Work] = []
        try:
            work = self._queue.get(timeout=_POLL_SECONDS if waiting else None)
            while True:
                if work is not None:
                    works.append(work)
                work = self._queue.get_nowait()
        except Empty:
            pass
        if not works and self._idle_due and not self._stopping:
            self._use_idleness()
        return works

    def _use_idleness(self) -> None:
        try:
            with self._database.write() as db:
                self._idle_due = self._idle(db)
        except Exception as error:  # noqa: BLE001 - it can wait, and the thread goes on
            self._idle_due = False
            _log.info("Runs are not made ready to be searched: %s", error)

    def _write(self, works: Sequence[Work], connection: sqlite3.Connection | None) -> None:
        wake = Wake()
        begun, error = self._attempt(works, connection)
        if error is None or len(works) == 1 or not begun:
            for work in works:
                work.settle(error, wake)
        else:
            for work in works:
                work.settle(self._attempt([work], connection)[1], wake)
        wake.send()

    def _attempt(
        self, works: Sequence[Work], connection: sqlite3.Connection | None
    ) -> tuple[bool, Exception | None]:
        """Write in one transaction: whether it was begun, and why it failed."""
        wanted = [work.take() for work in works]
        durable = connection is not None and any(wanted)
        begun = False
        try:
            if durable and connection is not None:
                connection.execute("PRAGMA synchronous=FULL")
            with self._database.write() as db:
                begun = True
                before, batch = db.total_changes, Batch(db)
                for work in works:
                    work.write(batch)
                batch.flush()
                if durable and db.total_changes == before:  # only what changes something is flushed
                    db.execute("UPDATE syncs SET count = count + 1")
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the thread goes on
            if not isinstance(error, LoomError):
                _log.error("The journal cannot be written.", exc_info=error)
            return begun, error
        finally:
            if durable and connection is not None:
                connection.execute("PRAGMA synchronous=NORMAL")
        return True, None

    def _look(self, connection: sqlite3.Connection) -> None:
        """Tell those who wait what other processes have written."""
        wake = Wake()
        try:
            version = int(connection.execute("PRAGMA data_version").fetchone()[0])
            if version != self._version and self._poll is not None:
                self._poll(connection, wake)
                self._version = version
        except sqlite3.Error as error:
            _log.warning("What other processes do in the journal is not seen: %s.", error)
        wake.send()
